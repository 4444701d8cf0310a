"""Goal: several coordinators on etcd. Whatever happens to the leader during a synchronous job, the job continues, ends
with the digest of the undisturbed run, and is served by one leader. The leader is killed (a standby takes over),
stopped with SIGSTOP (it comes back as a standby and does nothing more) or asked to stop (it hands over); all
coordinators are away (training continues, submissions say what to do); etcd is away. In an etcd of three members, each
is killed in turn."""

import os
import re
import signal
import subprocess

from cluster import BIN, Cluster, attempts, check, skip_without_etcd
from jobs import make_glyphs, small_job, undisturbed

STEPS_PER_EPOCH = 30
PATIENT = ("--lease-ms", "15000")  # no node may be lost here, even on a busy machine


def settled(c):
    """Nodes that came back to a new leader were recognized: nothing was promoted, moved or restarted."""
    for name in c.coordinators:
        check(
            not re.search(r'"(ps|worker)-\d" (was restarted|is lost)', c.log(name)),
            f"{name} took a node for another process",
        )


def check_disturbance(disturb, epochs):
    with Cluster(ps=2, workers=2, coordinators=2, etcd=True, coordinator_flags=PATIENT) as c:
        leader = c.wait_for_leader()
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"partition_bytes": 4096})
        c.wait_for_step(job, STEPS_PER_EPOCH)
        disturb(c, job, leader)
        digest = c.wait(job)["digest"]
        c.wait_for_nodes(4)
        settled(c)
        check(digest == undisturbed(epochs), f"{disturb.__name__}: digest {digest}, undisturbed {undisturbed(epochs)}")
        print(f"{disturb.__name__}: same digest", flush=True)


def moves_on(c, job):
    step = int(c.job(job)["step"])
    c.while_running(job, lambda status: int(status["step"]) > step, "another step")


def leader_killed(c, job, leader):
    c.kill(leader)
    other = c.wait_for_leader(other_than=leader)
    moves_on(c, job)
    c.restart(leader)
    c.wait_for_log(leader, f'standing by: "{other}"')


def leader_stands_still(c, job, leader):
    c.kill(leader, signal.SIGSTOP, wait=False)
    other = c.wait_for_leader(other_than=leader)
    c.wait_for_nodes(4)
    before = c.log(leader)
    c.kill(leader, signal.SIGCONT, wait=False)
    c.until(lambda: "standing by" in c.log(leader)[len(before) :], f"{leader} stands by")
    check(not re.search("ready|assigned|joined|leading", c.log(leader)[len(before) :]), f"{leader} did something")
    check(c.leader() == other, f"{c.leader()} leads")
    moves_on(c, job)


def lead_handed_over(c, job, leader):
    c.kill(leader, signal.SIGTERM)
    c.wait_for_leader(other_than=leader)
    moves_on(c, job)


def a_watch_outlives_the_leader(c, job, leader):
    argv = [os.path.join(BIN, "cairn"), "--coordinator", c.address, "watch", job]
    watch = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        moves_on(c, job)
        c.kill(leader)
        c.wait(job)
        check(watch.wait(timeout=60) == 0, f"cairn watch ended with {watch.returncode}")
    finally:
        watch.kill()
        watch.wait()


def all_coordinators_away(c, job, leader):
    step = int(c.job(job)["step"])
    for name in c.coordinators:
        c.kill(name)
    refused = c.cairn("submit", f"{c.dir}/job.textproto", ok=False)
    check(refused.returncode == 1 and "cannot reach the coordinator" in refused.stderr, refused.stderr)
    for name in c.coordinators:
        c.restart(name)
    c.wait_for_leader()
    # The stored step may be older; the workers report the current one.
    c.until(lambda: int(c.job(job)["step"]) >= step, "the job has the steps that it had")


def etcd_away(c, job, leader):
    """No leader can hold its lease: both stand by while training continues. One leads again when etcd is back with its
    data."""
    c.kill("etcd")

    def nobody_leads():  # does not use the leader's log: on a busy machine the leader may have changed before
        refused = c.cairn("nodes", ok=False)
        return refused.returncode == 1 and "stands by" in refused.stderr

    c.until(nobody_leads, "both coordinators stand by")
    c.restart("etcd")
    c.until(lambda: c.cairn("nodes", ok=False).returncode == 0, "a coordinator leads again")


def check_minority_of_etcd():
    """Each member of three is killed and restarted, including the one that leads etcd. Meanwhile jobs are accepted and
    end."""
    with Cluster(ps=1, workers=1, coordinators=2, etcd=True, etcd_members=3) as c:
        digests = set()
        job_file = small_job(c.dir, make_glyphs(c.dir), 1)
        for name in c.etcd_names:
            c.kill(name)
            digests.add(c.wait(c.submit(job_file, {"name": f"without-{name}"}))["digest"])
            c.restart(name)
            c.until(lambda: c.etcd_healthy(name), f"{name} is back")
            c.wait_for_leader()
        check(len(digests) == 1, f"digests: {digests}")
        print("minority_of_etcd: every job ended", flush=True)


# What happens, and the epochs of the job, which must last longer.
CASES = (
    (leader_killed, 150),
    (leader_stands_still, 250),
    (lead_handed_over, 100),
    (a_watch_outlives_the_leader, 100),
    (all_coordinators_away, 100),
    (etcd_away, 150),
)


def main():
    skip_without_etcd()
    check_minority_of_etcd()
    for disturb, epochs in CASES:
        attempts(lambda times: check_disturbance(disturb, epochs * times))


if __name__ == "__main__":
    main()
