"""How long training pauses when a daemon dies, with the default settings: from kill -9 to the next step that all
partitions have applied.

    failover_bench.py [--kills N] [--ended N] [primary|worker|coordinator|fresh]...
        default: all but fresh, 20 kills each

  primary      kill -9 of a ps that is primary of some partitions; the job has one backup
               aims: median <= 2 s, worst <= 5 s
  worker       kill -9 of a worker that computes replicas; the same aims
  coordinator  kill -9 of the coordinator, which stays away for 5 s
               aim: no step is delayed
  fresh        kill -9 of a ps, which is restarted; then a new job is submitted
               aim: its first step comes as soon after submission as without a kill

--ended N: N jobs have ended before, and their copies are repaired meanwhile. This should not make a difference.

A dead daemon is restarted before the next kill, after which the cluster is complete again (all copies in sync). Steps
are timed at a partition on a ps that stays alive: a client asks it for its version every 10 ms, for a few KiB each
time. A step needs the values of all partitions. So once this one is two versions ahead of the kill, all have applied a
step after it.
"""

import argparse
import os
import random
import statistics
import sys
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))
sys.path.insert(0, os.path.join(HERE, "../chaos"))

from cluster import Cluster, check  # noqa: E402
from jobs import make_glyphs, small_job  # noqa: E402
from wire import open_channel, pull  # noqa: E402

AWAY = 5.0  # seconds without a coordinator

ENDED = """
name: "ended"
model {
  layers { input { shape: [28, 28, 1] } }
  layers { flatten { } }
  layers { dense { units: 512 activation: RELU } }
  layers { dense { units: 10 activation: SOFTMAX } }
}
data { path: "%(data)s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { adam { } learning_rate: 0.001 }
batch_size: 50
epochs: 1
replicas: 2
partition_bytes: 65536
"""


class Steps:
    """The version of one partition, as reported by its ps."""

    def __init__(self, c, job, away_from=None):
        status = c.job(job)
        placement = next(p for p in status["partitions"] if p["primary"] != away_from)
        self.c, self.job_name, self.job, self.partition = c, job, int(status["job_id"]), placement["partition"]
        self.channel = open_channel(placement["primary_address"])

    def version(self):
        """None while no ps serves it there."""
        try:
            return pull(self.channel, self.job, self.partition, timeout=2)[0]
        except (grpc.RpcError, RuntimeError):
            return None

    def times(self, until):
        """Polls until the condition holds for the list of (first time seen, version), and returns the list."""
        seen = []
        while not until(seen):
            version = self.version()
            if version is None:  # it moved meanwhile
                status = self.c.try_job(self.job_name)
                if status is not None:
                    self.close()
                    self.channel = open_channel(status["partitions"][self.partition]["primary_address"])
            elif not seen or version > seen[-1][1]:
                seen.append((time.monotonic(), version))
            time.sleep(0.01)
        return seen

    def close(self):
        self.channel.close()


def whole(c, job):
    """Every copy is in sync, every daemon is alive, both workers are working, and the job makes steps."""

    def look(status):
        backups = int(status["spec"].get("backups", 0))
        return (
            all(
                len(p.get("backups", [])) == backups and all(b["in_sync"] for b in p["backups"])
                for p in status["partitions"]
            )
            and {r["worker"] for r in status["replicas"]} == {"worker-0", "worker-1"}
            and len({p["primary"] for p in status["partitions"]}) > 1
        )

    c.wait_for_nodes(len(c.processes) - 1)
    c.while_running(job, look, "the cluster is whole again", timeout=120)
    step = int(c.job(job)["step"])
    c.wait_for_step(job, step + 5)


def pids(c, kind):
    return {name: process.pid for name, process in c.processes.items() if name.startswith(kind)}


def kill_and_time(c, job, name):
    steps = Steps(c, job, away_from=name)
    before = steps.version()
    check(before is not None, f"partition {steps.partition} is not served")
    c.kill(name)
    killed = time.monotonic()
    at_kill = steps.times(lambda seen: seen)[0][1]
    end = killed + 60
    seen = steps.times(lambda s: (s and s[-1][1] >= at_kill + 2) or time.monotonic() > end)
    steps.close()
    check(seen[-1][1] >= at_kill + 2, f"no step within 60 s of the kill of {name}: {c.try_job(job)}")
    return seen[-1][0] - killed


def show(what, seconds, aim):
    seconds = sorted(seconds)
    quantile = lambda q: seconds[min(len(seconds) - 1, int(q * len(seconds)))]  # noqa: E731
    print(
        f"{what:12s} {len(seconds)} kills: median {statistics.median(seconds):.2f} s, 90 % {quantile(0.9):.2f} s, "
        f"worst {seconds[-1]:.2f} s, "
        f"best {seconds[0]:.2f} s   aim {aim}\n             " + " ".join(f"{s:.2f}" for s in seconds),
        flush=True,
    )


def training_cluster():
    return Cluster(ps=3, workers=2)


def submit(c, **settings):
    return c.submit(small_job(c.dir, make_glyphs(c.dir), 100000), {"partition_bytes": 4096, **settings})


def end_jobs(c, count):
    """Runs jobs of one epoch, with a backup: 1.7 MB of weights each."""
    data = make_glyphs(os.path.join(c.dir, "few"), count=200)
    path = os.path.join(c.dir, "ended.textproto")
    with open(path, "w") as f:
        f.write(ENDED % {"data": data})
    for job in [c.submit(path, {"backups": 1}) for _ in range(count)]:
        c.wait(job)
    return path


def fresh(kills, ended):
    with training_cluster() as c:
        path = end_jobs(c, max(1, ended))
        quiet, after = [], []
        for _ in range(kills):
            for seconds, kill in ((quiet, False), (after, True)):
                if kill:
                    c.kill("ps-0")
                    c.restart("ps-0")
                begin = time.monotonic()
                job = c.submit(path, {"backups": 1})
                c.until(
                    lambda: int(c.job(job).get("step", 0)) > 0 or c.job(job)["state"] == "SUCCEEDED", "its first step"
                )
                seconds.append(time.monotonic() - begin)
                c.wait(job)
        show("fresh", after, f"as without a kill: median {statistics.median(quiet):.2f} s, worst {max(quiet):.2f} s")


def primary(kills, rng, ended):
    with training_cluster() as c:
        if ended:
            end_jobs(c, ended)
        job, seconds = submit(c, backups=1), []
        for _ in range(kills):
            whole(c, job)
            workers = pids(c, "worker")
            victim = rng.choice(sorted({p["primary"] for p in c.job(job)["partitions"]}))
            seconds.append(kill_and_time(c, job, victim))
            check(
                pids(c, "worker") == workers and all(c.processes[n].poll() is None for n in workers),
                "a worker's process changed",
            )
            c.restart(victim)
        show("primary", seconds, "median <= 2, worst <= 5; workers kept their processes")


def worker(kills, rng):
    with training_cluster() as c:
        job, seconds = submit(c), []
        for _ in range(kills):
            whole(c, job)
            victim = rng.choice(["worker-0", "worker-1"])
            seconds.append(kill_and_time(c, job, victim))
            c.restart(victim)
        show("worker", seconds, "median <= 2, worst <= 5")


def gaps(seen):
    return [b[0] - a[0] for a, b in zip(seen, seen[1:])]


def coordinator(kills, rng):
    with training_cluster() as c:
        job, quiet, away = submit(c), [], []
        for _ in range(kills):
            whole(c, job)
            steps = Steps(c, job)
            for worst, kill in ((quiet, False), (away, True)):
                if kill:
                    c.kill("coordinator")
                end = time.monotonic() + AWAY
                worst.append(max(gaps(steps.times(lambda _: time.monotonic() > end))))
            steps.close()
            c.restart("coordinator")
        show(
            "coordinator",
            away,
            f"no step delayed. Longest gap between two steps seen in the {AWAY:.0f} s without it; "
            f"in {AWAY:.0f} s with it: "
            f"median {statistics.median(quiet):.2f} s, worst {max(quiet):.2f} s",
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=[], help="primary, worker, coordinator, fresh")
    parser.add_argument("--ended", type=int, default=0, help="jobs that have ended before (primary, fresh)")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    if not options.what or "primary" in options.what:
        primary(options.kills, rng, options.ended)
    for function in (worker, coordinator):
        if not options.what or function.__name__ in options.what:
            function(options.kills, rng)
    if "fresh" in options.what:
        fresh(options.kills, options.ended)


if __name__ == "__main__":
    main()
