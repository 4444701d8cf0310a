"""Goal: with shared memory between the processes of a host, through their sockets, and over TCP a job has the same
bits, with and without kills; memory is used where it may be and nowhere else, and that of processes that died is given
back."""

import os
import signal
import stat

from cluster import Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed

EPOCHS = 2
LINK = "memfd:cairn-link"


def links(c, name):
    """The memory that this daemon shares with others at the moment."""
    with open(f"/proc/{c.processes[name].pid}/maps") as maps:
        return sum(LINK in line for line in maps)


def daemons(c):
    return [name for name in c.processes if name.startswith(("ps", "worker"))]


def try_digest(what, expected, **settings):
    def run(times):
        epochs = EPOCHS * times
        with Cluster(**settings) as c:
            job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs))
            c.wait_for_step(job, 5)
            used = {name: links(c, name) for name in daemons(c)}
            c.running(job, "its memory was looked at")
            check(all((n > 0) == expected for n in used.values()), f"{what}: links {used}")
            check(c.wait(job)["digest"] == undisturbed(epochs), f"{what}: another digest")
            print(f"{what}: {used}", flush=True)

    attempts(run)


def try_kills(times):
    """A worker, a ps and the coordinator are killed, a worker stands still: the bits stay, and so does no memory."""
    epochs = 2 * EPOCHS * times
    with Cluster() as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs))
        c.wait_for_step(job, 5)
        before = {name: links(c, name) for name in ("ps-0", "ps-1")}
        for step, name in ((10, "worker-1"), (25, "ps-0"), (40, "coordinator")):
            c.wait_for_step(job, step)
            c.kill(name)
            c.restart(name)
        c.wait_for_step(job, 55)
        c.kill("worker-0", sig=signal.SIGSTOP, wait=False)
        c.wait_for_step(job, 60)
        c.kill("worker-0", sig=signal.SIGCONT, wait=False)
        check(c.wait(job)["digest"] == undisturbed(epochs), "another digest after kills")
        c.kill("worker-1")
        c.kill("worker-0")
        # What remains is between the two ps.
        c.until(lambda: links(c, "ps-1") < before["ps-1"], f"ps-1 gives memory back: {before}, {links(c, 'ps-1')}")


def try_files():
    """The sockets lie in the data directory, and go with the process or with the next one."""
    with Cluster(ps=1, workers=0) as c:

        def sockets():
            names = os.listdir(f"{c.dir}/ps-0")
            return sorted(n for n in names if stat.S_ISSOCK(os.lstat(f"{c.dir}/ps-0/{n}").st_mode))

        first = c.until(lambda: len(found := sockets()) == 2 and found, "two sockets")
        check(first[1] == first[0] + ".mem", f"{first}")
        c.kill("ps-0")
        c.restart("ps-0")
        second = c.until(lambda: len(found := sockets()) == 2 and found != first and found, "two new sockets")
        check(not set(first) & set(second), f"{first}, {second}")
        c.kill("ps-0", sig=signal.SIGTERM)
        check(sockets() == [], f"after a stop: {sockets()}")


def main():
    try_digest("shared memory", True)
    try_digest("workers without it", False, ps=1, worker_flags=["--no-shared-memory"])
    try_digest("ps without it", False, ps_flags=["--no-shared-memory"])
    try_digest("TCP", False, ps_flags=["--unix-socket", "none"])
    attempts(try_kills)
    try_files()


if __name__ == "__main__":
    main()
