"""Chaos with real processes: every 2 s a random daemon gets kill -9 (and is restarted) or SIGSTOP for 5 s.

    chaos.py [--seconds N] [--seed S] [--asynchronous] [--backups B] [--durability D] [--coordinators C] [--away A]
             [--epochs E] [--keep-logs DIR] [--set FIELD=VALUE]... [--evaluators N] [--etcd-members N] [--tls] [--users]

3 ps, 3 workers, one coordinator or several on etcd. Jobs with R = 4 replicas run one after the other until the time is
up, so that faults also hit submission, start and the computation of the digest. Then the faults stop and the last job
must end.
  Synchronous: each job's digest is that of the undisturbed run.
  Asynchronous: in each partition the version is the number of pushes of the job, each replica's last sequence
  number is its number of steps (so each push was applied exactly once), and the accuracy is as usual.
  counting_chaos.py checks what was acknowledged on the way.
--etcd-members: members of the etcd behind several coordinators, which are hit like the daemons. --evaluators: they
validate every epoch's checkpoint. --users: simulated users submit, cancel, drain, predict and so on meanwhile
(users.py).
"""

import argparse
import contextlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import SOURCE, Cluster, check, skip_without_etcd  # noqa: E402
from faults import Faults  # noqa: E402
from jobs import make_glyphs, small_job  # noqa: E402
from users import Users  # noqa: E402
from wire import final_counts  # noqa: E402

REPLICAS = 4
STEPS_PER_EPOCH = 30
RECOVERY = 180  # seconds in which the last job must end after the faults have stopped


def settings_of(options):
    settings = {"partition_bytes": 4096, "backups": options.backups}
    if options.durability:
        settings["durability"] = options.durability
    if options.asynchronous:
        settings["strategy"] = "PARAMETER_SERVER"
    if options.evaluators:
        settings["validation_by"] = "BY_EVALUATOR"
    return {**settings, **mathematics_of(options)}


def mathematics_of(options):
    return dict(setting.split("=", 1) for setting in options.set)


def undisturbed(options):
    with Cluster(ps=1, workers=1) as c:
        job = small_job(c.dir, make_glyphs(c.dir), options.epochs)
        return c.wait(c.submit(job, {"backups": 0, **mathematics_of(options)}))["digest"]


def submit(c, path, settings, name):
    """If the coordinator dies during the call, the job may or may not exist; it is looked up by its name."""

    def attempt():
        done = c.cairn("job", name, ok=False)
        if done.returncode != 0:
            c.try_submit(path, {**settings, "name": name})
        return c.cairn("job", name, ok=False, as_json=True).returncode == 0

    c.until(attempt, f"job {name} submitted", timeout=RECOVERY)
    return name


def counts(c, job):
    """None while a restarted ps is not back yet."""
    try:
        return list(final_counts(c.job(job)))
    except (RuntimeError, grpc.RpcError):
        return None


def check_job(c, options, job, status, want):
    if not options.asynchronous:
        check(status["digest"] == want, f"job {job}: digest {status['digest']}, undisturbed {want}")
        return "same digest"
    steps = options.epochs * STEPS_PER_EPOCH
    groups = REPLICAS // int(mathematics_of(options).get("local_sync", 1))  # they run in lockstep and push one sum
    pushes = steps * groups
    for partition, version, sequences in c.until(lambda: counts(c, job), "every partition is served"):
        check(
            sequences == [steps] * groups,
            f"job {job}, partition {partition}: last sequence numbers {sequences}, steps {steps}",
        )
        check(version == pushes, f"job {job}, partition {partition}: {version} updates, {pushes} pushes")
    accuracy = c.until(lambda: c.try_evaluate(job), "an evaluation")["accuracy"]
    check(accuracy >= 0.9, f"job {job}: accuracy {accuracy}")
    return f"each of {pushes} pushes once, accuracy {accuracy:.3f}"


def run(options, want):
    with Cluster(ps=3, workers=3, **cluster_arguments(options.coordinators, options.etcd_members, options.tls)) as c:
        try:
            path = small_job(c.dir, make_glyphs(c.dir), options.epochs)
            for i in range(options.evaluators):
                c.add_worker(f"evaluator-{i}", "--role", "evaluator")
            done = []
            victims = [
                n for n in c.processes if n != "etcd"
            ]  # a single one is not hit: it holds the only copy of the state
            with Faults(c, victims, options.seed, away=(0.0, options.away)) as faults, beside(
                options, c, path
            ) as users:
                end = time.monotonic() + options.seconds
                number = 0
                while time.monotonic() < end:
                    number += 1
                    settings = settings_of(options)
                    if options.evaluators:
                        settings.update(
                            {"checkpoints.dir": f"{c.dir}/checkpoints-{number}", "checkpoints.every_epochs": 1}
                        )
                    job = submit(c, path, settings, f"chaos-{number}")
                    status = watch(c, faults, users, job, end)
                    if status is not None:
                        done.append(job)
            for job in [f"chaos-{i + 1}" for i in range(number)]:
                status = c.wait(job, timeout=RECOVERY)
                print(
                    f"{job}: {check_job(c, options, job, status, want)}"
                    f"{'' if job in done else ' (ended after the faults)'}",
                    flush=True,
                )
        finally:
            if options.keep_logs:
                os.makedirs(options.keep_logs, exist_ok=True)
                for name in c.processes:
                    shutil.copy(c.log_path(name), options.keep_logs)
    print(
        f"{number} jobs, {len(done)} of them ended under faults; "
        f"{faults.count('kill -9')} x kill -9, {faults.count('SIGSTOP')} x SIGSTOP, "
        f"seed {options.seed}",
        flush=True,
    )


def beside(options, c, path):
    return Users(c, path, options.seed, {"partition_bytes": 4096}) if options.users else contextlib.nullcontext()


def watch(c, faults, users, job, end):
    """Returns the job's last status once it has ended, or None if the time is up."""
    while time.monotonic() < end:
        faults.check()
        if users is not None:
            users.check()
        status = c.try_job(job)
        if status is not None:
            check(
                status["state"] not in ("FAILED", "CANCELLED", "ENDED_WITH_ERRORS"),
                f"job {job}: {status['state']}: {status['reason']}",
            )
            if status["state"] == "SUCCEEDED":
                return status
        time.sleep(0.2)
    return None


def cluster_arguments(coordinators, etcd_members=1, tls=False):
    more = {"ps_flags": ["--unix-socket", "none"]} if tls else {}  # all traffic is encrypted
    if coordinators == 1:
        return more
    return {"coordinators": coordinators, "etcd": True, "etcd_members": etcd_members, **more}


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
    parser.add_argument(
        "--set", action="append", default=[], metavar="FIELD=VALUE", help="of each job, and of the undisturbed one"
    )
    parser.add_argument("--evaluators", type=int, default=0)
    parser.add_argument("--etcd-members", type=int, default=1)
    parser.add_argument("--tls", action="store_true", help="mutual TLS between all daemons")
    parser.add_argument("--users", action="store_true", help="others use the cluster too")
    options = parser.parse_args()
    if options.coordinators > 1:
        skip_without_etcd()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="cairn-tls-") as certificates:
        if options.tls:
            subprocess.run(
                [f"{SOURCE}/deploy/make_certs.sh", certificates, "coordinator+ps=*+worker=*+admin:node"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            os.environ["CAIRN_TLS_DIR"] = f"{certificates}/node"
        run(options, None if options.asynchronous else undisturbed(options))


if __name__ == "__main__":
    main()
