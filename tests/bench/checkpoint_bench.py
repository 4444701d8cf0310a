"""What checkpoints cost training: epochs of the small CNN on two workers, alternately with and without a checkpoint
every 15 steps.

    checkpoint_bench.py [ROUNDS]        default 3      aim: <= 5 ms a checkpoint, or 10 % of a step
"""

import os
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))

from cluster import Cluster  # noqa: E402
from jobs import make_glyphs, small_job  # noqa: E402

EVERY, STEPS_OF_EPOCH = 15, 30


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    seconds = {False: [], True: []}
    with Cluster(ps=1, workers=2) as c:
        job_file = small_job(c.dir, make_glyphs(c.dir), 40)
        settings = {"checkpoints.dir": f"{c.dir}/checkpoints", "checkpoints.every_steps": EVERY}
        for _ in range(rounds):
            for on in (False, True):
                status = c.wait(c.submit(job_file, settings if on else {}))
                seconds[on].append(statistics.median(e["seconds"] for e in status["epochs"][1:]))
    without, with_them = (statistics.median(seconds[on]) for on in (False, True))
    print(
        f"step {1000 * without / STEPS_OF_EPOCH:.2f} ms; a checkpoint adds "
        f"{1000 * (with_them - without) / (STEPS_OF_EPOCH / EVERY):.2f} ms ({seconds})"
    )


if __name__ == "__main__":
    main()
