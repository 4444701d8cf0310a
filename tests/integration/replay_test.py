"""Goal: `cairn replay` computes steps of a job again with the bits of the job: 20 random steps of one whose worker and
ps were killed on the way, and steps of jobs with what else decides about bits: types on the wire, optimizers, clipping,
checkpoints that they begin with, callbacks. Other data, and a digest that is another one, are seen; a damaged
checkpoint is passed over; --find-nan names the step, the layer and the example that are to blame; what cannot be
replayed is refused with what to do.
"""

import json
import math
import os
import random

from cluster import Cluster, TooLate, attempts, check
from jobs import make_glyphs, small_job

EPOCHS = 24  # of 30 steps
SEED = int(os.environ.get("CAIRN_TEST_SEED", "20261129"))
POISONED = 37
DIFFERS = 4  # exit code

CSV_JOB = """
name: "%(name)s"
model {
  layers { input { shape: 4 } }
  layers { name: "scaled" rescaling { scale: 10 } }
  layers { dense { units: 16 activation: RELU } }
  layers { dense { units: 3 activation: SOFTMAX } }
}
data { path: "%(data)s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { sgd { } learning_rate: 0.01 }
batch_size: 12
epochs: 3
replicas: 3
seed: 5
%(more)s
"""


def replay(c, *args, code=0):
    done = c.cairn("replay", *args, ok=False, as_json=True)
    check(done.returncode == code, f"replay {args}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout) if done.stdout else None, done.stderr


def recorded(status):
    """The digests that the job has, by number of updates."""
    return {int(digest["step"]): digest["digest"] for digest in status.get("step_digests", [])}


def goes_on(c, job):
    c.wait_for_step(job, int(c.running(job, "it goes on")["step"]) + 10)


def train_with_kills(c, epochs):
    directory = f"{c.dir}/checkpoints"
    settings = {
        "backups": 1,
        "partition_bytes": 4096,
        "digest_every_steps": 1,
        "checkpoints.dir": directory,
        "checkpoints.every_steps": 6,
        "checkpoints.keep_max": 40,  # as far back as digests are kept
    }
    job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), settings)
    c.wait_for_step(job, 20)
    c.kill("worker-1")
    goes_on(c, job)
    c.restart("worker-1")
    c.kill("ps-1")
    c.restart("ps-1")
    goes_on(c, job)
    c.kill(c.chief(job))
    goes_on(c, job)
    return job, c.wait(job)


def random_steps(c, job, status):
    digests = recorded(status)
    last = int(status["total_steps"])
    if len(digests) < 20:  # one that is due while another is taken is left out
        raise TooLate(f"only {len(digests)} digests are recorded")
    check(digests.get(last, status["digest"]) == status["digest"], "the last digest is not that of the final weights")
    print(f"seed {SEED}: {len(digests)} digests", flush=True)
    for updates in random.Random(SEED).sample(sorted(digests), 20):
        result, _ = replay(c, job, "--step", str(updates - 1))
        check(result["check"]["updates"] == updates, result)
        check(result["check"]["same"] and result["digest"] == digests[updates], f"step {updates - 1}: {result}")
        check(0 <= result["first_step"] < updates and result["loss"] > 0, result)
        check(all(layer["weights"] > 0 and layer["update"] > 0 for layer in result["layers"]), result)
    result, _ = replay(c, job, "--step", str(last - 1))
    check(result["digest"] == status["digest"], f"the last step: {result}, the job has {status['digest']}")
    table = c.cairn("replay", job, "--step", str(last - 1)).stdout
    check("the same bits" in table and "conv2d_1" in table, table)


def differences(c, job, status):
    updates = max(recorded(status))
    other = f"{c.dir}/other"
    c.cairn("data", "make", "glyphs", other, "--count", "2000", "--test-count", "400", "--seed", "2")
    result, why = replay(c, job, "--step", str(updates - 1), "--data", other, code=DIFFERS)
    check(result["check"]["same"] is False and "the digest is" in why and "the data" in why, why)
    newest = max((k for k in status["checkpoints"] if int(k["step"]) < updates), key=lambda k: int(k["step"]))
    path = f"{newest['path']}/model.safetensors"
    with open(path, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        byte = f.read(1)[0]
        f.seek(-1, os.SEEK_END)
        f.write(bytes([byte ^ 1]))
    result, notes = replay(c, job, "--step", str(updates - 1))
    check(result["check"]["same"] and result["first_step"] < int(newest["step"]), result)
    check("not used: " in notes and path in notes, notes)
    result, notes = replay(c, job, "--step", str(updates - 1), "--checkpoint", newest["path"])
    check(result["first_step"] == 0 and result["check"]["same"], "from the initial values: the checkpoint is damaged")


# Settings of short jobs that are compared with replays of their steps.
JOBS = {
    "plain": {},
    "bfloat16 on the wire": {"wire_dtype": "BFLOAT16"},
    "int4 and int8 on the wire": {"wire_dtype": "INT4", "values_wire_dtype": "INT8"},
    "accumulated": {"accumulate_steps": 2},
    "ema": {"optimizer.ema.momentum": 0.9, "optimizer.ema.overwrite_frequency": 4},
    "clipped": {"optimizer.global_clipnorm": 0.05},
    "momentum": {"optimizer.sgd.momentum": 0.9, "optimizer.learning_rate": 0.01},
}
EVERY = 7  # steps between digests
REDUCED = "callbacks { reduce_lr_on_plateau { patience: 1 factor: 0.5 min_delta: 100 } }"


def compare(c, job, status, updates, what):
    """Replays the steps after which there are so many updates. Returns what the last replay says."""
    digests = recorded(status)
    for number in sorted(updates):
        result, _ = replay(c, job, "--step", str(number - 1))
        check(result["check"]["updates"] == number and result["check"]["same"], f"{what}: {result}")
        check(result["digest"] == digests[number], f"{what}: {result}")
    return result


def table(c):
    """Short jobs on two ps and two workers, each compared at its last step and at two others."""
    data = make_glyphs(c.dir, count=1000)
    chooser = random.Random(SEED)

    def run(name, settings, epochs=2, more=""):
        job = c.submit(
            small_job(c.dir, data, epochs, more), {"partition_bytes": 4096, "digest_every_steps": EVERY, **settings}
        )
        status = c.wait(job)
        last, digests = int(status["total_steps"]), recorded(status)
        chosen = chooser.sample(sorted(set(digests) - {last}), 2)
        compare(c, job, status, chosen, name)
        result, _ = replay(c, job, "--step", str(last - 1))
        check(last not in digests or result["digest"] == digests[last], f"{name}: {result}, {digests}")
        if "wire_dtype" not in settings:  # else the workers' values are rounded
            check(result["digest"] == status["digest"], f"{name}: {result}, at the end {status['digest']}")
        print(f"{name}: the same bits after {sorted(chosen)} and {last} steps", flush=True)
        return job, status, result

    last = c.wait(c.submit(small_job(c.dir, data, 2), {"digest_every_steps": 1000}))
    check(recorded(last) == {30: last["digest"]}, f"the last step has a digest, and no other: {last}")
    for name, settings in JOBS.items():
        first, _, _ = run(name, settings)
    c.cairn("export", first, "-o", f"{c.dir}/first.safetensors")
    _, _, result = run("initial weights", {"initial_weights": f"{c.dir}/first.safetensors"})
    check(result["from"] == f"{c.dir}/first.safetensors", result)
    run("with checkpoints", {"checkpoints.dir": f"{c.dir}/kept", "checkpoints.every_epochs": 1})
    _, _, result = run("resumed", {"resume_from": f"{c.dir}/kept"}, epochs=4)
    check(result["first_step"] == 30 and f"{c.dir}/kept/step-30" == result["from"], result)
    _, status, _ = run("stopped early", {}, 6, "callbacks { early_stopping { patience: 1 min_delta: 100 } }")
    check(int(status["total_steps"]) < 90, f"it was not stopped early: {status}")
    _, status, result = run("reduced", {}, 5, REDUCED)
    rates = [epoch["learning_rate"] for epoch in status["epochs"]]
    check(rates[-1] < rates[0] and math.isclose(result["learning_rate"], rates[-1], rel_tol=1e-6), f"{rates}: {result}")
    cancelled(c, data)


def cancelled(c, data):
    """In the epoch in which a job is cancelled its steps have the rate that a callback decided on."""
    job = c.submit(small_job(c.dir, data, 400, REDUCED), {"digest_every_steps": 1, "partition_bytes": 4096})
    # No step is waited for: workers report every 200 ms, and where an epoch takes as long, its end is all that is seen.
    c.while_running(job, lambda status: len(status.get("epochs", [])) >= 3, "epoch 4")
    c.cairn("cancel", job)
    status = c.job(job)
    check(status["state"] == "CANCELLED" and status["learning_rate"] > 0, status)
    closed, step = len(status["epochs"]), int(status["step"])
    decided = step if step // 15 == closed else 15 * closed
    compare(c, job, status, [u for u in recorded(status) if u <= decided][-2:], "cancelled")
    if decided < step:
        _, why = replay(c, job, "--step", str(step - 1), code=2)
        check("is not decided yet" in why, why)
    print(f"cancelled: the same bits, {step} steps done, {decided} of them decided", flush=True)


def write_csv(path, poisoned=None):
    with open(path, "w") as f:
        for i in range(60):
            if i == poisoned:
                f.write("3e38,1,1,1,0\n")  # scaled by 10 it is infinite
            else:
                f.write(f"{0.1 * (i % 7):.2f},{0.2 * (i % 3):.2f},0.3,{0.05 * (i % 11):.2f},{i % 3}\n")
    return path


def csv_job(c, name, data, more=""):
    path = f"{c.dir}/{name}.textproto"
    with open(path, "w") as f:
        f.write(CSV_JOB % {"name": name, "data": data, "more": more})
    return c.submit(path)


def not_finite(c):
    job = csv_job(c, "poisoned", write_csv(f"{c.dir}/poisoned.csv", POISONED))
    c.wait(job, state="ENDED_WITH_ERRORS")
    result, _ = replay(c, job, "--find-nan")
    found = result["found"]
    check(found and found["example"] == POISONED, result)
    check(found["kind"] == "output" and found["name"] == "scaled" and found["step"] < 5, result)
    check(result["last_step"] == found["step"] and result["first_step"] == 0, result)
    text = c.cairn("replay", "poisoned", "--find-nan").stdout
    check(f"{POISONED} of the training examples" in text and 'the output of layer "scaled"' in text, text)
    healthy = csv_job(c, "healthy", write_csv(f"{c.dir}/healthy.csv"), "digest_every_steps: 0")
    c.wait(healthy)
    result, _ = replay(c, healthy, "--find-nan")
    check(result["found"] is None and result["last_step"] == 14, result)
    result, _ = replay(c, healthy, "--step", "3")
    check(result["check"] is None, f"nothing is recorded: {result}")
    check("none: neither the job nor a checkpoint" in c.cairn("replay", healthy, "--step", "3").stdout, "it says so")
    return healthy


def wrong_uses(c, healthy):
    data = f"{c.dir}/healthy.csv"
    free = csv_job(c, "free", data, "strategy: PARAMETER_SERVER")
    late = csv_job(c, "late", data, "backup_replicas: 1")
    for job in (free, late):
        c.wait(job)
    cases = [
        ([healthy], "--step: say which step is to be computed again"),
        ([healthy, "--step", "15"], "has done 15 steps, but not step 15"),
        ([healthy, "--step=-1"], "has done 15 steps, but not step -1"),
        ([healthy, "--step", "x"], "--step"),
        ([healthy, "--step", "3", "--data", "/nowhere"], "/nowhere"),
        ([healthy, "--step", "3", "--device", "abacus"], "--device=abacus"),
        ([free, "--step", "3"], "strategy: the job is asynchronous"),
        ([late, "--step", "3"], "backup_replicas: a step has the gradients that came first"),
        ([healthy, "--step", "3", "--checkpoint", "/nowhere"], "--checkpoint: there is no /nowhere"),
        ([healthy, "--step", "3", "--checkpoint", "s3://a/b"], "--checkpoint: s3://a/b lies on S3"),
        ([healthy, "--step", "3", "--checkpoint", c.dir], "holds neither manifest.json nor step-N"),
        (["nobody", "--step", "3"], "nobody"),
    ]
    for args, says in cases:
        _, why = replay(c, *args, code=2)
        check(says in why, f"{args}: {why}")
    refused = c.cairn("submit", f"{c.dir}/free.textproto", "--set", "digest_every_steps=5", ok=False)
    check(refused.returncode == 2 and "digest_every_steps: " in refused.stderr, refused.stderr)


def with_kills(times):
    with Cluster(ps=2, workers=2, slots=2) as c:
        job, status = train_with_kills(c, EPOCHS * times)
        random_steps(c, job, status)
        differences(c, job, status)


def main():
    attempts(with_kills)
    print("20 random steps of a job with kills have its bits; other data and a damaged checkpoint are seen", flush=True)
    with Cluster(ps=2, workers=2, slots=2) as c:
        table(c)
    with Cluster(ps=1, workers=1, slots=2) as c:
        wrong_uses(c, not_finite(c))
    print("the example that is not finite is found; wrong uses are refused", flush=True)


if __name__ == "__main__":
    main()
