"""Goal: a worker that is slower than the others gives replicas away to them while training goes on, and no bit of the
result changes.

The slow worker is one that the system stops and lets go on, many times a second, so that it has a fifth of a processor.
Where others use the machine, all workers are slow, by more than that now and then: so it is stopped for longer and
longer, until it stands out. It is never away for long enough to be taken for lost. When it is as fast as the others
again it may take its share back: that is not waited for.
"""

import os
import signal
import sys
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from cluster import Cluster, attempts, check  # noqa: E402
from jobs import make_glyphs, small_job, undisturbed  # noqa: E402

EPOCHS = 60
SLOW = "worker-1"
STOPPED, RUNNING = 0.040, 0.010  # seconds; what matters is their ratio
STOPPED_MAX = 0.640  # far below the lease
ROUNDS = 150  # of the same length; then it is stopped for twice as long


class Slow:
    """SIGSTOP and SIGCONT in turn, until the end of the block."""

    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        rounds = 0
        while not self.ending.is_set():
            self.cluster.kill(self.name, signal.SIGSTOP, wait=False)
            self.ending.wait(min(STOPPED * 2 ** (rounds // ROUNDS), STOPPED_MAX))
            self.cluster.kill(self.name, signal.SIGCONT, wait=False)
            self.ending.wait(RUNNING)
            rounds += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.ending.set()
        self.thread.join()


def share(status):
    return sum(r["worker"] == SLOW for r in status["replicas"])


def check_straggler(epochs):
    with Cluster(ps=1, workers=2) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"backups": 0})
        c.wait_for_step(job, 30)
        # On a busy machine it may have been the slower one, or the faster one, already.
        before = c.while_running(
            job, lambda s: share(s) >= 2 and share(s), f"{SLOW} has its half of the replicas, or more"
        )
        with Slow(c, SLOW):
            c.while_running(job, lambda s: share(s) < before, f"{SLOW} has given a replica away")
        check(f'worker "{SLOW}" is' in c.log("coordinator"), "the coordinator does not say who is slow")
        status = c.wait(job)
        digest = status["digest"]
        examples = [int(e["train"]["examples"]) for e in status["epochs"]]
        check(examples == [1800] * len(examples), f"the epochs' figures are of so many examples: {examples}")
        check(digest == undisturbed(epochs), f"digest {digest}, undisturbed {undisturbed(epochs)}")
        print(f"replicas moved away from the slow worker; digest {digest} as without")


def main():
    attempts(lambda times: check_straggler(EPOCHS * times))


if __name__ == "__main__":
    main()
