"""Goal: replicas move away from a worker that is slower than the others while training continues, and no bit of the
result changes.

The slow worker is stopped and continued many times a second, so that it gets a fifth of a CPU. If other processes use
the machine, all workers may at times be slowed by more than that. So the worker is stopped for longer and longer until
it stands out, but never so long that it would be considered lost. When it is as fast as the others again it may get its
share back; the test does not wait for that.
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
STOPPED, RUNNING = 0.040, 0.010  # in seconds; only their ratio matters
STOPPED_MAX = 0.640  # far below the lease
ROUNDS = 150  # with the same length; then the length is doubled


class Slow:
    """Alternates SIGSTOP and SIGCONT until the end of the block."""

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
        # On a busy machine it may already have been the slower or the faster one.
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
