"""What the host adds to a step of ResNet-50 (25.6 M parameters, SGD with momentum, wire bfloat16) with one worker and
one ps on one host.

    host_share_bench.py [--ms 85 0] [--kib 4096] [--steps 80] [--rounds 2] [MODE]...
        default: SNAPSHOT and LOGGED, device of 85 ms and of 0

The worker's device is a simulated one (paced_plugin.cc). With --ms a step takes that long, and the backward pass
announces its gradients when a real device would, according to the layers' FLOP. 0 measures the time of push, update,
log and pull alone, with nothing hidden. Printed for each mode: the time of a step; how much longer that is than the
device's time (aim: <= 5 %), how much of it passes between the last gradient and the next step, and how much until the
first layer's values are available; and the CPU time of worker and ps per step, summed over all threads. With a device
of D ms, two cores have 2 D of CPU time per step, sixteen have 16 D. Modes alternate; results are medians over the
rounds.
"""

import argparse
import os
import re
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import BIN, Cluster, check  # noqa: E402
from jobs import make_glyphs  # noqa: E402

BATCH = 4
JOB = """
name: "host_share"
model { ready_made { name: "resnet50" input_shape: [32, 32, 3] classes: 1000 } }
data { path: "%s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { sgd { momentum: 0.9 } learning_rate: 0.001 }
wire_dtype: BFLOAT16
compute_dtype: BFLOAT16
batch_size: 4
epochs: 1
replicas: 1
steps_per_epoch: %d
"""
TICKS = os.sysconf("SC_CLK_TCK")
LINE = re.compile(r"paced: step ([\d.]+) ms, device ([\d.]+), between steps ([\d.]+), values brought in ([\d.]+)")


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def measure(mode, ms, partition_kib, steps):
    os.environ["CAIRN_PACED_MS"] = str(ms)
    with Cluster(ps=1, workers=1, worker_flags=("--device=gpu",)) as c:
        path = os.path.join(c.dir, "job.textproto")
        with open(path, "w") as f:
            f.write(JOB % (make_glyphs(c.dir, BATCH * 4, 4, kind="colour-glyphs"), steps))
        before = {name: cpu_seconds(c.processes[name].pid) for name in ("worker-0", "ps-0")}
        c.wait(c.submit(path, {"durability": mode}), timeout=300)
        cpu = {name: 1000 * (cpu_seconds(c.processes[name].pid) - was) / steps for name, was in before.items()}
        lines = [[float(x) for x in line] for line in LINE.findall(c.log("worker-0"))]
    check(len(lines) > 1, "no figures in the worker's log; --steps is too small")
    step, _, between, values = (statistics.median(column) for column in zip(*lines[1:]))
    return step, between, values, cpu["worker-0"], cpu["ps-0"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="*", default=["SNAPSHOT", "LOGGED"])
    parser.add_argument("--ms", type=float, nargs="*", default=[85, 0])
    parser.add_argument("--kib", type=int, nargs="*", default=[4096], help="of a partition")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    folder = os.environ.get("CAIRN_PACED_PLUGIN", os.path.join(BIN, "../tests/paced_gpu"))
    driver = os.path.join(BIN, "../tests/host_gpu")  # a stub of libcuda.so.1
    os.environ["CAIRN_PLUGINS"] = os.path.abspath(folder)
    os.environ["LD_LIBRARY_PATH"] = os.path.abspath(driver)
    samples = {}
    for _ in range(options.rounds):
        for ms in options.ms:
            for kib in options.kib:
                for mode in options.modes:
                    samples.setdefault((mode, ms, kib), []).append(measure(mode, ms, kib, options.steps))
    for (mode, ms, kib), rounds in samples.items():
        step, between, values, worker, ps = (statistics.median(column) for column in zip(*rounds))
        waits = f"{100 * (step - ms) / step:5.1f} % of it waits" if ms > 0 else ""
        print(
            f"{mode:10s} {kib:4d} KiB, device {ms:5.1f} ms: step {step:6.1f} ms {waits}   "
            f"between steps {between:5.1f}, values brought in {values:5.1f}   "
            f"CPU worker {worker:5.1f}, ps {ps:5.1f}   rounds: " + " ".join(f"{r[0]:.1f}" for r in rounds),
            flush=True,
        )


if __name__ == "__main__":
    main()
