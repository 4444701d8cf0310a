"""kill -9 of each daemon during a synchronous job: the job continues, with the digest of the undisturbed run, and its
epochs' figures include each step once. A job whose callbacks monitor the training loss takes the same decisions as
undisturbed.

A worker is killed for good and another joins; a ps and the coordinator are killed and restarted with their data
directories. Without a log the job falls back to images that all partitions have.
"""

import functools
import signal

from cluster import Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed

EPOCHS = 12
EXAMPLES = 1800  # per epoch


def run(disturb, epochs, **settings):
    with Cluster(ps=2, workers=2) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"partition_bytes": 4096, **settings})
        c.wait_for_step(job, epochs * 30 // 6)
        disturb(c, job)
        status = c.wait(job)
        digest = status["digest"]
        check(digest == undisturbed(epochs), f"{disturb.__name__}: digest {digest}, undisturbed {undisturbed(epochs)}")
        check_examples(status)
        print(f"{disturb.__name__}: same digest", flush=True)


def check_examples(status):
    examples = [int(e["train"]["examples"]) for e in status["epochs"]]
    check(examples == [EXAMPLES] * len(examples), f"the epochs' figures are of so many examples: {examples}")


# ---- decisions based on training figures ----

WATCHED = """
callbacks { early_stopping { monitor: "loss" patience: 2 min_delta: 0.02 } }
callbacks { reduce_lr_on_plateau { monitor: "loss" patience: 1 min_delta: 0.05 factor: 0.5 } }
"""


def decisions(status):
    return status["digest"], [
        (e["learning_rate"], e["train"]["loss"], e["train"]["examples"]) for e in status["epochs"]
    ]


@functools.cache
def undisturbed_decisions(epochs):
    with Cluster(ps=1, workers=1) as c:
        return decisions(c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir), epochs, WATCHED), {"backups": 0})))


def run_watched(disturb, epochs):
    expected = undisturbed_decisions(epochs)
    with Cluster(ps=2, workers=2) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs, WATCHED), {"partition_bytes": 4096})
        c.wait_for_step(job, 51)  # within the second epoch
        disturb(c, job)
        status = c.wait(job)
        check(decisions(status) == expected, f"{disturb.__name__}: {decisions(status)}, undisturbed {expected}")
        check_examples(status)
        print(f"{disturb.__name__}: the same {len(expected[1])} epochs", flush=True)


def placed_on(status):
    return {r["worker"] for r in status["replicas"]}


def worker_lost(c, job):
    c.kill("worker-1")
    c.while_running(job, lambda status: placed_on(status) == {"worker-0"}, "all replicas are on worker-0")
    step = int(c.job(job)["step"])
    c.while_running(job, lambda status: int(status["step"]) > step, "a step without worker-1")


def all_workers_lost_then_one_joins(c, job):
    c.kill("worker-0")
    c.kill("worker-1")
    c.while_running(job, lambda status: "worker" in status["reason"], "the job says that it waits for a worker")
    c.add_worker("worker-9")


def workers_join(c, job):
    c.add_worker("worker-2")
    c.add_worker("worker-3")
    c.while_running(job, lambda status: len(placed_on(status)) == 4, "each of four workers has a replica")


def ps_restarted(c, job):
    c.kill("ps-1")
    state = c.while_running(
        job, lambda status: "ps-1" in status["reason"] and status["state"], "the job says that it waits for ps-1"
    )
    check(state == "RUNNING", state)
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


def one_of_each_killed(c, job):
    for name in ("ps-0", "worker-1", "coordinator"):
        c.kill(name, wait=False)
    for name in ("ps-0", "worker-1", "coordinator"):
        c.processes[name].wait()
        c.restart(name)
    c.wait_for_nodes(4)


# What happens to the job, and the settings that it needs: a ps is waited for if no other ps has its partitions.
CASES = (
    (worker_lost, {}),
    (all_workers_lost_then_one_joins, {}),
    (workers_join, {}),
    (ps_restarted, {"backups": 0}),
    (both_ps_restarted, {"backups": 0}),
    (ps_restarted, {"backups": 0, "durability": "SNAPSHOT"}),
    (both_ps_restarted, {"backups": 0, "durability": "SNAPSHOT"}),
    (coordinator_restarted, {}),
    (worker_terminated, {}),
    (everything_killed, {}),
)


def main():
    for disturb, settings in CASES:
        attempts(lambda times: run(disturb, EPOCHS * times, **settings))
    for disturb in (everything_killed, one_of_each_killed):
        attempts(lambda times: run_watched(disturb, EPOCHS * times))


if __name__ == "__main__":
    main()
