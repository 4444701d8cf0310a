"""kill -9 of each daemon during a synchronous job: it goes on, with the digest of the undisturbed run.

A worker is killed for good, another joins; a ps and the coordinator are killed and started again on their data directories.
"""

import signal

from cluster import Cluster, check
from jobs import make_glyphs, small_job

EPOCHS = 12
STEPS = EPOCHS * 30


def undisturbed():
    with Cluster(ps=1, workers=1) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), EPOCHS))
        return c.wait(job)["digest"]


def run(disturb, want, **kwargs):
    with Cluster(ps=2, workers=2, **kwargs) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), EPOCHS), {"partition_bytes": 4096})
        c.wait_for_step(job, STEPS // 6)
        disturb(c, job)
        status = c.wait(job)
        check(status["digest"] == want, f"{disturb.__name__}: digest {status['digest']}, undisturbed {want}")
        print(f"{disturb.__name__}: same digest", flush=True)


def worker_lost(c, job):
    c.kill("worker-1")
    step = int(c.job(job)["step"])
    check(step < STEPS, "the job was over before the worker was killed")
    c.wait_for_step(job, step + 5)
    replicas = {r["worker"] for r in c.job(job)["replicas"]}
    check(replicas <= {"worker-0"} or int(c.job(job)["step"]) == STEPS, f"replicas are on {replicas}")


def all_workers_lost_then_one_joins(c, job):
    c.kill("worker-0")
    c.kill("worker-1")
    c.until(lambda: "worker" in c.job(job).get("reason", ""), "the job says that it waits for a worker")
    c.add_worker("worker-9")


def worker_joins(c, job):
    c.add_worker("worker-2")
    c.until(lambda: "worker-2" in {r["worker"] for r in c.job(job)["replicas"]} or c.job(job)["state"] == "SUCCEEDED",
            "worker-2 is given a replica")


def ps_restarted(c, job):
    c.kill("ps-1")
    c.until(lambda: "ps-1" in c.job(job).get("reason", ""), "the job says that it waits for ps-1")
    check(c.job(job)["state"] == "RUNNING", c.job(job)["state"])
    c.restart("ps-1")


def both_ps_restarted(c, job):
    c.kill("ps-0")
    c.kill("ps-1")
    c.restart("ps-1")
    c.restart("ps-0")


def coordinator_restarted(c, job):
    c.kill("coordinator")
    c.restart("coordinator")
    c.wait_for_nodes(4)


def worker_terminated(c, job):
    c.kill("worker-0", signal.SIGTERM)


def everything_killed(c, job):
    names = list(c.processes)
    for name in names:
        c.kill(name, wait=False)
    for name in names:
        c.processes[name].wait()
        c.restart(name)
    c.wait_for_nodes(4)


def main():
    want = undisturbed()
    for disturb in (worker_lost, all_workers_lost_then_one_joins, worker_joins, ps_restarted, both_ps_restarted,
                    coordinator_restarted, worker_terminated, everything_killed):
        run(disturb, want)


if __name__ == "__main__":
    main()
