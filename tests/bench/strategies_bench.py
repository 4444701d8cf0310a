"""Residual networks in every strategy: whether they train, their digests, their speed and memory.

    strategies_bench.py [--steps 50] [--batch 32] [--rate 0.005] [--strategy TEXT] [beans] [cifar] [small]
        default: beans and cifar

  beans   tutorial_resnet (TensorFlow's tutorials) on the photographs of beans at 224x224; needs the data set
          (CAIRN_DATA)
  cifar   resnet18 on generated pictures in CIFAR-10's format (`cairn data make colour-glyphs`)
  small   two residual blocks on the same pictures, which is what ctest runs

Each strategy gets the same job: R = 2, --steps steps of plain gradient descent. Checked: the mean loss of the last
fifth of the steps is below that of the first fifth, and every synchronous strategy ends with the same digest. Printed:
both losses, images per second over the whole job, and the peak resident memory of a worker.
"""

import argparse
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import BIN, Cluster, check, data_dir  # noqa: E402

STRATEGIES = (  # name, workers, settings, whether the digest must equal that of the others
    ("mirrored", 1, {"strategy": "MIRRORED"}, True),
    ("multi_worker_mirrored", 2, {"strategy": "MULTI_WORKER_MIRRORED"}, True),
    ("central_storage", 2, {"strategy": "CENTRAL_STORAGE"}, True),
    ("parameter_server, bound 0", 2, {"strategy": "PARAMETER_SERVER", "staleness_bound": 0}, True),
    ("parameter_server, bound 2", 2, {"strategy": "PARAMETER_SERVER", "staleness_bound": 2}, False),
    ("parameter_server", 2, {"strategy": "PARAMETER_SERVER"}, False),
)
JOB = """
name: "%(model)s"
model { %(layers)s }
data { path: "%(data)s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
metrics { kind: ACCURACY }
optimizer { sgd { } learning_rate: %(rate)s }
batch_size: %(batch)d
steps_per_epoch: %(part)d
epochs: %(parts)d
replicas: 2
seed: 3
validation_freq: 1000
"""

READY_MADE = 'ready_made { name: "%s" input_shape: %s classes: %d }'
SMALL = """
  layers { input { shape: [32, 32, 3] } }
  layers { rescaling { scale: 0.003921569 } }
  layers { conv2d { filters: 16 kernel_size: 3 strides: 2 padding: SAME use_bias: false } }
  layers { batch_normalization { } }
  layers { name: "one" activation { activation: RELU } }
  layers { conv2d { filters: 16 kernel_size: 3 padding: SAME use_bias: false } }
  layers { name: "one_bn" batch_normalization { } }
  layers { inputs: ["one_bn", "one"] add { } }
  layers { name: "two" activation { activation: RELU } }
  layers { conv2d { filters: 32 kernel_size: 3 strides: 2 padding: SAME use_bias: false } }
  layers { name: "two_bn" batch_normalization { } }
  layers { name: "short" inputs: "two" conv2d { filters: 32 kernel_size: 1 strides: 2 } }
  layers { inputs: ["two_bn", "short"] add { } }
  layers { activation { activation: RELU } }
  layers { global_average_pooling2d { } }
  layers { dense { units: 10 activation: SOFTMAX } }
"""


class PeakMemory:
    """The largest VmHWM of the workers, in MiB."""

    def __init__(self, c):
        self.paths = [f"/proc/{p.pid}/status" for name, p in c.processes.items() if name.startswith("worker")]

    def mib(self):
        peaks = []
        for path in self.paths:
            with open(path) as f:
                peaks += [int(line.split()[1]) / 1024 for line in f if line.startswith("VmHWM:")]
        return max(peaks)


def train(model, data, settings, workers, args):
    with Cluster(ps=2, workers=workers, slots=2 if workers == 1 else 1) as c:
        if data is None:
            data = os.path.join(c.dir, "colour-glyphs")
            subprocess.run(
                [
                    os.path.join(BIN, "cairn"),
                    "data",
                    "make",
                    "colour-glyphs",
                    data,
                    "--count",
                    "4000",
                    "--test-count",
                    "400",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
        path = os.path.join(c.dir, "job.textproto")
        with open(path, "w") as f:
            # Five epochs, so that the job reports its loss at the beginning and at the end.
            f.write(
                JOB
                % {**model, "rate": args.rate, "data": data, "batch": args.batch, "part": args.steps // 5, "parts": 5}
            )
        job = c.submit(path, settings)
        status = c.wait(job, timeout=3600)
        epochs = status["epochs"]
        losses = [e["train"]["loss"] for e in epochs]
        images = sum(int(e["train"]["examples"]) for e in epochs)
        return losses[0], losses[-1], images / sum(e["seconds"] for e in epochs), PeakMemory(c).mib(), status["digest"]


def run(title, model, data, args):
    print(f"{title}, batch {args.batch}, {args.steps} steps", flush=True)
    digests = {}
    for name, workers, settings, same in STRATEGIES:
        if args.strategy not in name:
            continue
        first, last, rate, mib, digest = train(model, data, settings, workers, args)
        print(
            f"  {name:27s} {workers} worker(s): loss {first:6.3f} -> {last:6.3f}, "
            f"{rate:6.1f} images/s, worker {mib:6.0f} MiB, {digest}",
            flush=True,
        )
        check(last < first, f"{name}: the loss did not fall")
        if same:
            digests[name] = digest
    check(len(set(digests.values())) <= 1, f"digests differ: {digests}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", choices=["beans", "cifar", "small", []], default=[])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=0.005, help="the learning rate")
    parser.add_argument("--strategy", default="", help="only those with this in their name")
    args = parser.parse_args()
    what = args.what or ["beans", "cifar"]
    if "beans" in what:
        check(data_dir() is not None, "no data sets (set CAIRN_DATA)")
        run(
            "tutorial_resnet on beans, 224x224",
            {"model": "tutorial_resnet", "layers": READY_MADE % ("tutorial_resnet", "[224, 224, 3]", 3)},
            os.path.join(data_dir(), "beans"),
            args,
        )
    if "cifar" in what:
        run(
            "resnet18 on colour-glyphs, 32x32",
            {"model": "resnet18", "layers": READY_MADE % ("resnet18", "[32, 32, 3]", 10)},
            None,
            args,
        )
    if "small" in what:
        run("two residual blocks on colour-glyphs, 32x32", {"model": "small", "layers": SMALL}, None, args)


if __name__ == "__main__":
    main()
