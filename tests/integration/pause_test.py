"""Goal: daemons that are stopped (SIGSTOP) for longer than their lease and then continued, and a ps that is killed
while others read from it.

A job continues after each pause with the digest of the undisturbed run. An evaluation survives the restart of a ps at
another address. An export soon says which ps is missing.
"""

import concurrent.futures
import os
import signal
import subprocess
import time

from cluster import BIN, Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed

LEASE = 1.5  # in seconds: half the default, so that a pause exceeds it sooner
FLAGS = ("--lease-ms", "1500", "--heartbeat-interval-ms", "300")


def paused(c, *names, seconds=LEASE + 1):
    """The pause itself is tested: there is no condition to wait for."""
    for name in names:
        c.kill(name, signal.SIGSTOP, wait=False)
    time.sleep(seconds)
    for name in names:
        c.kill(name, signal.SIGCONT, wait=False)


def a_worker(c):
    paused(c, "worker-1", seconds=8)  # longer than the ps' keepalive too


def all_workers(c):
    paused(c, "worker-0", "worker-1")


def a_ps(c):
    paused(c, "ps-1", seconds=4)  # longer than the workers' keepalive


def the_coordinator(c):
    paused(c, "coordinator")


def everything(c):
    paused(c, *c.processes)


def check_nobody_is_blamed(epochs):
    """A coordinator that was stopped for longer than a lease has received nothing, and first reads the waiting
    messages."""
    with Cluster(ps=2, workers=2) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs))
        c.wait_for_step(job, 30)
        paused(c, "coordinator", seconds=5)
        c.until(lambda: "was suspended for" in c.log("coordinator"), "the coordinator says that it was suspended")
        c.running(job, "the end of the pause")
        c.wait(job)
        check("is lost" not in c.log("coordinator"), "the coordinator took nodes for lost that were there all the time")
        print("nobody was taken for lost by a coordinator that stood still")


def check_pause(pause, epochs):
    with Cluster(ps=2, workers=2, coordinator_flags=FLAGS) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"partition_bytes": 4096})
        c.wait_for_step(job, 30)
        pause(c)
        c.running(job, "the end of the pause")
        digest = c.wait(job)["digest"]
        check(
            digest == undisturbed(epochs),
            f"{pause.__name__} paused: digest {digest}, undisturbed {undisturbed(epochs)}",
        )
        c.wait_for_nodes(4)
        print(f"{pause.__name__} paused: same digest", flush=True)


# The stopped daemons, and the epochs of the job, which must last longer: training continues without a worker or the
# coordinator.
PAUSES = ((a_worker, 80), (all_workers, 20), (a_ps, 20), (the_coordinator, 40), (everything, 20))


def check_readers():
    with Cluster(ps=2, workers=2) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), 2), {"partition_bytes": 4096, "backups": 0})
        c.wait(job)
        want = c.evaluate(job, "train")

        # The workers are stopped, so that the evaluation cannot end before the ps is killed.
        for name in ("worker-0", "worker-1"):
            c.kill(name, signal.SIGSTOP, wait=False)
        argv = [os.path.join(BIN, "cairn"), "--coordinator", c.address, "evaluate", job, "--split", "train", "--json"]
        evaluation = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        c.wait_for_log("coordinator", r"evaluates its train split")
        c.kill("ps-1")
        for name in ("worker-0", "worker-1"):
            c.kill(name, signal.SIGCONT, wait=False)
        c.until(lambda: not next(n for n in c.nodes() if n["name"] == "ps-1").get("alive"), "ps-1 is seen to be lost")
        export = c.cairn("export", job, "-o", f"{c.dir}/model.safetensors", ok=False, timeout=30)
        check(export.returncode == 1 and "ps-1" in export.stderr, f"exit {export.returncode}: {export.stderr}")
        c.restart("ps-1")
        output = evaluation.communicate(timeout=55)[
            0
        ]  # a worker that keeps using the ps' old address would do so for 60 s
        check(evaluation.returncode == 0, output)
        check(c.evaluate(job, "train") == want, "other figures after the restart")
        c.cairn("export", job, "-o", f"{c.dir}/model.safetensors")
        print("readers find a ps that came back", flush=True)


def main():
    for epochs in {epochs for _, epochs in PAUSES}:
        undisturbed(epochs)  # before there are threads that need it
    # The daemons are stopped most of the time: three clusters at once do not load the machine more than one running
    # cluster.
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        cases = [
            pool.submit(attempts, lambda times, p=pause, e=epochs: check_pause(p, e * times))
            for pause, epochs in PAUSES
        ]
        cases.append(pool.submit(attempts, lambda times: check_nobody_is_blamed(80 * times)))
        cases.append(pool.submit(check_readers))
        for case in cases:
            case.result()


if __name__ == "__main__":
    main()
