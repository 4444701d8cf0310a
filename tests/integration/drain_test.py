"""Partitions move while training goes on: a ps is drained, ends empty and is stopped; a third ps joins and takes its share.

The digest is that of the undisturbed run, with backups and without.
"""

import signal

from cluster import Cluster, TooLate, attempts, check
from jobs import make_glyphs, small_job

EPOCHS = 100


def undisturbed():
    with Cluster(ps=1, workers=1) as c:
        return c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir), EPOCHS), {"backups": 0}))["digest"]


def node(c, name):
    return next((n for n in c.nodes() if n["name"] == name), {"partitions": 0})


def running(c, job):
    status = c.job(job)
    if status["state"] == "SUCCEEDED":
        raise TooLate(f"job {job} was over")
    check(status["state"] == "RUNNING", f"{status['state']}: {status.get('reason')}")
    return status


def drain_then_stop(c, job):
    c.cairn("nodes", "drain", "ps-1")
    c.until(lambda: running(c, job) and int(node(c, "ps-1")["partitions"]) == 0, "ps-1 is empty")
    check(node(c, "ps-1")["draining"], "`cairn nodes` does not show the drain")
    c.kill("ps-1", signal.SIGTERM)
    step = int(running(c, job)["step"])
    c.wait_for_step(job, step + 10)
    c.until(lambda: running(c, job).get("reason", "") == "", "nothing is missing")


def join(c, job):
    c.add_ps("ps-9")
    c.until(lambda: running(c, job) and int(node(c, "ps-9").get("primaries", 0)) > 0, "ps-9 is given partitions")


def drain_a_worker(c, job):
    c.cairn("nodes", "drain", "worker-1")
    c.until(lambda: {r["worker"] for r in running(c, job)["replicas"]} == {"worker-0"}, "worker-1 has no replicas")
    c.kill("worker-1", signal.SIGTERM)


def run(settings, want):
    with Cluster(ps=3, workers=2) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), EPOCHS), {"partition_bytes": 4096, **settings})
        c.wait_for_step(job, 20)
        drain_then_stop(c, job)
        join(c, job)
        drain_a_worker(c, job)
        status = c.wait(job)
        check(status["digest"] == want, f"{settings}: digest {status['digest']}, undisturbed {want}")
        print(f"{settings}: same digest", flush=True)


def refused(c):
    done = c.cairn("nodes", "drain", "nobody", ok=False)
    check(done.returncode == 2 and "nobody" in done.stderr, f"exit {done.returncode}: {done.stderr}")


def main():
    want = undisturbed()
    with Cluster(ps=1, workers=0) as c:
        refused(c)
    for settings in ({"backups": 0}, {"backups": 1}):
        attempts(lambda: run(settings, want))


if __name__ == "__main__":
    main()
