"""Models are exported as .keras, .weights.h5 and safetensors, and imported unchanged. The files of a trained job, read
independently in Python, contain the same numbers; jobs that start from them, with each strategy, have the same accuracy
to the last digit."""

import json
import os

import h5py
import numpy

from cluster import Cluster, check
from jobs import make_glyphs, small_job
from keras_files import read_keras, read_safetensors

SOURCE = os.environ.get("CAIRN_SOURCE", ".")

# Two branches and a shortcut around them: not a Sequential model. It has no batch normalization, so that a step with a
# tiny learning rate leaves every bit unchanged.
BRANCHES = """
name: "branches"
model {
  name: "branches"
  layers { name: "image" input { shape: [28, 28, 1] } }
  layers { name: "scale" rescaling { scale: 0.003921569 } }
  layers { name: "stem" conv2d { filters: 6 kernel_size: 3 strides: 2 padding: SAME activation: RELU } }
  layers { name: "left" conv2d { filters: 8 kernel_size: 3 padding: SAME } }
  layers { name: "left_relu" activation { activation: RELU } }
  layers { name: "left_2" conv2d { filters: 8 kernel_size: 3 padding: SAME } }
  layers { name: "right" inputs: "stem" conv2d { filters: 8 kernel_size: 1 } }
  layers { name: "sum" inputs: ["left_2", "right"] add { } }
  layers { name: "both" inputs: ["sum", "stem"] concatenate { } }
  layers { name: "pool" max_pooling2d { } }
  layers { name: "flat" flatten { } }
  layers { name: "out" dense { units: 10 activation: SOFTMAX } }
}
data { path: "%s" validation_split: 0.1 }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
metrics { kind: ACCURACY }
optimizer { adam { } learning_rate: 0.003 }
batch_size: 60
epochs: 2
replicas: 2
seed: 3
"""
STILL = {"optimizer": "{ sgd { } learning_rate: 1e-30 }", "steps_per_epoch": 1, "epochs": 1}
STRATEGIES = ({"strategy": "MIRRORED"}, {"strategy": "MULTI_WORKER_MIRRORED"}, {"strategy": "PARAMETER_SERVER"})


def figures(evaluated):
    return evaluated["loss"], evaluated["accuracy"]


def export(c, job, name, *flags):
    path = os.path.join(c.dir, name)
    c.cairn("export", job, "-o", path, *flags)
    return path


def check_same_arrays(keras, safetensors, what):
    model, arrays = read_keras(keras)
    tensors = read_safetensors(safetensors)
    check(arrays.keys() == tensors.keys(), f"{what}: other variables in {keras}: {arrays.keys() ^ tensors.keys()}")
    for name, tensor in tensors.items():
        check(numpy.array_equal(arrays[name], tensor), f"{what}: {name} differs")
    return model


def check_torch(c, job, keras):
    torch = read_safetensors(export(c, job, "torch.safetensors", "--layout", "torch"))
    _, arrays = read_keras(keras)
    check(
        numpy.array_equal(torch["left.weight"], arrays["left/kernel"].transpose(3, 2, 0, 1)),
        "left.weight is left/kernel, OIHW",
    )
    # After a flatten of [7, 7, 14]: PyTorch's rows are ordered by channel, then height and width.
    rows = arrays["out/kernel"].reshape(7, 7, 14, 10).transpose(3, 2, 0, 1).reshape(10, -1)
    check(
        numpy.array_equal(torch["out.weight"], rows),
        "out.weight is out/kernel, transposed and its rows in PyTorch's order",
    )


def submit_model(c, job_file, model, settings):
    sets = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
    return str(json.loads(c.cairn("submit", job_file, "--model", model, *sets, as_json=True).stdout)["job_id"])


def sequential_models_go_round(c, data):
    job_file = small_job(c.dir, data, epochs=2)
    job = c.submit(job_file)
    c.wait(job)
    wanted = figures(c.evaluate(job))
    files = [export(c, job, name) for name in ("s.keras", "s.weights.h5", "s.safetensors")]
    model = check_same_arrays(files[0], files[2], "sequential")
    check(model["class_name"] == "Sequential", model["class_name"])
    for path in files:
        check(figures(c.evaluate_with(job, "--weights", path)) == wanted, f"{path}: another accuracy than {wanted}")
    other = submit_model(c, job_file, files[0], {"steps_per_epoch": 1, "epochs": 1})
    c.wait(other)
    check(
        figures(c.evaluate_with(other, "--weights", files[0])) == wanted, "the model of the archive: another accuracy"
    )


def functional_models_go_round(c, data):
    job_file = os.path.join(c.dir, "branches.textproto")
    with open(job_file, "w") as f:
        f.write(BRANCHES % data)
    job = c.submit(job_file)
    status = c.wait(job)
    wanted = figures(c.evaluate(job))
    check(wanted[1] > 0.5, f"it learned little: {wanted}")
    files = {
        name: export(c, job, name, *flags)
        for name, flags in (
            ("b.keras", ()),
            ("b.weights.h5", ()),
            ("b.safetensors", ()),
            ("t.safetensors", ("--layout", "torch")),
        )
    }
    model = check_same_arrays(files["b.keras"], files["b.safetensors"], "functional")
    check(model["class_name"] == "Functional" and model["config"]["name"] == "branches", model["class_name"])
    check_torch(c, job, files["b.keras"])
    for name, path in files.items():
        check(figures(c.evaluate_with(job, "--weights", path)) == wanted, f"{name}: another accuracy than {wanted}")
    for i, (name, path) in enumerate(files.items()):
        settings = {**STILL, **STRATEGIES[i % len(STRATEGIES)], "initial_weights": path}
        again = c.submit(job_file, settings)
        ended = c.wait(again)
        check(ended["digest"] == status["digest"], f"{name}, {settings['strategy']}: other bits")
        check(figures(c.evaluate(again)) == wanted, f"{name}, {settings['strategy']}: another accuracy")
    for strategy in STRATEGIES:  # starts from the archive's model and its weights
        again = submit_model(c, job_file, files["b.keras"], {**STILL, **strategy})
        c.wait(again)
        check(figures(c.evaluate(again)) == wanted, f"--model b.keras, {strategy['strategy']}: another accuracy")
        back = export(c, again, f"again-{strategy['strategy']}.keras")
        check(json.dumps(read_keras(back)[0]) == json.dumps(model), "the model of the archive goes out as it came in")
        for name, array in read_keras(back)[1].items():
            check(numpy.array_equal(array, read_keras(files["b.keras"])[1][name]), f"{name}: other numbers")
    return job_file, files


def legacy_files_go_in(c, job_file, files):
    """A model that Keras 2 saved as m.h5: a job starts from its model and weights; its evaluation equals that of the
    .keras file."""
    model, arrays = read_keras(files["b.keras"])
    path = os.path.join(c.dir, "legacy.h5")
    with h5py.File(path, "w") as f:
        f.attrs["model_config"] = json.dumps(model)
        root = f.create_group("model_weights")
        layers = [layer["config"]["name"] for layer in model["config"]["layers"]]
        root.attrs["layer_names"] = [name.encode() for name in layers]
        for layer in layers:
            names = [name for name in arrays if name.startswith(f"{layer}/")]
            group = root.create_group(layer)
            group.attrs["weight_names"] = [f"{name}:0".encode() for name in names]
            for name in names:
                group.create_dataset(f"{name}:0", data=arrays[name])
    shown = json.loads(c.cairn("models", path, as_json=True).stdout)
    check(shown["parameters"] == sum(a.size for a in arrays.values()), shown["parameters"])
    check("SPARSE_CATEGORICAL_CROSSENTROPY" in shown["training"]["losses"], shown["training"])
    job = submit_model(c, job_file, path, STILL)
    c.wait(job)
    wanted = figures(c.evaluate_with(job, "--weights", files["b.keras"]))
    check(figures(c.evaluate(job)) == wanted, f"legacy.h5: another accuracy than {wanted}")
    check(figures(c.evaluate_with(job, "--weights", path)) == wanted, "legacy.h5 as weights: another accuracy")


def reports_name_every_layer(c):
    layers = [
        {"class_name": "InputLayer", "config": {"batch_shape": [None, 4], "name": "i"}},
        {"class_name": "Lambda", "config": {"name": "fn"}},
        {"class_name": "Dense", "config": {"name": "d", "units": 2}},
        {"class_name": "Mine", "module": "mine", "config": {"name": "m"}},
    ]
    path = os.path.join(c.dir, "refused.json")
    with open(path, "w") as f:
        json.dump(json.dumps({"class_name": "Sequential", "config": {"name": "n", "layers": layers}}), f)
    done = c.cairn("models", path, "--report", ok=False, as_json=True)
    report = json.loads(done.stdout)
    check(done.returncode == 2 and not report["supported"], done)
    check([layer["supported"] for layer in report["layers"]] == [True, False, True, False], report)
    check("2 of 4 layers are refused" in c.cairn("models", path, "--report", ok=False).stdout, "the table")


def refused(c, *args):
    done = c.cairn(*args, ok=False)
    check(done.returncode == 2, f"{args}: exit {done.returncode}\n{done.stderr}")
    return done.stderr.strip()


def bad_files_are_named(c, job_file, files):
    def made(name, content):
        path = os.path.join(c.dir, name)
        with open(path, "wb") as f:
            f.write(content)
        return path

    with open(files["b.keras"], "rb") as f:
        archive = f.read()
    cut = made("cut.keras", archive[: len(archive) // 2])
    check(
        refused(c, "submit", job_file, "--model", made("model.json", b"["))
        == "cairn: model.keras_json: not JSON; give what model.to_json() returned, whole",
        "not JSON",
    )
    check(
        refused(c, "submit", job_file, "--model", made("model.txt", b"")).endswith(
            "model.txt: is neither a .keras or .h5 file, an .onnx file nor a .json file of model.to_json()"
        ),
        "another ending",
    )
    error = refused(c, "submit", job_file, "--set", f"initial_weights={cut}")
    check(f"{cut}: not a zip archive, or a damaged one: Not a zip archive" in error, error)
    error = refused(
        c,
        "submit",
        job_file,
        "--set",
        f"initial_weights={files['b.keras']}",
        "--set",
        "model.layers[3].conv2d.filters=9",
        "--set",
        "model.layers[5].conv2d.filters=9",
        "--set",
        "model.layers[6].conv2d.filters=9",
    )
    check(f'variable "left/kernel": shape [3,3,6,8] in {files["b.keras"]}, [3,3,6,9] in the model' in error, error)
    error = refused(c, "submit", job_file, "--set", 'model={ ready_made { name: "resnet19" } }')
    check(error.startswith('cairn: model.ready_made.name: "resnet19" is not known; use one of mlp, '), error)
    error = refused(c, "export", "1", "-o", os.path.join(c.dir, "x"), "--format", "hdf5")
    check(error == "cairn: --format hdf5: use safetensors, keras, weights.h5 or onnx", error)
    error = refused(c, "export", "1", "-o", os.path.join(c.dir, "x.keras"), "--layout", "torch")
    check(error == "cairn: --layout torch: only of --format safetensors; the other formats have one layout", error)


def ready_made_models_are_listed(c):
    models = {m["name"]: m for m in map(json.loads, c.cairn("models", as_json=True).stdout.splitlines())}
    check(
        models["resnet50"]["parameters"] == 25636712 and models["resnet50"]["non_trainable"] == 53120,
        models["resnet50"],
    )
    check("138,357,544" in c.cairn("models").stdout, "vgg16 in the table")
    lenet = json.loads(c.cairn("models", "lenet", "--input-shape", "32,32,3", "--classes", "7", as_json=True).stdout)
    check(lenet["layers"][-1]["output_shape"] == [7] and lenet["layers"][0]["output_shape"] == [32, 32, 3], lenet)
    check("conv2_block1_1_conv" in c.cairn("models", "resnet50").stdout, "the layers of resnet50")
    check(
        refused(c, "models", "resnet19").startswith('cairn: model.ready_made.name: "resnet19" is not known'),
        "another name",
    )


def ready_made_models_train(c, data, job_file):
    job = c.submit(job_file, {"model": '{ ready_made { name: "lenet" } }', "epochs": 1, "steps_per_epoch": 5})
    status = c.wait(job)
    check(status["parameters"] == 61706 or int(status["parameters"]) == 61706, status["parameters"])


def a_vision_transformer_learns(c, data):
    job = c.submit(os.path.join(SOURCE, "examples", "vit_glyphs", "job.textproto"), {"data.path": data, "epochs": 12})
    c.wait(job)
    figures = c.evaluate(job)
    print(figures, flush=True)
    check(figures["accuracy"] > 0.5, f"it learned little of ten digits: {figures}")


def main():
    with Cluster(ps=2, workers=2) as c:
        ready_made_models_are_listed(c)
        data = make_glyphs(c.dir)
        sequential_models_go_round(c, data)
        job_file, files = functional_models_go_round(c, data)
        legacy_files_go_in(c, job_file, files)
        reports_name_every_layer(c)
        ready_made_models_train(c, data, job_file)
        a_vision_transformer_learns(c, data)
        bad_files_are_named(c, job_file, files)


if __name__ == "__main__":
    main()
