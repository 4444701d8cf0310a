"""What durability costs: the step time of the small CNN with 2 workers and 2 ps in each mode, as ratios to SNAPSHOT in
one run.

    durability_bench.py [--rounds N] [MODE]...         default: 5 rounds of all

  SNAPSHOT               memory, with occasional images                             1.00
  LOGGED                 in the ps' log before the reply                             aim <= 1.6
  LOGGED_FSYNC           the same, with fsync
  REPLICATED             at one backup before the reply                              aim <= 1.35
  LOGGED_AND_REPLICATED  both
  CHECKPOINTS            SNAPSHOT with a checkpoint every 10 steps
                         (it delays no step by more than 10 % or 5 ms)

The modes alternate on one cluster, one job each per round. The result of a mode is its median over the rounds. The
first epoch of a job, which compiles and fills caches, does not count.
"""

import argparse
import os
import statistics
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import Cluster  # noqa: E402
from jobs import make_glyphs  # noqa: E402
from training_bench import BATCH, CNN, JOB  # noqa: E402

WORKERS = 2
STEPS = 100  # per epoch
EPOCHS = 3
MODES = {
    "SNAPSHOT": {"durability": "SNAPSHOT", "backups": 0},
    "LOGGED": {"durability": "LOGGED", "backups": 0},
    "LOGGED_FSYNC": {"durability": "LOGGED", "backups": 0, "fsync": "true"},
    "REPLICATED": {"durability": "REPLICATED", "backups": 1},
    "LOGGED_AND_REPLICATED": {"durability": "LOGGED_AND_REPLICATED", "backups": 1},
    "CHECKPOINTS": {"durability": "SNAPSHOT", "backups": 0, "checkpoints.every_steps": 10},
}
AIMS = {"LOGGED": "<= 1.6", "REPLICATED": "<= 1.35"}


def step_ms(c, path, mode, number):
    settings = dict(MODES[mode])
    if mode == "CHECKPOINTS":
        settings["checkpoints.dir"] = f"{c.dir}/checkpoints-{number}"
    job = c.submit(path, settings)
    status = c.wait(job)
    c.cairn("delete", job)
    return 1000 * statistics.median(e["seconds"] / STEPS for e in status["epochs"][1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modes", nargs="*", default=[], help=", ".join(MODES))
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    modes = [m for m in MODES if m == "SNAPSHOT" or not options.modes or m in options.modes]
    samples = {mode: [] for mode in modes}
    with Cluster(ps=2, workers=WORKERS) as c:
        path = os.path.join(c.dir, "job.textproto")
        with open(path, "w") as f:
            f.write(
                JOB
                % (
                    CNN,
                    make_glyphs(c.dir, STEPS * BATCH * WORKERS, 100),
                    "sgd { momentum: 0.9 }",
                    BATCH * WORKERS,
                    EPOCHS,
                    WORKERS,
                )
            )
        for number in range(options.rounds):
            for mode in (
                modes[number % len(modes) :] + modes[: number % len(modes)]
            ):  # so that a mode does not always follow the same one
                samples[mode].append(step_ms(c, path, mode, number))
    base = statistics.median(samples["SNAPSHOT"])
    for mode in modes:
        ms = statistics.median(samples[mode])
        print(
            f"{mode:22s} {ms:7.2f} ms a step   ratio {ms / base:5.2f}   aim {AIMS.get(mode, '-'):8s} rounds: "
            + " ".join(f"{v:.2f}" for v in samples[mode]),
            flush=True,
        )


if __name__ == "__main__":
    main()
