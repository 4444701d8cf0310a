"""How long people wait for a start: of a cluster, and of a job.

    startup_bench.py [--rounds N] [--data FOLDER]      default: 5 rounds; FOLDER: Fashion-MNIST, for a second row

  cluster       from the start of `cairn up` (one ps, one worker) to "cluster ready"
                aim: <= 0.3 s
  first, later  from the start of `cairn submit` to the first step that the ps has applied: of a cluster's first job,
                and of its second and third
                aim: <= 0.15 s
  whole         from the start of `cairn submit --watch` to its end: a later job of 30 steps

Each round is a new cluster. The first step is seen by asking the ps for the values without a pause.
"""

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))
sys.path.insert(0, os.path.join(HERE, "../chaos"))

import wire  # noqa: E402
from cluster import BIN, check  # noqa: E402
from jobs import make_glyphs  # noqa: E402

GIVEN_UP_AFTER = 60
JOB = """
name: "start"
model {
  layers { input { shape: [28, 28, 1] } }
  layers { rescaling { scale: 0.003921569 } }
  layers { flatten { } }
  layers { dense { units: 128 activation: RELU } }
  layers { dense { units: 10 activation: SOFTMAX } }
}
data { path: "%s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { sgd { } }
batch_size: 64
steps_per_epoch: 30
epochs: 1
"""


class Up:
    """A cluster by `cairn up`."""

    def __init__(self, directory):
        begin = time.monotonic()
        flags = ["--ps", "1", "--workers", "1", "--port", "0", "--no-http", "--dir", directory]
        self.process = subprocess.Popen([f"{BIN}/cairn", "up", *flags], stdout=subprocess.PIPE, text=True)
        ready = next((line for line in self.process.stdout if "cluster ready" in line), None)
        self.seconds = time.monotonic() - begin
        check(ready is not None, "cairn up ended")
        self.address = re.search(r"coordinator ([^\s,]+)", ready).group(1)
        with wire.open_channel(self.address) as channel:
            list_nodes = channel.unary_unary(
                "/cairn.v1.JobService/ListNodes",
                request_serializer=wire.cluster_pb2.ListNodesRequest.SerializeToString,
                response_deserializer=wire.cluster_pb2.ListNodesResponse.FromString,
            )
            nodes = list_nodes(wire.cluster_pb2.ListNodesRequest(), timeout=10).nodes
        self.ps = next(node.address for node in nodes if node.name.startswith("ps"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGINT)
        self.process.wait()
        self.process.stdout.close()


class FirstStep(threading.Thread):
    """When a job's first update is seen at its ps."""

    def __init__(self, address, job):
        super().__init__(daemon=True)
        self.address, self.job = address, job
        self.seen = None
        self.start()

    def run(self):
        end = time.monotonic() + GIVEN_UP_AFTER
        with wire.open_channel(self.address) as channel:
            while self.seen is None and time.monotonic() < end:
                try:
                    if wire.pull(channel, self.job, 0)[0] > 0:
                        self.seen = time.monotonic()
                except (grpc.RpcError, RuntimeError):
                    pass  # it is not there yet


def start_of(up, job, path):
    """Seconds to its first step, and to its end."""
    step = FirstStep(up.ps, job)
    begin = time.monotonic()
    command = [f"{BIN}/cairn", "--coordinator", up.address, "submit", path, "--watch"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic()
    step.join()
    check(step.seen is not None, f"job {job}: no step was seen")
    return step.seen - begin, end - begin


def row(what, values, aim):
    print(
        f"{what:20s} {statistics.median(values):6.3f} s   aim {aim}   ({' '.join(f'{v:.3f}' for v in values)})",
        flush=True,
    )


def measure(name, data, directory, rounds):
    path = os.path.join(directory, f"{name}.textproto")
    with open(path, "w") as f:
        f.write(JOB % data)
    cluster, first, later, whole = [], [], [], []
    for round_ in range(rounds):
        with Up(os.path.join(directory, f"{name}-{round_}")) as up:
            cluster.append(up.seconds)
            first.append(start_of(up, 1, path)[0])
            for job in (2, 3):
                step, end = start_of(up, job, path)
                later.append(step)
                whole.append(end)
    row(f"{name}, cluster", cluster, "<= 0.3")
    row(f"{name}, first", first, "<= 0.15")
    row(f"{name}, later", later, "<= 0.15")
    row(f"{name}, whole", whole, "none")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", default="")
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="cairn-start-")
    try:
        measure("glyphs", make_glyphs(directory), directory, args.rounds)
        if args.data:
            measure("data", os.path.abspath(args.data), directory, args.rounds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
