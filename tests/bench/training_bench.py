"""What training costs in addition to the computation, as ratios in one run on one machine.

    training_bench.py [--quick] [cnn|workers|memory|torch|resnet18]...        default: all

  cnn      small CNN, one worker with one thread, against a bare loop of the same oneDNN primitives (bare_onednn)
           aim: >= 0.8
  workers  small CNN, two workers with one thread against one
           aim: >= 1.7
  memory   resident memory of a ps above an idle one against values + slots + one gradient per worker
           aim: <= 1.2
  torch    small CNN, lenet (with a dense layer of 128) and MLP 784-128-10 against PyTorch, one process and two
           (vs_torch/train.py; skipped without python3-torch); and two workers against one
           aims: CNN and lenet >= 2.0, 1.85; MLP >= 1.5, 1.5, two workers 1.6 of one
  resnet18 ResNet-18 on pictures of 224 x 224, batch 8, against the faster layout of PyTorch, one process and two; and
           two workers against one (skipped without python3-torchvision)
           aims: >= 1.25; two workers >= 1.9 of one

Both sides of a ratio run alternately, `rounds` times; the result is the ratio of the medians.
"""

import math
import os
import statistics
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import BIN, Cluster  # noqa: E402
from jobs import make_glyphs  # noqa: E402

PYTHON = "/usr/bin/python3"  # the interpreter for which Debian's python3-torch is installed
CNN = """
  layers { conv2d { filters: 32 kernel_size: 3 padding: SAME activation: RELU } }
  layers { max_pooling2d { } }
  layers { conv2d { filters: 64 kernel_size: 3 padding: SAME activation: RELU } }
  layers { max_pooling2d { } }
  layers { flatten { } }
  layers { dense { units: 10 activation: SOFTMAX } }"""
LENET = """
  layers { conv2d { filters: 32 kernel_size: 3 padding: SAME activation: RELU } }
  layers { max_pooling2d { } }
  layers { conv2d { filters: 64 kernel_size: 3 padding: SAME activation: RELU } }
  layers { max_pooling2d { } }
  layers { flatten { } }
  layers { dense { units: 128 activation: RELU } }
  layers { dense { units: 10 activation: SOFTMAX } }"""
MLP = """
  layers { flatten { } }
  layers { dense { units: 128 activation: RELU } }
  layers { dense { units: 10 activation: SOFTMAX } }"""
LARGE_MLP = """
  layers { flatten { } }
  layers { dense { units: 4096 activation: RELU } }
  layers { dense { units: 2048 activation: RELU } }
  layers { dense { units: 10 activation: SOFTMAX } }"""
NAME = """
name: "bench"
model {
"""
SETTINGS = """
}
data { path: "%s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { %s }
batch_size: %d
epochs: %d
replicas: %d
"""
INPUT = """
  layers { input { shape: [28, 28, 1] } }
  layers { rescaling { scale: 0.003921569 } }
%s"""
JOB = NAME + INPUT + SETTINGS
RESNET18_JOB = NAME + 'ready_made { name: "resnet18" input_shape: [224, 224, 3] classes: 10 }' + SETTINGS
BATCH = 64  # per replica, and per PyTorch process


def images_per_second(model, workers, examples, epochs):
    """Steady throughput: does not count the first epoch, which compiles and fills caches."""
    with Cluster(ps=1, workers=workers) as c:
        data = make_glyphs(c.dir, examples, 100)
        path = os.path.join(c.dir, "job.textproto")
        with open(path, "w") as f:
            f.write(JOB % (model, data, "sgd { }", BATCH * workers, epochs, workers))
        return rate_after_the_first_epoch(c.wait(c.submit(path)), examples)


def rate_after_the_first_epoch(status, examples):
    epochs = status["epochs"][1:]
    return len(epochs) * examples / sum(e["seconds"] for e in epochs)


def pictures_per_second(workers, batch=8, steps=12, epochs=3):
    """ResNet-18: as images_per_second. Random pictures, as vs_torch/train.py has them."""
    examples = workers * batch * steps
    with Cluster(ps=1, workers=workers) as c:
        data = os.path.join(c.dir, "pictures")
        os.mkdir(data)
        for split, count in (("train", examples), ("t10k", batch)):
            write_idx(os.path.join(data, f"{split}-images-idx4-ubyte"), (count, 224, 224, 3), os.urandom)
            write_idx(
                os.path.join(data, f"{split}-labels-idx1-ubyte"), (count,), lambda n: bytes(i % 10 for i in range(n))
            )
        path = os.path.join(c.dir, "job.textproto")
        with open(path, "w") as f:
            f.write(RESNET18_JOB % (data, "sgd { }", batch * workers, epochs, workers))
        return rate_after_the_first_epoch(c.wait(c.submit(path), timeout=1200), examples)


def write_idx(path, shape, content):
    with open(path, "wb") as f:
        f.write(struct.pack(f">BBBB{len(shape)}I", 0, 0, 8, len(shape), *shape))
        f.write(content(math.prod(shape)))


def bare():
    return float(
        subprocess.run(
            [os.path.join(BIN, "bare_onednn"), "--batch", str(BATCH)], check=True, capture_output=True, text=True
        ).stdout.split()[0]
    )


def torch(kind, processes, steps, batch=BATCH):
    """None: it has no PyTorch for this model. Another failure ends the benchmark."""
    done = subprocess.run(
        [PYTHON, os.path.join(HERE, "vs_torch/train.py"), kind, str(processes), str(batch), str(steps)],
        capture_output=True,
        text=True,
    )
    if "ModuleNotFoundError" in done.stderr:
        return None
    if done.returncode != 0:
        sys.exit(f"PyTorch, {kind}, {processes} processes: {done.stderr}")
    return float(done.stdout.split()[-1])


def median_of_alternating(rounds, *functions):
    samples = [[] for _ in functions]
    for _ in range(rounds):
        for values, function in zip(samples, functions):
            values.append(function())
    return [statistics.median(v) for v in samples]


def row(what, value, unit, reference, value_reference, aim):
    print(
        f"{what:44s} {value:12,.1f} {unit:9s} {reference:24s} {value_reference:12,.1f}   "
        f"ratio {value / value_reference:5.2f}   aim {aim}",
        flush=True,
    )


def resident(process, field):
    with open(f"/proc/{process.pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field))


def ps_memory():
    workers, parameters = 2, 784 * 4096 + 4096 + 4096 * 2048 + 2048 + 2048 * 10 + 10
    for optimizer, slots in (("sgd { }", 0), ("sgd { momentum: 0.9 }", 1), ("adam { }", 2)):
        # The gradients that a ps reads in the workers' memory would be counted as its own.
        with Cluster(ps=1, workers=workers, worker_flags=["--no-shared-memory"]) as c:
            data = make_glyphs(c.dir, 1280, 100)
            path = os.path.join(c.dir, "job.textproto")
            with open(path, "w") as f:
                f.write(JOB % (LARGE_MLP, data, optimizer, 64, 2, workers))
            idle = resident(c.processes["ps-0"], "VmRSS")
            c.wait(c.submit(path))
            peak = resident(c.processes["ps-0"], "VmHWM")
            worker = resident(c.processes["worker-0"], "VmHWM")
        row(
            f"ps memory above idle, {optimizer}",
            (peak - idle) / 2**20,
            "MiB",
            "values + slots + gradients",
            parameters * 4 * (1 + slots + workers) / 2**20,
            "<= 1.2",
        )
        print(f"  worker memory, peak: {worker / 2**20:.0f} MiB; the variables are {parameters * 4 / 2**20:.0f} MiB")


def main():
    wanted = [a for a in sys.argv[1:] if not a.startswith("-")] or ["cnn", "workers", "memory", "torch", "resnet18"]
    rounds = 1 if "--quick" in sys.argv else 3
    cnn_1 = lambda: images_per_second(CNN, 1, 19200, 3)  # noqa: E731
    cnn_2 = lambda: images_per_second(CNN, 2, 38400, 3)  # noqa: E731
    lenet_1 = lambda: images_per_second(LENET, 1, 19200, 3)  # noqa: E731
    lenet_2 = lambda: images_per_second(LENET, 2, 38400, 3)  # noqa: E731
    mlp_1 = lambda: images_per_second(MLP, 1, 60000, 6)  # noqa: E731
    mlp_2 = lambda: images_per_second(MLP, 2, 60000, 6)  # noqa: E731
    if "cnn" in wanted:
        cairn, loop = median_of_alternating(rounds, cnn_1, bare)
        row("small CNN, 1 worker", cairn, "images/s", "bare oneDNN loop", loop, ">= 0.8")
    if "workers" in wanted:
        two, one = median_of_alternating(rounds, cnn_2, cnn_1)
        row("small CNN, 2 workers", two, "images/s", "1 worker", one, ">= 1.7")
    if "memory" in wanted:
        ps_memory()
    if "torch" in wanted:
        beside_torch(
            rounds,
            (
                ("small CNN", "cnn", (cnn_1, cnn_2), 300, (">= 2.0", ">= 1.85", "")),
                ("lenet", "lenet", (lenet_1, lenet_2), 200, (">= 2.0", ">= 1.85", "")),
                ("MLP", "mlp", (mlp_1, mlp_2), 3000, (">= 1.5", ">= 1.5", ">= 1.6")),
            ),
        )
    if "resnet18" in wanted:
        pictures = (lambda: pictures_per_second(1), lambda: pictures_per_second(2))
        beside_torch(rounds, (("ResNet-18", "resnet18", pictures, 12, (">= 1.25", "", ">= 1.9")),))


def beside_torch(rounds, cases):
    """cases: (name, kind, ours by workers, steps of PyTorch, aims: beside 1 process, 2; two workers to one)."""
    for name, kind, ours, steps, aims in cases:
        batch = 8 if kind == "resnet18" else BATCH
        kinds = [kind, "resnet18_channels_last"] if kind == "resnet18" else [kind]
        if torch(kind, 1, 1, batch) is None:
            print(f"{name}: SKIPPED: python3-torch or python3-torchvision is not installed")
            continue
        peers = [lambda n=n: max(torch(k, n, steps, batch) for k in kinds) for n in (1, 2)]
        one, one_peer, two, two_peer = median_of_alternating(rounds, ours[0], peers[0], ours[1], peers[1])
        row(f"{name}, 1 worker", one, "images/s", "PyTorch, 1 process", one_peer, aims[0])
        row(f"{name}, 2 workers", two, "images/s", "PyTorch, 2 processes", two_peer, aims[1])
        row(f"{name}, 2 workers", two, "images/s", "1 worker", one, aims[2])


if __name__ == "__main__":
    main()
