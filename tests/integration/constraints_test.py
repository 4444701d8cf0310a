"""Constraints, the orthogonal regularizer and activity penalties in real clusters. After one step the weights are those
that numpy computes from the run without constraints, in every strategy. The losses include the penalties. The digest
does not depend on partitions, ps and workers, nor on kill -9 of a ps. A model can be exported as .keras and imported
again."""

import json
import os
import zipfile

import numpy

from cluster import Cluster, check
from jobs import make_glyphs, small_job, undisturbed
from keras_files import read_safetensors

EPSILON = 1e-7
CONSTRAINTS = {
    "model.layers[2].conv2d.kernel_constraint": "{ kind: MAX_NORM max_value: 0.25 axis: [0, 1, 2] }",
    "model.layers[3].batch_normalization.gamma_constraint": "{ kind: MAX_NORM max_value: 0.5 }",
    "model.layers[6].conv2d.kernel_constraint": "{ kind: UNIT_NORM axis: [0, 1, 2] }",
    "model.layers[9].dense.kernel_constraint": "{ kind: MIN_MAX_NORM min_value: 0.25 max_value: 0.5 rate: 0.5 }",
    "model.layers[9].dense.bias_constraint": "{ kind: NON_NEG }",
}
PENALTIES = {
    "model.layers[9].dense.kernel_regularizer": "{ orthogonal_factor: 0.5 orthogonal_columns: true }",
    "model.layers[6].conv2d.activity_regularizer": "{ l1: 0.0001 l2: 0.001 }",
}
ONE_STEP = {"optimizer": "{ sgd { } learning_rate: 0.5 }", "epochs": 1, "steps_per_epoch": 1}
STRATEGIES = ("MULTI_WORKER_MIRRORED", "MIRRORED", "CENTRAL_STORAGE", "PARAMETER_SERVER")


def weights(c, job):
    path = os.path.join(c.dir, "after.safetensors")
    c.cairn("export", job, "-o", path)
    return {name: tensor.astype(numpy.float64) for name, tensor in read_safetensors(path).items()}


def constrained(name, w):
    def norms(*axes):
        return numpy.sqrt(numpy.square(w).sum(axis=axes, keepdims=True))

    if name == "conv2d/kernel":
        return w * numpy.clip(norms(0, 1, 2), 0, 0.25) / (EPSILON + norms(0, 1, 2))
    if name == "batch_normalization/gamma":
        return w * numpy.clip(norms(0), 0, 0.5) / (EPSILON + norms(0))
    if name == "conv2d_1/kernel":
        return w / (EPSILON + norms(0, 1, 2))
    if name == "dense/kernel":
        return w * (0.5 * numpy.clip(norms(0), 0.25, 0.5) + 0.5 * norms(0)) / (EPSILON + norms(0))
    return numpy.maximum(w, 0) if name == "dense/bias" else w


def orthogonal(w):
    """Keras' OrthogonalRegularizer of columns with a factor of 0.5."""
    unit = w / numpy.linalg.norm(w, axis=0)
    product = numpy.abs(unit.T @ unit)
    pairs = w.shape[1] * (w.shape[1] - 1) / 2
    return 0.5 * 0.5 * (product.sum() - numpy.trace(product)) / pairs


def one_step_is_numpys(c, job_file):
    for strategy in STRATEGIES:
        settings = {**ONE_STEP, "strategy": strategy, "partition_bytes": 1024}
        if strategy == "PARAMETER_SERVER":
            settings["replicas"] = 1  # one push: no staleness
        jobs = [c.submit(job_file, {**settings, **fields}) for fields in ({}, CONSTRAINTS)]
        for job in jobs:
            c.wait(job)
        plain, after = weights(c, jobs[0]), weights(c, jobs[1])
        for name, tensor in plain.items():
            wanted = constrained(name, tensor)
            check(
                numpy.allclose(after[name], wanted, rtol=1e-5, atol=1e-6),
                f"{strategy}: {name}: {abs(after[name] - wanted).max()}",
            )
        check((after["dense/bias"] >= 0).all() and (plain["dense/bias"] < 0).any(), f"{strategy}: dense/bias")


def penalties_are_in_the_loss(c, job_file):
    settings = {**ONE_STEP, "optimizer.learning_rate": 1e-30}
    losses, values = [], None
    for fields in ({}, *({key: value} for key, value in PENALTIES.items())):
        job = c.submit(job_file, {**settings, **fields})
        losses.append(c.wait(job)["epochs"][0]["train"]["loss"])
        values = weights(c, job)
    wanted = orthogonal(values["dense/kernel"])
    check(abs(losses[1] - losses[0] - wanted) < 1e-5 * wanted + 1e-5, f"orthogonal: {losses}, numpy has {wanted}")
    # Each time the factor rises, the penalty rises by the same amount. (The penalty is a layer, which affects layers
    # that draw random numbers.)
    key = "model.layers[6].conv2d.activity_regularizer"
    for times in (2, 3):
        job = c.submit(job_file, {**settings, key: f"{{ l1: {0.0001 * times} l2: {0.001 * times} }}"})
        losses.append(c.wait(job)["epochs"][0]["train"]["loss"])
    first, second = losses[3] - losses[2], losses[4] - losses[3]
    check(first > 0.01 and abs(second - first) < 1e-4 * first, f"activity_regularizer: {losses}")


def digests_do_not_depend_on_the_cluster(data):
    runs = {}
    for what, fields in (("constraints", CONSTRAINTS), ("penalties", PENALTIES)):
        for ps, workers, more in (
            (1, 1, {}),
            (3, 3, {"partition_bytes": 1024}),
            (2, 3, {"partition_bytes": 4096, "strategy": "CENTRAL_STORAGE"}),
        ):
            with Cluster(ps=ps, workers=workers) as c:
                status = c.wait(c.submit(small_job(c.dir, data, 1), {**fields, **more}))
                runs.setdefault(what, set()).add(status["digest"])
    check(all(len(digests) == 1 for digests in runs.values()) and len(set.union(*runs.values())) == 2, f"{runs}")


def kills():
    """A ps that comes back, and a backup that takes over, have the same constrained values."""
    fields = {**CONSTRAINTS, **PENALTIES}
    with Cluster(ps=3, workers=2) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), 8), {**fields, "partition_bytes": 2048, "backups": 1})
        for i in range(2):
            c.wait_for_step(job, int(c.job(job)["step"]) + 20)
            c.kill(f"ps-{i}")
            c.restart(f"ps-{i}")
        digest = c.wait(job)["digest"]
    want = undisturbed(8, **fields)
    check(digest == want, f"with kills {digest}, undisturbed {want}")


def goes_out_and_in(c, job_file):
    job = c.submit(job_file, {**CONSTRAINTS, **PENALTIES, "epochs": 1})
    c.wait(job)
    path = os.path.join(c.dir, "m.keras")
    c.cairn("export", job, "-o", path)
    with zipfile.ZipFile(path) as archive:
        config = archive.read("config.json")
    layers = json.loads(config)["config"]["layers"]
    configs = {layer["config"]["name"]: layer["config"] for layer in layers}
    constraint = configs["dense"]["kernel_constraint"]
    wanted = {"min_value": 0.25, "max_value": 0.5, "rate": 0.5, "axis": 0}
    check(constraint["class_name"] == "MinMaxNorm" and constraint["config"] == wanted, str(constraint))
    regularizer = configs["dense"]["kernel_regularizer"]
    check(regularizer["config"] == {"factor": 0.5, "mode": "columns"}, str(regularizer))
    check(configs["conv2d_1"]["activity_regularizer"]["class_name"] == "L1L2", str(configs["conv2d_1"]))
    text = os.path.join(c.dir, "m.json")  # the model without its final weights
    with open(text, "wb") as f:
        f.write(config)
    out = c.cairn("submit", job_file, "--model", text, "--set", "epochs=1", as_json=True)
    again = str(json.loads(out.stdout)["job_id"])
    check(c.wait(again)["digest"] == c.wait(job)["digest"], "the archive's model trains to another digest")


def main():
    with Cluster(ps=2, workers=2) as c:
        data = make_glyphs(c.dir)
        job_file = small_job(c.dir, data, 1)
        one_step_is_numpys(c, job_file)
        penalties_are_in_the_loss(c, job_file)
        goes_out_and_in(c, job_file)
        digests_do_not_depend_on_the_cluster(data)
    kills()


if __name__ == "__main__":
    main()
