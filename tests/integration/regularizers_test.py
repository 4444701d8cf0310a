"""Regularizers of layers in real clusters: one step of gradient descent moves the weights by the penalty's gradient as
numpy computes it, in every strategy. The losses of training and evaluation include the penalty. The digest does not
depend on partitions, ps and workers, with clipping too. That of a frozen layer is ignored. A model that is exported as
.keras and imported again keeps its regularizers."""

import json
import os
import zipfile

import numpy

from cluster import Cluster, check
from jobs import make_glyphs, small_job
from keras_files import read_safetensors

RATE = 0.5
FACTORS = {
    "conv2d/kernel": (0.01, 0),
    "conv2d_1/kernel": (0.002, 0.03),
    "dense/kernel": (0, 0.0625),
    "dense/bias": (0, 0.5),
    "batch_normalization/gamma": (0, 0.25),
}
FIELDS = {
    "model.layers[2].conv2d.kernel_regularizer.l1": 0.01,
    "model.layers[3].batch_normalization.gamma_regularizer.l2": 0.25,
    "model.layers[6].conv2d.kernel_regularizer": "{ l1: 0.002 l2: 0.03 }",
    "model.layers[9].dense.kernel_regularizer.l2": 0.0625,
    "model.layers[9].dense.bias_regularizer.l2": 0.5,
}
ONE_STEP = {"optimizer": f"{{ sgd {{ }} learning_rate: {RATE} }}", "epochs": 1, "steps_per_epoch": 1}
STRATEGIES = ("MULTI_WORKER_MIRRORED", "MIRRORED", "CENTRAL_STORAGE", "PARAMETER_SERVER")


def export(c, job, name):
    path = os.path.join(c.dir, name)
    c.cairn("export", job, "-o", path)
    return path


def weights(c, job):
    return {
        name: tensor.astype(numpy.float64)
        for name, tensor in read_safetensors(export(c, job, "after.safetensors")).items()
    }


def penalty(values):
    return sum(
        l1 * numpy.abs(values[name]).sum() + l2 * numpy.square(values[name]).sum() for name, (l1, l2) in FACTORS.items()
    )


def gradient(name, values):
    l1, l2 = FACTORS.get(name, (0, 0))
    return l1 * numpy.sign(values) + 2 * l2 * values


def close(a, b, what, tolerance=1e-5):
    check(abs(a - b) <= tolerance * max(1, abs(a), abs(b)), f"{what}: {a} and {b}")


def one_step_is_numpys(c, job_file):
    begun = c.submit(job_file, {**ONE_STEP, "optimizer.learning_rate": 1e-30})  # gives the initial values
    c.wait(begun)
    before = weights(c, begun)
    plain_loss = c.wait(begun)["epochs"][0]["train"]["loss"]
    for strategy in STRATEGIES:
        settings = {**ONE_STEP, "strategy": strategy, "partition_bytes": 1024}
        if strategy == "PARAMETER_SERVER":
            settings["replicas"] = 1  # one push: no staleness
        jobs = {}
        for what, fields in (("plain", {}), ("regularized", FIELDS)):
            jobs[what] = c.submit(job_file, {**settings, **fields})
            c.wait(jobs[what])
        plain, regularized = weights(c, jobs["plain"]), weights(c, jobs["regularized"])
        for name, tensor in before.items():
            wanted = plain[name] - RATE * gradient(name, tensor)
            check(
                numpy.allclose(regularized[name], wanted, rtol=1e-5, atol=1e-6),
                f"{strategy}: {name}: {abs(regularized[name] - wanted).max()}",
            )
        losses = [c.wait(jobs[what])["epochs"][0]["train"]["loss"] for what in ("plain", "regularized")]
        close(losses[1] - losses[0], penalty(before), f"{strategy}: the penalty in the training's loss")
        if strategy != "PARAMETER_SERVER":
            close(losses[0], plain_loss, "the loss of the initial values")
        # An evaluation of the plain model gives the loss of the trained weights without the penalty.
        path = export(c, jobs["regularized"], "regularized.safetensors")
        whole = c.evaluate(jobs["regularized"])["loss"]
        bare = c.evaluate_with(jobs["plain"], "--weights", path, "--split", "test")["loss"]
        close(whole - bare, penalty(regularized), f"{strategy}: the penalty in the evaluation's loss", 1e-4)
    return before


def digests_do_not_depend_on_the_cluster(data):
    runs = {}
    for clip in ({}, {"optimizer.global_clipnorm": 0.5}):
        for ps, workers, more in (
            (1, 1, {}),
            (3, 2, {"partition_bytes": 1024}),
            (2, 3, {"partition_bytes": 4096, "strategy": "CENTRAL_STORAGE"}),
        ):
            with Cluster(ps=ps, workers=workers) as c:
                status = c.wait(c.submit(small_job(c.dir, data, 1), {**FIELDS, **clip, **more}))
                runs.setdefault(str(clip), set()).add(status["digest"])
    with Cluster(ps=1, workers=1) as c:
        runs["plain"] = {c.wait(c.submit(small_job(c.dir, data, 1)))["digest"]}
    check(
        all(len(digests) == 1 for digests in runs.values()) and len(set.union(*runs.values())) == 3, f"digests: {runs}"
    )


def frozen_layers_count_for_nothing(c, job_file, before):
    losses = []
    for fields in ({}, FIELDS):
        job = c.submit(job_file, {**ONE_STEP, **fields, "model.trainable_layers": "conv2d_1"})
        losses.append(c.wait(job)["epochs"][0]["train"]["loss"])
    l1, l2 = FACTORS["conv2d_1/kernel"]
    kernel = before["conv2d_1/kernel"]
    close(
        losses[1] - losses[0],
        l1 * numpy.abs(kernel).sum() + l2 * numpy.square(kernel).sum(),
        "the penalty of the one layer that trains",
    )


def goes_out_and_in(c, job_file):
    job = c.submit(job_file, {**FIELDS, "epochs": 1})
    c.wait(job)
    path = export(c, job, "m.keras")
    with zipfile.ZipFile(path) as archive:
        layers = json.loads(archive.read("config.json"))["config"]["layers"]
    configs = {layer["config"]["name"]: layer["config"] for layer in layers}
    regularizer = configs["conv2d_1"]["kernel_regularizer"]
    check(regularizer["class_name"] == "L1L2" and regularizer["config"] == {"l1": 0.002, "l2": 0.03}, str(regularizer))
    check(configs["dense"]["bias_regularizer"]["config"] == {"l2": 0.5}, str(configs["dense"]["bias_regularizer"]))
    out = c.cairn("submit", job_file, "--model", path, "--set", "epochs=1", "--set", "steps_per_epoch=1", as_json=True)
    again = str(json.loads(out.stdout)["job_id"])
    c.wait(again)
    losses = [c.evaluate_with(j, "--weights", path, "--split", "test")["loss"] for j in (job, again)]
    check(losses[0] == losses[1], f"the archive's model has another loss: {losses}")


def asynchronous(c, job_file):
    for clip in ({}, {"optimizer.clipnorm": 0.5}):
        status = c.wait(
            c.submit(
                job_file,
                {
                    **FIELDS,
                    **clip,
                    "strategy": "PARAMETER_SERVER",
                    "epochs": 8,
                    "model.layers[9].dense.bias_regularizer.l2": 0.001,
                    "model.layers[3].batch_normalization.gamma_regularizer.l2": 0.001,
                },
            )
        )
        accuracy = status["epochs"][-1]["train"]["accuracy"]
        check(accuracy > 0.5, f"asynchronous {clip}: accuracy {accuracy}")


def main():
    with Cluster(ps=2, workers=2) as c:
        data = make_glyphs(c.dir)
        job_file = small_job(c.dir, data, 1)
        before = one_step_is_numpys(c, job_file)
        frozen_layers_count_for_nothing(c, job_file, before)
        goes_out_and_in(c, job_file)
        asynchronous(c, job_file)
        digests_do_not_depend_on_the_cluster(data)


if __name__ == "__main__":
    main()
