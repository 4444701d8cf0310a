"""What watching a job costs: the step time of the small CNN with 2 workers and 2 ps while `cairn trace` records all
steps, and while the digest of the variables is recorded after every 100th step (the default), as ratios to the step
time while nothing is recorded.

    trace_bench.py [--rounds N]         default: 5 rounds

The three kinds of jobs take turns on one cluster; each has an update log and a backup, so that every kind of span
occurs. The command and the coordinator that asks for it run on the same machine. The first epoch of a job, which
compiles and fills caches, does not count; the result is the median over the others. Aim: at most 2 % with a trace.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import BIN, Cluster, check  # noqa: E402
from jobs import make_glyphs  # noqa: E402
from training_bench import BATCH, CNN, JOB  # noqa: E402

WORKERS = 2
STEPS = 100  # per epoch
EPOCHS = 4
SETTINGS = {"durability": "LOGGED_AND_REPLICATED", "backups": 1}
KINDS = {"nothing": 0, "traced": 0, "digests": 100}  # and how often each has its digest recorded


def trace_all(c, job):
    """Records as many steps as a trace can have: the job ends before."""
    command = [os.path.join(BIN, "cairn"), "--coordinator", c.address, "trace", job, "--steps", "1000"]
    command += ["--seconds", "600", "-o", f"{c.dir}/trace.json"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def step_times(c, path, kind):
    """Milliseconds of a step in each epoch but the first, and how many spans were recorded of a step."""
    job = c.submit(path, {**SETTINGS, "digest_every_steps": KINDS[kind]})
    c.until(lambda: c.job(job)["state"] == "RUNNING", "the job runs")
    trace = trace_all(c, job) if kind == "traced" else None
    status = c.wait(job)
    spans = None
    if trace is not None:
        check(trace.wait(timeout=120) == 0, "the trace failed")
        with open(f"{c.dir}/trace.json", encoding="utf-8") as f:
            written = json.load(f)
        other = written["otherData"]
        check(other["first_step"] <= STEPS and other["missing"] == {}, f"not all was traced: {other}")
        events = sum(event["ph"] == "X" for event in written["traceEvents"])
        spans = events / (other["last_step"] - other["first_step"] + 1)
    c.cairn("delete", job)
    return [1000 * e["seconds"] / STEPS for e in status["epochs"][1:]], spans


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    times = {kind: [] for kind in KINDS}
    medians = {kind: [] for kind in KINDS}
    with Cluster(ps=2, workers=WORKERS) as c:
        path = os.path.join(c.dir, "job.textproto")
        glyphs = make_glyphs(c.dir, STEPS * BATCH * WORKERS, 100)
        with open(path, "w") as f:
            f.write(JOB % (CNN, glyphs, "sgd { momentum: 0.9 }", BATCH * WORKERS, EPOCHS, WORKERS))
        for number in range(options.rounds):
            kinds = list(KINDS)
            first = number % len(kinds)
            for kind in kinds[first:] + kinds[:first]:
                each, spans = step_times(c, path, kind)
                times[kind] += each
                medians[kind].append(statistics.median(each))
                if spans is not None:
                    print(f"round {number + 1}: {spans:.0f} spans a step", flush=True)
    base = statistics.median(times["nothing"])
    for kind, each in times.items():
        ms = statistics.median(each)
        rounds = " ".join(f"{m:.2f}" for m in medians[kind])
        print(f"{kind:8s} {ms:7.2f} ms a step   ratio {ms / base:6.3f}   rounds: {rounds}", flush=True)


if __name__ == "__main__":
    main()
