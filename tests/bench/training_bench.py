"""What training costs in addition to the computation, as ratios in one run on one machine.

    training_bench.py [--quick] [cnn|workers|memory|torch]...        default: all

  cnn      small CNN, one worker with one thread, against a bare loop of the same oneDNN primitives (bare_onednn)
           aim: >= 0.8
  workers  small CNN, two workers with one thread against one
           aim: >= 1.7
  memory   resident memory of a ps above an idle one against values + slots + one gradient per worker
           aim: <= 1.2
  torch    small CNN and MLP 784-128-10 against PyTorch, one process and two (vs_torch/train.py; skipped without
           python3-torch)
           aims: CNN >= 2.0, 2.0; MLP >= 1.0, 1.5

Both sides of a ratio run alternately, `rounds` times; the result is the ratio of the medians.
"""

import os
import statistics
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
MLP = """
  layers { flatten { } }
  layers { dense { units: 128 activation: RELU } }
  layers { dense { units: 10 activation: SOFTMAX } }"""
LARGE_MLP = """
  layers { flatten { } }
  layers { dense { units: 4096 activation: RELU } }
  layers { dense { units: 2048 activation: RELU } }
  layers { dense { units: 10 activation: SOFTMAX } }"""
JOB = """
name: "bench"
model {
  layers { input { shape: [28, 28, 1] } }
  layers { rescaling { scale: 0.003921569 } }
%s
}
data { path: "%s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { %s }
batch_size: %d
epochs: %d
replicas: %d
"""
BATCH = 64  # per replica, and per PyTorch process


def images_per_second(model, workers, examples, epochs):
    """Steady throughput: does not count the first epoch, which compiles and fills caches."""
    with Cluster(ps=1, workers=workers) as c:
        data = make_glyphs(c.dir, examples, 100)
        path = os.path.join(c.dir, "job.textproto")
        with open(path, "w") as f:
            f.write(JOB % (model, data, "sgd { }", BATCH * workers, epochs, workers))
        status = c.wait(c.submit(path))
        seconds = sum(e["seconds"] for e in status["epochs"][1:])
        memory = {n["name"]: int(n.get("memory_bytes", 0)) for n in c.nodes()}
        return (epochs - 1) * examples / seconds, memory


def bare():
    return float(
        subprocess.run(
            [os.path.join(BIN, "bare_onednn"), "--batch", str(BATCH)], check=True, capture_output=True, text=True
        ).stdout.split()[0]
    )


def torch(kind, processes, steps):
    done = subprocess.run(
        [PYTHON, os.path.join(HERE, "vs_torch/train.py"), kind, str(processes), str(BATCH), str(steps)],
        capture_output=True,
        text=True,
    )
    return float(done.stdout.split()[-1]) if done.returncode == 0 else None


def median_of_alternating(rounds, *functions):
    samples = [[] for _ in functions]
    for _ in range(rounds):
        for values, function in zip(samples, functions):
            values.append(function())
    return [statistics.median(v) for v in samples]


def row(what, value, unit, reference, value_reference, aim):
    print(
        f"{what:44s} {value:12,.0f} {unit:9s} {reference:24s} {value_reference:12,.0f}   "
        f"ratio {value / value_reference:5.2f}   aim {aim}",
        flush=True,
    )


def resident(process, field):
    with open(f"/proc/{process.pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field))


def ps_memory():
    workers, parameters = 2, 784 * 4096 + 4096 + 4096 * 2048 + 2048 + 2048 * 10 + 10
    for optimizer, slots in (("sgd { }", 0), ("sgd { momentum: 0.9 }", 1), ("adam { }", 2)):
        with Cluster(ps=1, workers=workers) as c:
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
    wanted = [a for a in sys.argv[1:] if not a.startswith("-")] or ["cnn", "workers", "memory", "torch"]
    rounds = 1 if "--quick" in sys.argv else 3
    cnn_1 = lambda: images_per_second(CNN, 1, 19200, 3)[0]  # noqa: E731
    cnn_2 = lambda: images_per_second(CNN, 2, 38400, 3)[0]  # noqa: E731
    mlp_1 = lambda: images_per_second(MLP, 1, 60000, 6)[0]  # noqa: E731
    mlp_2 = lambda: images_per_second(MLP, 2, 60000, 6)[0]  # noqa: E731
    if "cnn" in wanted:
        cairn, loop = median_of_alternating(rounds, cnn_1, bare)
        row("small CNN, 1 worker", cairn, "images/s", "bare oneDNN loop", loop, ">= 0.8")
    if "workers" in wanted:
        two, one = median_of_alternating(rounds, cnn_2, cnn_1)
        row("small CNN, 2 workers", two, "images/s", "1 worker", one, ">= 1.7")
    if "memory" in wanted:
        ps_memory()
    if "torch" in wanted:
        if torch("mlp", 1, 20) is None:
            print("torch: SKIPPED: python3-torch is not installed")
            return
        for name, kind, processes, ours, steps, aim in (
            ("small CNN, 1 worker", "cnn", 1, cnn_1, 300, ">= 2.0"),
            ("small CNN, 2 workers", "cnn", 2, cnn_2, 300, ">= 2.0"),
            ("MLP, 1 worker", "mlp", 1, mlp_1, 5000, ">= 1.0"),
            ("MLP, 2 workers", "mlp", 2, mlp_2, 3000, ">= 1.5"),
        ):
            cairn, peer = median_of_alternating(rounds, ours, lambda: torch(kind, processes, steps))
            row(name, cairn, "images/s", f"PyTorch, {processes} process", peer, aim)


if __name__ == "__main__":
    main()
