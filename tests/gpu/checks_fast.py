"""Checks of how fast a GPU computes, and of every access to its memory. Each returns the text of its row."""

import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys

from checks_correct import GPU, folder
from programs import DEADLINE, DRY, HERE, OutOfTime, Skip, last_line, output_of, program, run

from cluster import Cluster, TestFailure  # in the folder that programs.py adds to the path
from jobs import make_glyphs

CNN = """
name: "cnn"
model {
  layers { input { shape: [28, 28, 1] } }
  layers { rescaling { scale: 0.003921569 } }
  layers { conv2d { filters: 32 kernel_size: 3 padding: SAME activation: RELU } }
  layers { max_pooling2d { } }
  layers { conv2d { filters: 64 kernel_size: 3 padding: SAME activation: RELU } }
  layers { max_pooling2d { } }
  layers { flatten { } }
  layers { dense { units: 10 activation: SOFTMAX } }
}
data { path: "%(data)s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { sgd { } learning_rate: 0.01 }
batch_size: %(batch)d
epochs: %(epochs)d
replicas: 1
"""
RESNET = """
name: "resnet50"
model { ready_made { name: "resnet50" input_shape: [%(side)d, %(side)d, 3] } }
data { path: "%(data)s" cache_mib: 4096 }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { sgd { momentum: 0.9 } learning_rate: 0.01 }
batch_size: %(batch)d
epochs: %(epochs)d
steps_per_epoch: %(steps)d
replicas: 1
compute_dtype: %(compute)s
allow_tf32: %(tf32)s
"""


def sanitizer_reports(text):
    """What compute-sanitizer found: the device part of the stack, without the host's."""
    lines = [line for line in text.splitlines() if line.startswith("=========") and "Host Frame" not in line]
    reports = "\n".join(lines).split("\n========= \n")
    return [
        r
        for r in reports
        if re.search(r"========= +(Invalid|Error|Warning|Program hit|Misaligned|Leaked|Race reported|Uninitialized)", r)
    ]


def sanitizer():
    """compute-sanitizer memcheck and racecheck on one step of a small CNN"""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if DRY or not os.path.exists(tool):
        raise Skip("a dry run" if DRY else "no compute-sanitizer")
    result = []
    for kind in ("memcheck", "racecheck"):
        text, code = output_of(
            [tool, "--tool", kind, "--error-exitcode", "9", program("gpu_backend"), "--gtest_filter=Sanitized/*"], 600
        )
        if code is None:
            raise OutOfTime(text.count("[       OK ]"))
        reports = sanitizer_reports(text)
        # A race inside a library's kernel is the library's fault; a bad access may be caused by a pointer from Cairn.
        ours = reports if kind == "memcheck" else [r for r in reports if "cairn::" in r]
        if code not in (0, 9) or "[  FAILED  ]" in text or ours or (code == 9 and not reports):
            print("\n".join(ours)[:6000] or text[-6000:])
            raise TestFailure(f"{kind}: exit {code}: {last_line(ours[0] if ours else text)}")
        result.append(
            f"{kind}: no error" + (f" of ours, {len(reports)} reports of NVIDIA's kernels" if reports else "")
        )
    return "; ".join(result)


def write_idx(directory, examples, side, classes):
    """Random pictures [examples, side, side, 3] as IDX files."""
    for split, count in (("train", examples), ("t10k", 16)):
        with open(os.path.join(directory, f"{split}-images-idx4-ubyte"), "wb") as f:
            f.write(struct.pack(">BBBBIIII", 0, 0, 8, 4, count, side, side, 3))
            for _ in range(count):
                f.write(os.urandom(side * side * 3))
        with open(os.path.join(directory, f"{split}-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">BBBBI", 0, 0, 8, 1, count))
            f.write(bytes(i % min(classes, 256) for i in range(count)))


class BusyShare:
    """How busy the GPU is according to nvidia-smi: the share of recent time during which a kernel ran."""

    def __enter__(self):
        self.smi = None
        if shutil.which("nvidia-smi") is not None:
            argv = [
                "nvidia-smi",
                "--id=0",
                "--query-gpu=utilization.gpu",
                "--format=csv,noheader,nounits",
                "--loop-ms=500",
            ]
            self.smi = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, *_):
        self.samples = []
        if self.smi is not None:
            self.smi.terminate()
            self.samples = [float(line) for line in self.smi.communicate()[0].splitlines() if line.strip().isdigit()]

    def median(self):
        """Ignores the start: everything before the first kernel, and a third of the rest."""
        busy = self.samples[next((i for i, share in enumerate(self.samples) if share > 0), 0) :]
        steady = busy[len(busy) // 3 :]
        return statistics.median(steady) if steady else float("nan")


def write_job(directory, text):
    path = os.path.join(directory, "job.textproto")
    with open(path, "w") as f:
        f.write(text)
    return path


def job_rate(text, timeout=1800):
    """images/s of the epochs after the first, and how busy the GPU was."""
    with Cluster(ps=1, workers=1, slots=1, worker_flags=GPU) as c:
        with BusyShare() as busy:
            status = c.wait(c.submit(write_job(c.dir, text)), DEADLINE.within(timeout))
        epochs = status["epochs"][1:]
        return statistics.median(float(e["images_per_second"]) for e in epochs), busy.median()


def peer_rate(*arguments):
    """Runs PyTorch with its bundled libraries, not those that run.sh found for Cairn."""
    environment = {
        "LD_LIBRARY_PATH": os.environ.get("CAIRN_LD_LIBRARY_PATH_BEFORE", os.environ.get("LD_LIBRARY_PATH", ""))
    }
    text, code = output_of(
        [sys.executable, os.path.join(HERE, "torch_peer.py"), *map(str, arguments)], 600, environment
    )
    if code == 77:
        raise Skip(last_line(text))
    if code != 0:
        print(text[-4000:])
        raise Skip(f"failed: {'no time left' if code is None else last_line(text)}")  # Cairn's own result is kept
    return json.loads(text.strip().splitlines()[-1])["images_per_second"]


def alone(*arguments):
    return json.loads(run([program("gpu_bench"), *map(str, arguments)]).strip().splitlines()[-1])["images_per_second"]


def beside_peer(ours, *peer):
    try:
        theirs = peer_rate(*peer)
        return f"PyTorch {theirs:.0f}, ratio {ours / theirs:.2f}"
    except Skip as why:
        return f"PyTorch: {why}"


def resnet(compute, tf32, name):
    size = (
        {"batch": 2, "side": 32, "epochs": 2, "steps": 1}
        if DRY
        else {"batch": 256, "side": 224, "epochs": 4, "steps": 30}
    )
    with folder() as data:
        write_idx(data, 4 * size["batch"], size["side"], 1000)
        ours, busy = job_rate(RESNET % {"data": data, "compute": compute, "tf32": tf32, **size})
    text = (
        f"{ours:.4g} images/s, {beside_peer(ours, 'resnet50', size['batch'], name, size['steps'])}; busy {busy:.0f} %"
    )
    if DRY:
        return text
    return f"{text}, waits {100 * max(0, 1 - ours / alone('resnet50', size['batch'], name)):.0f} % of a step"


def resnet50_bfloat16():
    """a job of ResNet-50, 224x224, batch 256, bfloat16, 1 ps, compared with PyTorch; aim 1.2, waits 5 %"""
    return resnet("BFLOAT16", "false", "bfloat16")


def resnet50_tf32():
    """the same in tf32"""
    return resnet("FLOAT32", "true", "tf32")


def resnet50_float32():
    """the same in strict float32"""
    return resnet("FLOAT32", "false", "float32")


def small_cnn():
    """the small CNN, batch 64, compared with PyTorch with a CUDA graph"""
    with folder() as d:
        data = make_glyphs(d, 128 if DRY else 64000, 100)
        ours, busy = job_rate(CNN % {"data": data, "batch": 64, "epochs": 4})
    return f"{ours / 64:.4g} steps/s, {beside_peer(ours, 'cnn', 64, 'float32', 500)}; busy {busy:.0f} %"


def roofline():
    """bytes/s of kernels compared with a copy within the device, FLOP/s of convolutions compared with a large
    product"""
    out = run([program("gpu_roofline")])
    print(out)
    shares = [int(line.split("%")[0].split()[-1]) for line in out.splitlines() if "% of a copy" in line]
    ceilings = [" ".join(line.split()[-2:]) for line in out.splitlines() if line.startswith(("copy", "product"))]
    return (
        f"ceilings {', '.join(ceilings)}; kernels {min(shares)} to {max(shares)} % of a copy; by class above the table"
    )
