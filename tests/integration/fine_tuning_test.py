"""Layers with trainable: false: the bits of their variables never change, whatever the optimizer, weight decay, moving
average, strategy and number of machines. The other layers learn, and synchronous jobs end with the same digest. With
training: false the moving statistics stay constant, while gamma and beta learn. The fine-tuning example learns from few
pictures what a model without the base does not. A model that is exported as .keras and imported again keeps what is
frozen, and what is called with training=False."""

import json
import os
import subprocess

import numpy

from cluster import BIN, SOURCE, Cluster, check
from jobs import make_glyphs, small_job
from keras_files import read_keras, read_safetensors

FROZEN = {
    "model.layers[2].trainable": "false",
    "model.layers[3].trainable": "false",
    "model.layers[6].trainable": "false",
}
BASE = ("conv2d/", "batch_normalization/", "conv2d_1/")
SETTINGS = (  # everything that moves weights
    {"optimizer": "{ adamw { weight_decay: 0.1 } learning_rate: 0.003 ema { momentum: 0.9 overwrite_frequency: 7 } }"},
    {"optimizer": "{ sgd { momentum: 0.9 } learning_rate: 0.05 weight_decay: 0.1 global_clipnorm: 0.5 }"},
)


def export(c, job, name):
    path = os.path.join(c.dir, name)
    c.cairn("export", job, "-o", path)
    return path


def check_frozen(before, after, what):
    moved = 0
    for name, tensor in before.items():
        if name.startswith(BASE):
            check(
                numpy.array_equal(after[name].view(numpy.uint32), tensor.view(numpy.uint32)),
                f"{what}: {name} is frozen, and moved",
            )
        else:
            moved += not numpy.array_equal(after[name], tensor)
    check(moved == 2, f"{what}: {moved} variables of the last layer moved, wanted 2")


def base_of(c, data):
    job_file = small_job(c.dir, data, epochs=1)
    job = c.submit(job_file)
    c.wait(job)
    path = export(c, job, "base.safetensors")
    return job_file, path, read_safetensors(path)


def frozen_variables_stay():
    digests = {}
    with Cluster(ps=2, workers=2) as c:
        job_file, path, before = base_of(c, make_glyphs(c.dir))
        settings = {**FROZEN, "initial_weights": path, "epochs": 1, "steps_per_epoch": 12, "partition_bytes": 1024}
        for i, around in enumerate(SETTINGS):
            for strategy in (
                {},
                {"strategy": "MIRRORED"},
                {"strategy": "CENTRAL_STORAGE"},
                {"strategy": "PARAMETER_SERVER"},
            ):
                if "PARAMETER_SERVER" in strategy.values() and "clipnorm" in around["optimizer"]:
                    continue  # not exact there, and therefore rejected
                what = f"{around} {strategy}"
                job = c.submit(job_file, {**settings, **around, **strategy})
                status = c.wait(job)
                check(
                    int(status["trainable_parameters"]) == 400 * 10 + 10,
                    f"{what}: {status['trainable_parameters']} trainable parameters",
                )
                check_frozen(before, read_safetensors(export(c, job, "after.safetensors")), what)
                if "PARAMETER_SERVER" not in strategy.values():
                    digests.setdefault(i, set()).add(status["digest"])
        goes_out_and_in(c, job_file, path)
        moving_statistics_stay(c, job_file, path)
    with Cluster(ps=1, workers=1) as c:
        job_file, path, _ = base_of(c, make_glyphs(c.dir))
        for i, around in enumerate(SETTINGS):
            status = c.wait(
                c.submit(job_file, {**FROZEN, "initial_weights": path, "epochs": 1, "steps_per_epoch": 12, **around})
            )
            digests[i].add(status["digest"])
    print(digests, flush=True)
    check(all(len(d) == 1 for d in digests.values()), f"digests differ: {digests}")


def goes_out_and_in(c, job_file, weights):
    job = c.submit(job_file, {**FROZEN, "initial_weights": weights, "epochs": 1, "steps_per_epoch": 2})
    c.wait(job)
    archive = export(c, job, "frozen.keras")
    config, before = read_keras(archive)
    trainable = {layer["config"]["name"]: layer["config"].get("trainable") for layer in config["config"]["layers"]}
    check(
        [trainable[n] for n in ("conv2d", "batch_normalization", "conv2d_1", "dense")] == [False, False, False, True],
        trainable,
    )
    again = str(
        json.loads(c.cairn("submit", job_file, "--model", archive, "--set", "epochs=1", as_json=True).stdout)["job_id"]
    )
    c.wait(again)
    check_frozen(before, read_keras(export(c, again, "again.keras"))[1], "the model of the archive")
    done = c.cairn(
        "submit",
        job_file,
        *[f for k, v in {**FROZEN, "model.layers[9].trainable": "false"}.items() for f in ("--set", f"{k}={v}")],
        ok=False,
    )
    check(
        done.returncode == 2
        and done.stderr == "cairn: model.layers: nothing is trained; leave `trainable: false` out at one layer with "
        "variables, such as the last\n",
        done.stderr,
    )


def moving_statistics_stay(c, job_file, weights):
    """base(x, training=False), Keras' recipe for fine-tuning: three steps of SGD leave every bit of the moving
    statistics unchanged."""

    def check_called(before, after, frozen, what):
        for name, tensor in before.items():
            stays = "/moving_" in name or name.startswith(frozen)
            same = numpy.array_equal(after[name].view(numpy.uint32), tensor.view(numpy.uint32))
            check(same == stays, f"{what}: {name} {'moved' if stays else 'did not move'}")

    before = read_safetensors(weights)
    check(before["batch_normalization/moving_mean"].any(), "moving statistics that never moved")
    sgd = "{ sgd { } learning_rate: 0.05 }"
    settings = {
        "model.layers[3].training": "false",
        "initial_weights": weights,
        "epochs": 1,
        "steps_per_epoch": 3,
        "optimizer": sgd,
    }
    for half in ({}, {"model.layers[2].trainable": "false"}):
        job = c.submit(job_file, {**settings, **half})
        c.wait(job)
        check_called(
            before, read_safetensors(export(c, job, "called.safetensors")), ("conv2d/",) if half else (), f"{half}"
        )
    archive = export(c, job, "called.keras")
    config, before = read_keras(archive)
    calls = {
        layer["name"]: layer["inbound_nodes"][0]["kwargs"]
        for layer in config["config"]["layers"]
        if layer["inbound_nodes"]
    }
    check({name for name, kwargs in calls.items() if kwargs == {"training": False}} == {"batch_normalization"}, calls)
    again = str(
        json.loads(
            c.cairn(
                "submit",
                job_file,
                "--model",
                archive,
                "--set",
                f"optimizer={sgd}",
                "--set",
                "steps_per_epoch=3",
                "--set",
                "epochs=1",
                as_json=True,
            ).stdout
        )["job_id"]
    )
    c.wait(again)
    check_called(
        before, read_keras(export(c, again, "called_again.keras"))[1], ("conv2d/",), "the model of the archive"
    )


def the_example():
    """As in examples/fine_tuning/README.md."""

    def make(name, count, test_count, seed):
        path = os.path.join(c.dir, name)
        subprocess.run(
            [
                os.path.join(BIN, "cairn"),
                "data",
                "make",
                "glyphs",
                path,
                "--count",
                str(count),
                "--test-count",
                str(test_count),
                "--seed",
                str(seed),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return path

    with Cluster(ps=2, workers=2) as c:
        base = c.submit(
            os.path.join(SOURCE, "examples/glyphs/job.textproto"), {"data.path": make("glyphs", 12000, 100, 1)}
        )
        c.wait(base)
        weights = export(c, base, "glyphs.safetensors")
        example = os.path.join(SOURCE, "examples/fine_tuning/job.textproto")
        few = {"data.path": make("few", 300, 2000, 2)}
        tuned = c.submit(example, {**few, "initial_weights": weights})
        status = c.wait(tuned)
        fresh = c.submit(
            example,
            {
                **few,
                "initial_weights": "",
                "initial_weights_skip": "",
                **{f"model.layers[{i}].trainable": "true" for i in (2, 4, 7)},
            },
        )
        c.wait(fresh)
        accuracies = [c.evaluate(job)["accuracy"] for job in (tuned, fresh)]
        print(
            f"300 pictures: fine-tuned {accuracies[0]:.4f}, "
            f"{status['trainable_parameters']} of {status['parameters']} parameters trained; "
            f"all of it from the beginning {accuracies[1]:.4f}",
            flush=True,
        )
        check(accuracies[0] >= 0.93 and accuracies[0] > accuracies[1], accuracies)


def main():
    frozen_variables_stay()
    the_example()


if __name__ == "__main__":
    main()
