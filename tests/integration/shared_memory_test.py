"""Goal: with shared memory between the processes of a host, through their sockets, and over TCP a job has the same
bits, with and without kills; memory is used where it may be and nowhere else, and that of processes that died is given
back."""

import os
import signal
import stat

from cluster import Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed

EPOCHS = 2
LINK, ARENA = "memfd:cairn-link", "memfd:cairn-arena"

# Its gradients are large enough to be read where they are.
WIDE = """
name: "wide"
model {
  layers { input { shape: [28, 28, 1] } }
  layers { rescaling { scale: 0.003921569 } }
  layers { flatten { } }
  layers { dense { units: 1200 activation: RELU } }
  layers { dense { units: 10 activation: SOFTMAX } }
}
data { path: "%s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { adam { } }
batch_size: 40
epochs: %d
replicas: 4
partition_bytes: 2097152
"""


def links(c, name, memory=LINK):
    """The memory that this daemon shares with others at the moment."""
    with open(f"/proc/{c.processes[name].pid}/maps") as maps:
        return sum(memory in line for line in maps)


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


def train_wide(c, epochs, meanwhile):
    path = os.path.join(c.dir, "wide.textproto")
    with open(path, "w") as f:
        f.write(WIDE % (make_glyphs(c.dir), epochs))
    job = c.submit(path)
    meanwhile(job)
    return c.wait(job)["digest"]


def try_arenas(times):
    """Each ps reads the gradients of the workers where they are: the bits are those of a run in which none does, also
    with kills."""
    epochs = 2 * times
    with Cluster(ps=1, workers=1, worker_flags=["--no-shared-memory"]) as c:
        alone = train_wide(c, epochs, lambda job: c.wait_for_step(job, 5))
        check(links(c, "worker-0", ARENA) == 0, "an arena that nobody reads")
    with Cluster() as c:

        def kill_some(job):
            c.wait_for_step(job, 5)
            arenas = {name: links(c, name, ARENA) for name in daemons(c)}
            c.running(job, "its memory was looked at")
            check(all(n > 0 for n in arenas.values()), f"arenas: {arenas}")
            print(f"arenas: {arenas}", flush=True)
            for step, name in ((20, "worker-1"), (35, "ps-0"), (50, "worker-0")):
                c.wait_for_step(job, step)
                c.kill(name)
                c.restart(name)

        check(train_wide(c, epochs, kill_some) == alone, "another digest with arenas")


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
    attempts(try_arenas)
    try_files()


if __name__ == "__main__":
    main()
