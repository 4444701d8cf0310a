"""Chaos with real processes: a random daemon gets kill -9 (and is started again) or SIGSTOP for 5 s, every 2 s.

    chaos.py [--seconds N] [--seed S] [--asynchronous] [--backups B] [--durability D] [--coordinators C] [--away A] [--epochs E] [--keep-logs DIR]

3 ps, 3 workers, one coordinator or several on etcd. Jobs with R = 4 replicas follow one another until the time is up, so that
submission, start and the taking of the digest are hit as well; then the faults stop and the last job must end.
  Synchronous: the digest of each is that of the undisturbed run.
  Asynchronous: in each partition the version is the number of pushes that the job has, each replica's last sequence number is its number of
  steps (so each push was applied exactly once), and the accuracy is as usual. What was acknowledged on the way is counting_chaos.py's.
"""

import argparse
import os
import random
import shutil
import sys
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import Cluster, check, skip_without_etcd  # noqa: E402
from faults import Faults  # noqa: E402
from jobs import make_glyphs, small_job  # noqa: E402
from wire import final_counts  # noqa: E402

REPLICAS = 4
STEPS_PER_EPOCH = 30
RECOVERY = 180  # seconds that the last job may take once the faults have stopped


def settings_of(options):
    settings = {"partition_bytes": 4096, "backups": options.backups}
    if options.durability:
        settings["durability"] = options.durability
    if options.asynchronous:
        settings["strategy"] = "PARAMETER_SERVER"
    return settings


def undisturbed(epochs):
    with Cluster(ps=1, workers=1) as c:
        return c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"backups": 0}))["digest"]


def submit(c, path, settings, name):
    """Where the coordinator died under the call, the job may be there or not: its name tells."""
    def attempt():
        done = c.cairn("job", name, ok=False)
        if done.returncode != 0:
            c.try_submit(path, {**settings, "name": name})
        return c.cairn("job", name, ok=False, as_json=True).returncode == 0
    c.until(attempt, f"job {name} submitted", timeout=RECOVERY)
    return name


def counts(c, job):
    """None while a ps that was just started again is not back."""
    try:
        return list(final_counts(c.job(job)))
    except (RuntimeError, grpc.RpcError):
        return None


def check_job(c, options, job, status, want):
    if not options.asynchronous:
        check(status["digest"] == want, f"job {job}: digest {status['digest']}, undisturbed {want}")
        return "same digest"
    steps = options.epochs * STEPS_PER_EPOCH
    for partition, version, sequences in c.until(lambda: counts(c, job), "every partition is served"):
        check(sequences == [steps] * REPLICAS, f"job {job}, partition {partition}: last sequence numbers {sequences}, steps {steps}")
        check(version == steps * REPLICAS, f"job {job}, partition {partition}: {version} updates, {steps * REPLICAS} pushes")
    accuracy = c.until(lambda: c.try_evaluate(job), "an evaluation")["accuracy"]
    check(accuracy >= 0.9, f"job {job}: accuracy {accuracy}")
    return f"each of {steps * REPLICAS} pushes once, accuracy {accuracy:.3f}"


def run(options, want):
    with Cluster(ps=3, workers=3, **cluster_arguments(options)) as c:
        try:
            path = small_job(c.dir, make_glyphs(c.dir), options.epochs)
            done = []
            with Faults(c, [n for n in c.processes if not n.startswith("etcd")], options.seed, away=(0.0, options.away)) as faults:
                end = time.monotonic() + options.seconds
                number = 0
                while time.monotonic() < end:
                    number += 1
                    job = submit(c, path, settings_of(options), f"chaos-{number}")
                    status = watch(c, faults, job, end)
                    if status is not None:
                        done.append(job)
            for job in [f"chaos-{i + 1}" for i in range(number)]:
                status = c.wait(job, timeout=RECOVERY)
                print(f"{job}: {check_job(c, options, job, status, want)}{'' if job in done else ' (ended after the faults)'}", flush=True)
        finally:
            if options.keep_logs:
                os.makedirs(options.keep_logs, exist_ok=True)
                for name in c.processes:
                    shutil.copy(c.log_path(name), options.keep_logs)
    print(f"{number} jobs, {len(done)} of them ended under faults; {faults.count('kill -9')} x kill -9, {faults.count('SIGSTOP')} x SIGSTOP, "
          f"seed {options.seed}", flush=True)


def watch(c, faults, job, end):
    """The job's last status when it has ended; None when the time is up."""
    while time.monotonic() < end:
        faults.check()
        status = c.try_job(job)
        if status is not None:
            check(status["state"] not in ("FAILED", "CANCELLED"), f"job {job}: {status['state']}: {status['reason']}")
            if status["state"] == "SUCCEEDED":
                return status
        time.sleep(0.2)
    return None


def cluster_arguments(options):
    return {"coordinators": options.coordinators, "etcd": True} if options.coordinators > 1 else {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--asynchronous", action="store_true")
    parser.add_argument("--backups", type=int, default=0)
    parser.add_argument("--durability", default="")
    parser.add_argument("--coordinators", type=int, default=1)
    parser.add_argument("--away", type=float, default=1.0, help="seconds that a killed daemon stays away, at most")
    parser.add_argument("--epochs", type=int, default=40, help="of each job")
    parser.add_argument("--keep-logs", default="", help="directory for the daemons' logs")
    options = parser.parse_args()
    if options.coordinators > 1:
        skip_without_etcd()
    print(f"seed {options.seed}", flush=True)
    run(options, None if options.asynchronous else undisturbed(options.epochs))


if __name__ == "__main__":
    main()
