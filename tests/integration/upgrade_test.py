"""Goal: a cluster is upgraded to the next release and taken back to this one, a daemon at a time, while a job trains:
the digest is that of the undisturbed run, whoever is replaced first. Programs that are two interfaces apart are refused
by a sentence that says which."""

import os
import signal

from cluster import BIN, Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed

NEXT = os.path.join(BIN, "../tests")
EPOCHS = 60
DAEMONS = ["ps-0", "ps-1", "worker-0", "worker-1"]


def program(name, release):
    kind = name.split("-")[0]
    return os.path.abspath(
        os.path.join(NEXT, f"next-{kind}") if release == "next" else os.path.join(BIN, f"cairn-{kind}")
    )


def replace(c, job, name, release):
    """Stops the daemon as an operator does, starts the other release's, and waits until the job goes on with it."""
    c.kill(name, signal.SIGTERM)
    c.commands[name][0] = program(name, release)
    c.restart(name)
    c.wait_for_nodes(len(DAEMONS))
    step = int(c.job(job)["step"])
    c.while_running(job, lambda status: int(status["step"]) > step and "degraded" not in status, f"{name} is {release}")


def check_rolling(order, epochs):
    with Cluster(ps=2, workers=2) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"partition_bytes": 4096, "backups": 1})
        c.wait_for_step(job, 10)
        for name in order:
            replace(c, job, name, "next")
        table = c.cairn("nodes").stdout
        check("programs of several releases" not in table, table)
        releases = {n["name"]: n["version"] for n in c.nodes()}
        check(releases == {name: "next" for name in DAEMONS}, f"{releases}")
        replace(c, job, order[0], "this")
        table = c.cairn("nodes").stdout
        check(order[0] == "coordinator" or "programs of several releases" in table, table)
        for name in order[1:]:
            replace(c, job, name, "this")
        digest = c.wait(job)["digest"]
        check(digest == undisturbed(epochs), f"{order}: digest {digest}, undisturbed {undisturbed(epochs)}")
        print(f"{', '.join(order)}: same digest", flush=True)


def check_far_apart():
    """A worker of two releases later is refused by this coordinator, and by this ps where the coordinator is between
    them."""
    with Cluster(ps=1, workers=1) as c:
        c.add_worker("worker-9")
        c.kill("worker-9", signal.SIGTERM)
        c.commands["worker-9"][0] = os.path.abspath(os.path.join(NEXT, "far-worker"))
        c.restart("worker-9")
        c.wait_for_log(
            "worker-9", r'hello.interface: "worker-9" is cairn next \(interface 4\), the coordinator is cairn'
        )
        check(c.processes["worker-9"].poll() is None, "it ended instead of trying again")
        # A restarted coordinator knows the releases of the nodes that it waits for.
        c.kill("worker-9", signal.SIGTERM)
        c.kill("coordinator", signal.SIGTERM)
        c.commands["coordinator"][0] = program("coordinator", "next")
        c.restart("coordinator")
        c.wait_for_nodes(2)
        c.restart("worker-9")
        c.wait_for_log("worker-9", r'hello.interface: "worker-9" is .*\(interface 4\), (ps|worker) "(ps|worker)-0" is')
        for name in ("ps-0", "worker-0"):
            c.kill(name, signal.SIGTERM)
            c.commands[name][0] = program(name, "next")
            c.restart(name)
        c.wait_for_nodes(3)
        print("a release that is too far away: refused until the others have come nearer", flush=True)


def main():
    attempts(lambda times: check_rolling(["coordinator", *DAEMONS], EPOCHS * times))
    attempts(lambda times: check_rolling([*reversed(DAEMONS), "coordinator"], EPOCHS * times))
    check_far_apart()


if __name__ == "__main__":
    main()
