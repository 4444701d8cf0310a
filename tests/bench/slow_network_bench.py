"""What a step costs on a slow network, by the types in which gradients and values travel.

    slow_network_bench.py [--gbit 1 10] [--rounds 3] [--steps 30]

One ps and one worker, MLP 784-4096-2048-10 (11.6 M parameters, SGD), batch 64, one thread. Everything runs in a network
namespace of its own, on whose loopback device what is sent to the ps and what is sent by it may not exceed the rate
(tc, htb): a full-duplex link. Needs root, and ip, tc and unshare (Debian: iproute2, util-linux).

Printed for each rate: what one TCP stream gets; then for each pair of types the bytes of a step, its median time over
the rounds, and the ratio to FLOAT32. Types alternate within a round. The first two thirds of a job warm up.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import Cluster, check  # noqa: E402
from jobs import make_glyphs  # noqa: E402
from proxy import listening_port  # noqa: E402
from training_bench import JOB, LARGE_MLP  # noqa: E402

NUMBERS = 784 * 4096 + 4096 + 4096 * 2048 + 2048 + 2048 * 10 + 10
BATCH = 64
BYTES = {"FLOAT32": 4, "BFLOAT16": 2, "INT8": 17 / 16, "INT4": 9 / 16, "INT2": 5 / 16}
PAIRS = (
    ("FLOAT32", "FLOAT32"),
    ("BFLOAT16", "BFLOAT16"),
    ("INT8", "BFLOAT16"),
    ("INT8", "INT8"),
    ("INT4", "INT8"),
    ("INT2", "INT8"),
)
INSIDE = "CAIRN_BENCH_NAMESPACE"  # set once this process is in its namespace


def tc(what, verb, *words):
    subprocess.run(["tc", what, verb, "dev", "lo", *words], check=True)


def limit(port, gbit):
    """To the port and from it: each at most `gbit`."""
    subprocess.run(["tc", "qdisc", "del", "dev", "lo", "root"], capture_output=True)
    tc("qdisc", "add", "root", "handle", "1:", "htb", "default", "3")
    for flow, rate in (("1:1", gbit), ("1:2", gbit), ("1:3", 100)):
        speed = ("rate", f"{rate}gbit", "burst", f"{gbit * 128}kb", "quantum", "65536")
        tc("class", "add", "parent", "1:", "classid", flow, "htb", *speed)
    for flow, direction in (("1:1", "dport"), ("1:2", "sport")):
        match = ("match", "ip", direction, str(port), "0xffff")
        tc("filter", "add", "parent", "1:", "protocol", "ip", "u32", *match, "flowid", flow)


def stream_gbit(gbit):
    """What one TCP stream gets."""
    size = int(gbit * 50e6)
    with socket.create_server(("127.0.0.1", 0)) as server:
        limit(server.getsockname()[1], gbit)
        with socket.create_connection(server.getsockname()) as sends, server.accept()[0] as receives:
            begin = time.monotonic()
            thread = threading.Thread(target=sends.sendall, args=(bytes(size),))
            thread.start()
            left = size
            while left > 0:
                left -= len(receives.recv(1 << 20))
            thread.join()
            return size * 8 / 1e9 / (time.monotonic() - begin)


def step_seconds(gbit, gradients, values, steps):
    with Cluster(ps=1, workers=0, ps_flags=("--no-shared-memory", "--unix-socket", "none")) as c:
        limit(listening_port(c.processes["ps-0"].pid), gbit)
        c.add_worker("worker-0")
        path = os.path.join(c.dir, "job.textproto")
        with open(path, "w") as f:
            f.write(JOB % (LARGE_MLP, make_glyphs(c.dir, steps * BATCH, 100), "sgd { }", BATCH, 3, 1))
        types = {"wire_dtype": gradients, "values_wire_dtype": values, "durability": "SNAPSHOT"}
        status = c.wait(c.submit(path, types), timeout=600)
        check(len(status["epochs"]) == 3, "the job has not ended")
        return status["epochs"][-1]["seconds"] / steps


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--gbit", type=int, nargs="+", default=[1, 10])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--steps", type=int, default=30, help="of an epoch, of which there are three")
    options = arguments.parse_args()
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, os.path.abspath(__file__), *sys.argv[1:]])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for gbit in options.gbit:
        print(f"{gbit} Gbit/s each way; one TCP stream gets {stream_gbit(gbit):.2f}", flush=True)
        taken = {pair: [] for pair in PAIRS}
        for _ in range(options.rounds):
            for pair in PAIRS:
                taken[pair].append(step_seconds(gbit, *pair, options.steps))
        medians = {pair: statistics.median(seconds) for pair, seconds in taken.items()}
        for (gradients, values), median in medians.items():
            sent = NUMBERS * (BYTES[gradients] + BYTES[values]) / 1e6
            ratio = medians[PAIRS[0]] / median
            print(
                f"  gradients {gradients:8s} values {values:8s} {sent:6.1f} MB a step {median * 1000:8.1f} ms "
                f"{ratio:6.2f} x FLOAT32",
                flush=True,
            )


if __name__ == "__main__":
    main()
