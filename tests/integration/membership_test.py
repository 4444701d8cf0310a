"""Goal: workers come and go at any time, in every strategy.

Replicas move to workers that join and away from those that leave or are killed, and each example is trained once per
epoch. A synchronous job has the digest of the undisturbed run. In an asynchronous one each replica's sequence numbers
have no gap, and each partition has as many updates as there were pushes. A job that cannot continue says why in `cairn
watch`.
"""

import os
import re
import signal
import subprocess
import sys

from cluster import BIN, SOURCE, Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed

sys.path.insert(0, os.path.join(SOURCE, "tests/chaos"))
from wire import final_counts  # noqa: E402

EPOCHS = 30
STEPS_PER_EPOCH = 30
REPLICAS = 4
SYNCHRONOUS = ({}, {"strategy": "MIRRORED"})
ASYNCHRONOUS = ({"strategy": "PARAMETER_SERVER"}, {"strategy": "PARAMETER_SERVER", "staleness_bound": 2})


def placed_on(status):
    return {r["worker"] for r in status["replicas"]}


def come_and_go(c, job, mirrored):
    c.add_worker("worker-1")
    c.add_worker("worker-2")
    c.add_worker("worker-3")
    if mirrored:  # one worker has all replicas
        c.wait_for_nodes(5)
        chief = c.chief(job)
        c.kill(chief, signal.SIGTERM)
        c.while_running(
            job, lambda s: len(placed_on(s)) == 1 and placed_on(s) != {chief}, "another worker has all replicas"
        )
        return
    c.while_running(job, lambda s: len(placed_on(s)) == 4, "each of four workers has a replica")
    c.kill("worker-0", signal.SIGTERM)
    c.while_running(job, lambda s: placed_on(s) == {"worker-1", "worker-2", "worker-3"}, "worker-0's replica has moved")
    c.kill("worker-2")
    c.while_running(job, lambda s: placed_on(s) == {"worker-1", "worker-3"}, "worker-2's replicas have moved")


def check_strategy(settings, epochs):
    synchronous = settings in SYNCHRONOUS
    with Cluster(ps=2, workers=1) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"partition_bytes": 4096, **settings})
        c.wait_for_step(job, STEPS_PER_EPOCH)
        come_and_go(c, job, settings.get("strategy") == "MIRRORED")
        status = c.wait(job)
        check(len(status["epochs"]) == epochs, f"{settings}: {len(status['epochs'])} epochs")
        if synchronous:
            check(
                status["digest"] == undisturbed(epochs),
                f"{settings}: digest {status['digest']}, undisturbed {undisturbed(epochs)}",
            )
        steps = epochs * STEPS_PER_EPOCH
        for partition, version, sequences in final_counts(status):
            updates = steps if synchronous else steps * REPLICAS
            check(version == updates, f"{settings}: partition {partition} has {version} updates of {updates}")
            check(
                sequences == [steps] * REPLICAS,
                f"{settings}: partition {partition}: last steps {sequences}, wanted {steps}",
            )
        counts = [int(e["train"]["examples"]) for e in status["epochs"]]
        check(counts == [1800] * epochs, f"{settings}: examples of the epochs: {counts}")
        print(f"{settings}: each step once, in the figures of the {epochs} epochs too", flush=True)


def check_says_why(settings, happens, pattern):
    """Within 30 s, in the output of `cairn watch`."""
    with Cluster(ps=2, workers=1) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), 100000), {"partition_bytes": 4096, **settings})
        c.wait_for_step(job, 5)
        with open(f"{c.dir}/watch", "w") as out:
            watch = subprocess.Popen(
                [os.path.join(BIN, "cairn"), "--coordinator", c.address, "watch", job], stdout=out, stderr=out
            )
        try:
            happens(c)

            def said():
                with open(f"{c.dir}/watch") as f:
                    return re.search(pattern, f.read())

            c.until(said, f"cairn watch says {pattern!r}", timeout=30)
        finally:
            watch.terminate()
            watch.wait()
        # An earlier event may have said it.
        c.until(
            lambda: re.search(pattern, c.job(job).get("reason", "")), f"the job's reason says {pattern!r}", timeout=30
        )
        check(c.job(job)["state"] == "RUNNING", c.job(job)["state"])
        print(f"{happens.__name__}: {c.job(job)['reason']}", flush=True)


def no_worker(c):
    c.kill("worker-0")


def no_ps(c):
    c.kill("ps-0")


def main():
    check_says_why({}, no_worker, "worker")
    check_says_why({"backups": 0}, no_ps, 'ps "?ps-0')
    for settings in (*SYNCHRONOUS, *ASYNCHRONOUS):
        attempts(lambda times: check_strategy(settings, EPOCHS * times))


if __name__ == "__main__":
    main()
