"""What happens to gradients and learning rates in real clusters: clipping by norm, schedules, weight decay, moving
average, accumulation.

The digest does not depend on partitions, ps and workers, nor on kill -9 of a ps between the two phases of clipping, nor
on resuming from a checkpoint. Each setting changes it. Asynchronous jobs learn with all of them.
"""

import os

from cluster import Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed

GLOBAL = {"optimizer.global_clipnorm": 0.5}
EACH = {"optimizer.clipnorm": 0.2}
ALL = {
    "optimizer.global_clipnorm": 1,
    "optimizer.weight_decay": 0.01,
    "optimizer.exclude_from_weight_decay": "bias",
    "optimizer.ema.momentum": 0.9,
    "optimizer.schedule.cosine_decay.decay_steps": 40,
    "optimizer.schedule.cosine_decay.warmup_steps": 5,
    "optimizer.schedule.cosine_decay.warmup_target": 0.01,
    "accumulate_steps": 2,
}
EPOCHS = 24


def run(ps, workers, settings):
    with Cluster(ps=ps, workers=workers) as c:
        return c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir)), settings))["digest"]


def matrix(settings):
    digests = {
        "1 ps, 1 worker": run(1, 1, settings),
        "3 ps, 2 workers, 4 KiB partitions": run(3, 2, {**settings, "partition_bytes": 4096}),
        "1 ps, 4 workers, 1 KiB partitions": run(1, 4, {**settings, "partition_bytes": 1024}),
    }
    check(len(set(digests.values())) == 1, f"{settings}: digests differ: {digests}")
    print(settings, digests, flush=True)
    return digests["1 ps, 1 worker"]


def kills(settings, epochs):
    """ps are killed with sums that are measured but not clipped yet: each step has two phases."""
    with Cluster(ps=3, workers=2) as c:
        job = c.submit(
            small_job(c.dir, make_glyphs(c.dir), epochs), {**settings, "partition_bytes": 2048, "backups": 1}
        )
        for i in range(3):
            c.wait_for_step(job, int(c.job(job)["step"]) + 30)
            c.kill(f"ps-{i}")
            c.restart(f"ps-{i}")
            c.wait_for_step(job, int(c.job(job)["step"]) + 10)
        digest = c.wait(job)["digest"]
        want = undisturbed(epochs, **settings)
        check(digest == want, f"{settings} with kills: digest {digest}, undisturbed {want}")


def resumed(settings):
    """Resumes from a checkpoint in the middle: schedule, slots, average and the position in the data continue."""
    with Cluster(ps=2, workers=2) as c:
        data = make_glyphs(c.dir)
        directory = os.path.join(c.dir, "checkpoints")
        whole = c.wait(
            c.submit(
                small_job(c.dir, data, 4),
                {**settings, "checkpoints.dir": directory, "checkpoints.every_steps": 10, "checkpoints.keep_max": 100},
            )
        )
        # wait() has seen all of them written: the job does not end before its last one. Only one is written at a time,
        # so some steps may be left out.
        written = sorted(whole["checkpoints"], key=lambda i: int(i["step"]))
        middle = written[(len(written) - 1) // 2]
        check(int(middle["step"]) < int(whole["step"]), f"checkpoints: {written}")
        again = c.wait(c.submit(small_job(c.dir, data, 4), {**settings, "resume_from": middle["path"]}))
        check(int(again.get("restored_step", 0)) == int(middle["step"]), f"restored_step: {again.get('restored_step')}")
        check(
            again["digest"] == whole["digest"],
            f"{settings}: resumed {again['digest']}, uninterrupted {whole['digest']}",
        )


def bfloat16():
    """compute_dtype: bits differ from FLOAT32's, but are the same on every cluster with one kind of processor."""
    with Cluster(ps=1, workers=1) as c:
        device = c.until(
            lambda: next((n["device"] for n in c.nodes() if n["role"] == "WORKER"), None), "the worker's device"
        )
    if "AMX" not in device and "BF16" not in device:
        print(f"compute_dtype not tried: {device} has no bfloat16", flush=True)
        return
    wide = {"model.layers[2].conv2d.filters": 16, "model.layers[6].conv2d.filters": 16}
    short = {**wide, "compute_dtype": "BFLOAT16"}
    digests = [run(1, 1, short), run(2, 3, {**short, "partition_bytes": 4096})]
    check(digests[0] == digests[1], f"BFLOAT16: digests differ: {digests}")
    check(run(1, 1, wide) != digests[0], "compute_dtype does not matter")


def late():
    """Dropped gradients: the clipped sum is the one whose norms were sent. Not bit-exact; the job must end, and
    learn."""
    with Cluster(ps=2, workers=2) as c:
        status = c.wait(
            c.submit(small_job(c.dir, make_glyphs(c.dir), 8), {**GLOBAL, "partition_bytes": 2048, "backup_replicas": 1})
        )
        accuracy = status["epochs"][-1]["train"]["accuracy"]
        check(accuracy > 0.5, f"backup_replicas: accuracy {accuracy}")


def asynchronous(settings):
    with Cluster(ps=2, workers=2) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), 8), {**settings, "strategy": "PARAMETER_SERVER"})
        status = c.wait(job)
        for epoch in status["epochs"]:
            check(int(epoch["train"]["examples"]) == 1800, f"each example once an epoch: {epoch}")
        accuracy = status["epochs"][-1]["train"]["accuracy"]
        check(accuracy > 0.5, f"{settings}: accuracy {accuracy}")


def main():
    plain = run(1, 1, {})
    digests = [plain, matrix(GLOBAL), matrix(EACH), matrix(ALL)]
    # Each of them must have an effect by itself.
    for key in ALL:
        if key.startswith(("optimizer.schedule", "optimizer.exclude")):
            continue
        one = {key: ALL[key]}
        digests.append(run(2, 1, one))
        print(one, digests[-1], flush=True)
    check(len(set(digests)) == len(digests), f"some settings do not matter: {digests}")
    attempts(lambda times: kills(GLOBAL, EPOCHS * times))
    resumed(ALL)
    bfloat16()
    late()
    asynchronous({**ALL, "optimizer.schedule.cosine_decay.decay_steps": 400})


if __name__ == "__main__":
    main()
