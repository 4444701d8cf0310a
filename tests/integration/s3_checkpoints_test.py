"""Goal: a job whose checkpoints, model files and weights lie on S3 ends with the bits of one that has them in folders,
while the server answers with errors, slowly, or not at all. A checkpoint exists with its manifest alone: a worker that
is killed while it writes one leaves none, and the next writer removes what it left. Old ones go. What cannot be written
is refused at submission, by field and cause.

The server is s3rver from npm; the test is skipped where npm cannot fetch it.
"""

import os
import re

from cluster import Cluster, check
from jobs import SMALL_CNN, make_glyphs, restart_alone, small_job, undisturbed
from s3_server import BUCKET, SECRET, run_with_server

EPOCHS = 6
STEPS_PER_EPOCH = 30
FILES = ["manifest.json", "model.safetensors", "optimizer.safetensors"]


def roots_of(c):
    return [
        *("--root", f"local={c.dir}/local:ro"),
        *("--root", f"runs={c.dir}/runs"),
        *("--root", f"out=s3://{BUCKET}/runs"),
        *("--root", f"read=s3://{BUCKET}/read:ro"),
        *("--s3-cache", f"{c.dir}/cache"),
    ]


def large_job(c, epochs, name):
    """Its checkpoints are larger than a part of an upload, 8 MiB."""
    wide = SMALL_CNN.replace("layers { flatten { } }", "layers { flatten { } }\n  layers { dense { units: 6000 } }")
    check(wide != SMALL_CNN, "the model has a layer to stand before")
    path = f"{c.dir}/{name}.textproto"
    with open(path, "w") as file:
        file.write(wide % {"data": "local:/glyphs", "epochs": epochs, "more": ""})
    return path


def whole(server, run):
    """The names of the checkpoints of a run on S3; fails where an object belongs to none."""
    keys = [key.removeprefix(f"runs/{run}/") for key in server.keys(f"runs/{run}/")]
    names = {key.split("/")[0] for key in keys if key.endswith("/manifest.json")}
    found = sorted(re.sub("-[0-9a-f]{16}[.]safetensors$", ".safetensors", key) for key in keys)
    check(found == sorted(f"{name}/{file}" for name in names for file in FILES), f"{run}: {keys}")
    return names


def steps(names):
    return sorted(int(name[5:]) for name in names if name.startswith("step-"))


def writes_under_faults(c, server, proxy):
    for kind in ("503", "cut", "drop", "slow"):
        proxy.fault(kind, f"PUT /{BUCKET}/runs/run1/step-", times=2)
    proxy.fault("cut", "manifest.json")
    proxy.fault("503", f"PUT /{BUCKET}/runs/models/")
    more = """
    checkpoints { dir: "out:/run1" every_epochs: 1 keep_max: 2 save_best: "val_loss" }
    callbacks { model_checkpoint { filepath: "out:/models/m-{epoch}.keras" } }
    """
    job = c.submit(small_job(c.dir, "local:/glyphs", 3, more))
    status = c.wait(job)
    check(not proxy.unused(), f"faults that nobody met: {proxy.unused()}")
    check(status["digest"] == undisturbed(3), f"digest {status['digest']}, with folders {undisturbed(3)}")
    names = whole(server, "run1")
    last = 3 * STEPS_PER_EPOCH
    check(len(steps(names)) <= 2 and steps(names)[-1] == last and "best" in names, f"keep_max 2 left {names}")
    check("runs/models/m-3.keras" in server.keys("runs/models/"), f"model files: {server.keys('runs/models/')}")
    check(not [key for key in server.keys("runs/") if "probe" in key], "the probes were removed")
    losses = [c.evaluate_with(job, *flags)["loss"] for flags in ((), ("--weights", f"out:/run1/step-{last}"))]
    check(losses[0] == losses[1], f"evaluated with the weights on the ps and on S3: {losses}")
    check(c.evaluate_with(job, "--weights", "out:/models/m-3.keras")["loss"] == losses[0], "of the model file")


def resumes(c, proxy):
    want = undisturbed(EPOCHS)
    for kind in ("503", "drop", "slow"):
        proxy.fault(kind, f"GET /{BUCKET}/runs/run1/")
    job = c.submit(small_job(c.dir, "local:/glyphs", EPOCHS), {"resume_from": "out:/run1"})
    status = c.wait(job)
    check(not proxy.unused(), f"faults that nobody met: {proxy.unused()}")
    check(status["restored_from"] == f"out:/run1/step-{3 * STEPS_PER_EPOCH}", f"from {status['restored_from']}")
    check(status["digest"] == want, f"resumed: digest {status['digest']}, undisturbed {want}")


def starts_from_weights(c, server):
    last = 3 * STEPS_PER_EPOCH
    [model] = server.keys(f"runs/run1/step-{last}/model-")
    digests = [
        c.wait(c.submit(small_job(c.dir, "local:/glyphs", 1), {"initial_weights": path}))["digest"]
        for path in (f"out:/run1/step-{last}", f"s3://{BUCKET}/{model}")
    ]
    check(digests[0] == digests[1], f"from a checkpoint and from its file: {digests}")
    check(digests[0] != undisturbed(1), "it began with the weights")


def survives_a_killed_writer(c, server, proxy):
    """The chief is killed while a part of its checkpoint is on its way."""
    local = large_job(c, 3, "large-local")
    want = c.wait(c.submit(local, {"checkpoints.dir": "runs:/large", "checkpoints.every_epochs": 1}))["digest"]
    proxy.hold_on()
    proxy.fault("hold", "partNumber=2", times=1_000_000)
    job = c.submit(large_job(c, 3, "large"), {"checkpoints.dir": "out:/run2", "checkpoints.every_epochs": 1})
    c.until(lambda: proxy.held > 0, "a part is on its way")
    check(proxy.pending("runs/run2/"), "an upload is not ended")
    chief = c.until(lambda: c.job(job).get("chief"), "there is a chief")
    c.kill(chief)
    keys = server.keys("runs/run2/")
    check(not [key for key in keys if key.endswith("manifest.json")], f"a manifest without a checkpoint: {keys}")
    proxy.heal()
    proxy.let_go()
    c.restart(chief)
    ended = c.wait(job)
    check(ended["digest"] == want, f"digest {ended['digest']}, with folders {want}")
    check(not proxy.pending("runs/run2/"), f"left behind: {proxy.pending('runs/run2/')}")
    check(steps(whole(server, "run2"))[-1] == 3 * STEPS_PER_EPOCH, "the last checkpoint is there")
    again = c.wait(c.submit(large_job(c, 3, "large"), {"resume_from": "out:/run2"}))
    check(again["digest"] == want, "what was uploaded in parts is read as it was written")


def says_what_was_not_written(c, proxy):
    proxy.fault("403", f"PUT /{BUCKET}/runs/run3/step-", times=1_000_000)
    job = c.submit(
        small_job(c.dir, "local:/glyphs", 1), {"checkpoints.dir": "out:/run3", "checkpoints.every_epochs": 1}
    )
    status = c.wait(job, state="ENDED_WITH_ERRORS")
    proxy.heal()
    for text in ("was not written", "out:/run3/step-", "HTTP 403 AccessDenied", "s3:PutObject"):
        check(text in status.get("reason", "") + status.get("checkpoint_error", ""), f"no {text!r} in: {status}")


def refused(c, says, more="", settings=None):
    sets = [a for key, value in (settings or {}).items() for a in ("--set", f"{key}={value}")]
    done = c.cairn("submit", small_job(c.dir, "local:/glyphs", 1, more), *sets, ok=False)
    check(done.returncode != 0, f"{more} {sets} is accepted")
    for text in says:
        check(text in done.stderr, f"{more} {sets}: no {text!r} in: {done.stderr}")


def is_refused(c):
    read_only = ['"read:/x" lies in the S3 root read=s3://bucket/read, which this worker only reads']
    refused(c, ["checkpoints.dir: ", *read_only], settings={"checkpoints.dir": "read:/x"})
    refused(c, ["resume_from: ", "out:/none"], settings={"resume_from": "out:/none"})
    refused(c, ["initial_weights: ", "out:/none.keras"], settings={"initial_weights": "out:/none.keras"})
    for callback in ('csv_logger { filename: "out:/x" }', 'tensorboard { log_dir: "out:/x" }'):
        says = [callback.split()[0], '"out:/x" lies in the S3 root out=s3://bucket/runs', "but not this"]
        refused(c, says, more="callbacks { %s }" % callback)
    refused(c, ["checkpoints.dir: ", "below no S3 root"], settings={"checkpoints.dir": "s3://other/x"})


def wrong_keys(c):
    c.kill("worker-1")
    os.environ["AWS_SECRET_ACCESS_KEY"] = "a-secret-that-nobody-has"
    restart_alone(c)
    says = ["checkpoints.dir: ", '"out:/x" cannot be written', "HTTP 403 SignatureDoesNotMatch", "check the keys"]
    refused(c, says, settings={"checkpoints.dir": "out:/x"})
    os.environ["AWS_SECRET_ACCESS_KEY"] = SECRET


def run(server, proxy):
    with Cluster(ps=1, workers=0) as c:
        for folder in ("local", "runs"):
            os.makedirs(f"{c.dir}/{folder}")
        os.rename(make_glyphs(c.dir), f"{c.dir}/local/glyphs")
        for name in ("worker-0", "worker-1"):
            c.add_worker(name, *roots_of(c))
        c.wait_for_nodes(3)
        writes_under_faults(c, server, proxy)
        resumes(c, proxy)
        starts_from_weights(c, server)
        survives_a_killed_writer(c, server, proxy)
        says_what_was_not_written(c, proxy)
        is_refused(c)
        wrong_keys(c)


def main():
    run_with_server(run)


if __name__ == "__main__":
    main()
