"""Partitions move while training continues: a ps is drained, becomes empty and is stopped; a third ps joins and takes
its share.

The digest is that of the undisturbed run, with and without backups.
"""

import signal

from cluster import Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed

EPOCHS = 100


def node(c, name):
    return next((n for n in c.nodes() if n["name"] == name), {"partitions": 0})


def drain_then_stop(c, job):
    c.cairn("nodes", "drain", "ps-1")
    c.while_running(job, lambda _: int(node(c, "ps-1")["partitions"]) == 0, "ps-1 is empty")
    check(node(c, "ps-1")["draining"], "`cairn nodes` does not show the drain")
    c.kill("ps-1", signal.SIGTERM)
    c.wait_for_step(job, int(c.job(job)["step"]) + 10)
    c.while_running(job, lambda status: status.get("reason", "") == "", "nothing is missing")


def join(c, job):
    c.add_ps("ps-9")
    c.while_running(job, lambda _: int(node(c, "ps-9").get("primaries", 0)) > 0, "ps-9 is given partitions")


def drain_a_worker(c, job):
    c.cairn("nodes", "drain", "worker-1")
    c.while_running(
        job, lambda status: {r["worker"] for r in status["replicas"]} == {"worker-0"}, "worker-1 has no replicas"
    )
    c.kill("worker-1", signal.SIGTERM)


def run(settings, epochs):
    with Cluster(ps=3, workers=2) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"partition_bytes": 4096, **settings})
        c.wait_for_step(job, 20)
        drain_then_stop(c, job)
        join(c, job)
        drain_a_worker(c, job)
        digest = c.wait(job)["digest"]
        check(digest == undisturbed(epochs), f"{settings}: digest {digest}, undisturbed {undisturbed(epochs)}")
        print(f"{settings}: same digest", flush=True)


def refused(c):
    done = c.cairn("nodes", "drain", "nobody", ok=False)
    check(done.returncode == 2 and "nobody" in done.stderr, f"exit {done.returncode}: {done.stderr}")


def main():
    with Cluster(ps=1, workers=0) as c:
        refused(c)
    for settings in ({"backups": 0}, {"backups": 1}):
        attempts(lambda times: run(settings, EPOCHS * times))


if __name__ == "__main__":
    main()
