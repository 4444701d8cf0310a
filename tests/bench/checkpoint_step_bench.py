"""How a checkpoint affects the individual steps around it: the distribution of step times in one run, with a checkpoint
every EVERY steps.

    checkpoint_step_bench.py [--checkpoints N] [cnn|mlp]...        default: both, 20 checkpoints each

  cnn   the small CNN, two workers      mlp   about 20 M parameters (784-4096-4096-10), two workers
  aim: no step is delayed by more than 10 % or 5 ms

A client asks one partition, well in advance, for each of the coming versions, so that each answer arrives at the moment
of its update. A step's time is the time between two answers. The WINDOW steps from a checkpoint's own step on are those
that its cut, transfer and writing may delay. Each is compared with the median of nearby steps outside any checkpoint's
window, because the machine's speed drifts. How much those other steps differ from that median is the machine's noise,
which is printed too. The standard error of the mean says how reliable the result is. EVERY is odd: a ps writes its own
image once its log has reached four times the image's size, which is every eight steps here, and would coincide with
every second checkpoint.
"""

import argparse
import os
import queue
import statistics
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../integration"))
sys.path.insert(0, os.path.join(HERE, "../chaos"))

from cluster import Cluster, check  # noqa: E402
from jobs import make_glyphs  # noqa: E402
from training_bench import BATCH, CNN, JOB  # noqa: E402
from wire import Frame, exchange, open_channel, types_pb2  # noqa: E402

EVERY = 25  # in steps
WINDOW = 16  # steps that count as the checkpoint's
AHEAD = 24  # versions requested in advance
MODELS = {
    "cnn": CNN,
    "mlp": """
  layers { flatten { } }
  layers { dense { units: 4096 activation: RELU } }
  layers { dense { units: 4096 activation: RELU } }
  layers { dense { units: 10 activation: SOFTMAX } }""",
}


def arrivals(status, first, last):
    """{version: its time of arrival} of the smallest partition."""
    placement = min(status["partitions"], key=lambda p: int(p["end"]) - int(p.get("begin", 0)))
    channel = open_channel(placement["primary_address"])
    requests = queue.Queue()

    def ask(version):
        requests.put(
            Frame(
                kind=Frame.PULL,
                request_id=version,
                job_id=int(status["job_id"]),
                partition=placement.get("partition", 0),
                want_version=version,
                reply_dtype=types_pb2.BFLOAT16,
            )
        )

    for version in range(first, first + AHEAD):
        ask(version)
    seen = {}
    try:
        for reply in exchange(channel, iter(requests.get, None)):
            now = time.monotonic()
            check(reply.kind == Frame.VALUES, f"version {reply.request_id}: {reply.status_message}")
            if reply.request_id in seen:
                continue  # a later chunk
            seen[reply.request_id] = now
            if reply.request_id == last:
                break
            if reply.request_id + AHEAD <= last:
                ask(reply.request_id + AHEAD)
    finally:
        requests.put(None)
        channel.close()
    return seen


def percentiles(ms):
    ms = sorted(ms)
    return "  ".join(
        f"{name} {ms[min(len(ms) - 1, int(share * len(ms)))]:.2f}"
        for name, share in (("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1))
    )


def around(times, first, steps):
    """Of the times of the steps after `first`: the steps whose cuts count, the times of those that no cut can delay, a
    function that says by how much a step took longer than those of them nearby."""
    # Step v + 1 is the first one that the cut of version v can delay.
    at = [v for v in range(EVERY, steps - EVERY, EVERY) if v - EVERY > first]
    near = {v + i for v in at for i in range(1, WINDOW + 1)}

    def excess(v):
        return times[v] - statistics.median(
            t for u, t in times.items() if abs(u - v) <= EVERY and u not in near and u != v
        )

    return at, [t for v, t in times.items() if v not in near], excess


def measure(name, checkpoints):
    workers, examples = 2, 4000
    steps = (checkpoints + 2) * EVERY
    with Cluster(ps=2, workers=workers) as c:
        path = os.path.join(c.dir, "job.textproto")
        epochs = -(-steps * BATCH * workers // examples) + 1
        with open(path, "w") as f:
            f.write(
                JOB
                % (
                    MODELS[name],
                    make_glyphs(c.dir, examples, 100),
                    "sgd { momentum: 0.9 }",
                    BATCH * workers,
                    epochs,
                    workers,
                )
            )
        job = c.submit(
            path,
            {"checkpoints.dir": f"{c.dir}/checkpoints", "checkpoints.every_steps": EVERY, "checkpoints.keep_max": 2},
        )
        c.wait_for_step(job, 1)
        status = c.job(job)
        first = int(status["step"]) + 8
        seen = arrivals(status, first, steps)
        written = int(c.job(job)["checkpoints"][-1]["step"])
        c.cairn("cancel", job)
    check(written >= EVERY * (steps // EVERY - 2), f"the last checkpoint is of step {written}, of {steps}")
    times = {v: 1000 * (seen[v] - seen[v - 1]) for v in range(first + 1, steps + 1)}
    at, others, excess = around(times, first, steps)
    median = statistics.median(others)
    print(
        f"{name}: {len(times)} steps, {len(at)} checkpoints; ms a step: {percentiles(others)}; "
        f"excess over the steps nearby:",
        flush=True,
    )

    def show(text, ms):
        mean, error = statistics.mean(ms), statistics.stdev(ms) / len(ms) ** 0.5
        print(
            f"  {text:22s} mean {mean:+7.2f} +- {error:5.2f} ms ({100 * mean / median:+5.1f} %)   {percentiles(ms)}",
            flush=True,
        )

    for i in range(1, WINDOW + 1):
        show(f"step {i} after a cut", [excess(v + i) for v in at])
    show("all of them", [excess(v + i) for v in at for i in range(1, WINDOW + 1)])
    far = [[excess(v + i) for i in range(WINDOW + 1, EVERY)] for v in at]
    show("steps far from any", [ms for group in far for ms in group])
    count = EVERY - WINDOW - 1  # as many steps as outside a window: the same on both sides
    show("longest of first ones", [max(excess(v + i) for i in range(1, count + 1)) for v in at])
    show("longest of far ones", [max(group) for group in far])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=[], help=", ".join(MODELS))
    parser.add_argument("--checkpoints", type=int, default=20)
    options = parser.parse_args()
    for name in MODELS:
        if not options.models or name in options.models:
            measure(name, options.checkpoints)


if __name__ == "__main__":
    main()
