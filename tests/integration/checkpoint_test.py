"""Checkpoints: a job that resumes from one ends with the bits of the undisturbed run, whatever the ps and workers are
then. A damaged one is skipped; a killed chief leaves no partial one; a cluster that lost its ps' disks recovers by
itself.

    checkpoint_test.py [CASE]...
"""

import json
import os
import re
import sys

from cluster import Cluster, attempts, check
from jobs import make_glyphs, restart_all, small_job, undisturbed

EPOCHS = 6
STEPS_PER_EPOCH = 30


def checkpoints(directory):
    return sorted((n for n in os.listdir(directory) if n.startswith("step-")), key=lambda n: int(n[5:]))


def manifest(path):
    with open(os.path.join(path, "manifest.json")) as f:
        return json.load(f)


def kept(c, job):
    return [os.path.basename(k["path"]) for k in c.job(job).get("checkpoints", [])]


def resume_elsewhere():
    """Stops in the middle of an epoch and resumes with other ps and workers, reaching the same digest. Also tests
    keep_max, and what is reported about checkpoints."""
    want = undisturbed(EPOCHS)
    with Cluster(ps=2, workers=2) as c:
        data = make_glyphs(c.dir)
        directory = f"{c.dir}/checkpoints"
        settings = {"checkpoints.dir": directory, "checkpoints.every_steps": 20, "checkpoints.keep_max": 2}
        job = c.submit(small_job(c.dir, data, 3), {**settings, "partition_bytes": 4096})
        first = c.wait(job)
        # Only one is written at a time, so on a busy machine that of a step may come later.
        names = checkpoints(directory)
        check(len(names) == 2 and names[1] == "step-90", f"keep_max 2 left {names}")
        check(kept(c, job) == names, f"the job names {kept(c, job)}")
        step = int(names[0][5:])
        check(
            manifest(f"{directory}/{names[0]}")["step_in_epoch"] == step % 30,
            f"{names[0]} says where in the epoch it is",
        )
        check(names[0] in c.cairn("job", job).stdout, "cairn job lists the checkpoints")

        with Cluster(ps=3, workers=1, slots=2) as other:
            for at in (names[0], ""):
                again = other.submit(
                    small_job(other.dir, data, EPOCHS), {"resume_from": f"{directory}/{at}".rstrip("/")}
                )
                status = other.wait(again)
                check(
                    status["digest"] == want,
                    f"from {at or 'the newest'}: digest {status['digest']}, undisturbed {want}",
                )
            for field, value, said in (
                ("batch_size", 40, "batch_size"),
                ("optimizer", "sgd {}", "optimizer"),
                ("epochs", 1, "epochs"),
            ):
                done = other.cairn(
                    "submit",
                    f"{other.dir}/job.textproto",
                    "--set",
                    f"resume_from={directory}",
                    "--set",
                    f"{field}={value}",
                    ok=False,
                )
                check(done.returncode != 0 and said in done.stderr, f"{field}={value} is refused: {done.stderr}")
            # The newest one is damaged: the one before it is used.
            path = f"{directory}/step-90/model.safetensors"
            os.truncate(path, os.path.getsize(path) // 2)
            again = other.submit(small_job(other.dir, data, EPOCHS), {"resume_from": directory})
            status = other.wait(again)
            check(status["restored_from"].endswith(names[0]) and status["digest"] == want, f"torn: {status['digest']}")
            # A new job can start from its weights alone.
            again = other.submit(small_job(other.dir, data, 1), {"initial_weights": f"{directory}/{names[0]}"})
            check(
                float(other.wait(again)["epochs"][0]["train"]["loss"]) < float(first["epochs"][0]["train"]["loss"]),
                "it starts better",
            )
    print("resume_elsewhere: same digest", flush=True)


def chief_killed():
    """The chief gets kill -9 repeatedly while it writes: every checkpoint that exists is complete, and the digest is
    that of the undisturbed run."""

    def run(times):
        epochs, steps = EPOCHS * times, EPOCHS * times * STEPS_PER_EPOCH
        want = undisturbed(epochs)
        with Cluster(ps=1, workers=2) as c:
            directory = f"{c.dir}/checkpoints"
            job_file = small_job(c.dir, make_glyphs(c.dir), epochs)
            job = c.submit(job_file, {"checkpoints.dir": directory, "checkpoints.every_steps": 3})
            for i in range(3):
                c.wait_for_step(job, steps * (i + 1) // 6)
                chief = c.chief(job)
                c.kill(chief)
                c.restart(chief)
                c.wait_for_nodes(3)
            status = c.wait(job)
            check(status["digest"] == want, f"digest {status['digest']}, undisturbed {want}")
            check(checkpoints(directory)[-1] == f"step-{steps}", f"the last one is {checkpoints(directory)}")
            check(
                not [n for n in os.listdir(directory) if n.startswith(".partial")],
                f"left behind: {os.listdir(directory)}",
            )
            for name in checkpoints(directory):
                again = c.submit(job_file, {"resume_from": f"{directory}/{name}"})
                check(c.wait(again)["digest"] == want, f"from {name}")

    attempts(run)
    print("chief_killed: same digest", flush=True)


def disks_lost():
    """Every ps comes back with an empty data directory: the job resumes from its checkpoint by itself."""

    def run(times):
        epochs = EPOCHS * times
        with Cluster(ps=2, workers=2) as c:
            directory = f"{c.dir}/checkpoints"
            job = c.submit(
                small_job(c.dir, make_glyphs(c.dir), epochs),
                {"checkpoints.dir": directory, "checkpoints.every_steps": 7},
            )
            c.while_running(job, lambda status: len(status.get("checkpoints", [])) >= 2, "two checkpoints")
            restart_all(c)
            status = c.wait(job)
            check(int(status.get("restored_step", 0)) > 0, f"it was restored: {status.get('restored_from')}")
            check(
                status["digest"] == undisturbed(epochs), f"digest {status['digest']}, undisturbed {undisturbed(epochs)}"
            )

    attempts(run)
    print("disks_lost: same digest", flush=True)


def best_is_kept():
    with Cluster(ps=1, workers=1) as c:
        directory = f"{c.dir}/checkpoints"
        # From step 90 on each epoch is worse than the last, so the best checkpoint is not the last one.
        rates = {"optimizer.schedule": "{ piecewise_constant_decay { boundaries: 90 values: [0.003, 0.5] } }"}
        job = c.submit(
            small_job(c.dir, make_glyphs(c.dir), EPOCHS),
            {"checkpoints.dir": directory, "checkpoints.save_best": "val_loss", "checkpoints.keep_max": 1, **rates},
        )
        status = c.wait(job)
        check(status["digest"] == undisturbed(EPOCHS, **rates), "checkpoints change no bit")
        # Only one is written at a time, so there may be none for the ends of some epochs.
        written = [int(step) for step in re.findall(r"job 1: checkpoint \S*/step-(\d+)\n", c.log("coordinator"))]
        losses = {
            step: float(status["epochs"][step // STEPS_PER_EPOCH - 1]["validation"]["loss"])
            for step in written
            if step % STEPS_PER_EPOCH == 0
        }
        best = min(losses, key=losses.get)
        check(best < EPOCHS * STEPS_PER_EPOCH, f"the last epoch is the best: {losses}")

        def named():
            return [int(k["step"]) for k in c.job(job).get("checkpoints", []) if k.get("best")]

        c.until(lambda: named() == [best], f"the checkpoint of step {best} is named the best of {losses}")
        check(manifest(f"{directory}/best")["step"] == best, f"best: {manifest(directory + '/best')['step']}, {losses}")
    print("best_is_kept", flush=True)


def asynchronous():
    """A checkpoint of a running asynchronous job: each of its replicas continues from its own step."""

    def run(times):
        epochs = EPOCHS * times
        with Cluster(ps=2, workers=2) as c:
            directory = f"{c.dir}/checkpoints"
            settings = {"strategy": "PARAMETER_SERVER", "checkpoints.dir": directory, "checkpoints.every_steps": 20}
            job_file = small_job(c.dir, make_glyphs(c.dir), epochs)
            job = c.submit(job_file, settings)
            c.while_running(job, lambda status: len(status.get("checkpoints", [])) >= 2, "two checkpoints")
            c.cairn("cancel", job)
            held = manifest(f"{directory}/{checkpoints(directory)[-1]}")
            check(len(held["replica_step"]) == 4 and not held["synchronous"], f"{held['replica_step']}")
            again = c.submit(job_file, {"strategy": "PARAMETER_SERVER", "resume_from": directory})
            status = c.wait(again)
            check(int(status["step"]) == epochs * STEPS_PER_EPOCH, f"step {status['step']}")

    attempts(run)
    print("asynchronous: goes on", flush=True)


CASES = (resume_elsewhere, chief_killed, disks_lost, best_is_kept, asynchronous)


def main():
    wanted = sys.argv[1:]
    for case in CASES:
        if not wanted or case.__name__ in wanted:
            case()


if __name__ == "__main__":
    main()
