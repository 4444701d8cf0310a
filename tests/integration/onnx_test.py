"""Goal: a trained model is exported as ONNX, and other programs compute the output of `cairn predict` from it. It is
imported again, with any strategy, with the same accuracy to the last digit. A model made by another program can be
trained.

The other programs are onnxruntime, if npm can fetch it, and a numpy evaluator (tests/unit/formats/onnx). Uses
Fashion-MNIST if available, else generated glyphs.
"""

import gzip
import json
import os
import sys

import numpy as np
import onnx

from cluster import SOURCE, Cluster, check, data_dir
from jobs import make_glyphs

sys.path.insert(0, os.path.join(SOURCE, "tests", "unit", "formats", "onnx"))
import onnx_numpy  # noqa: E402
from graph_builder import Builder  # noqa: E402
from ort import Onnxruntime  # noqa: E402

JOB = """
name: "%(name)s"
model {
  name: "%(name)s"
  layers { name: "image" input { shape: [28, 28, 1] } }
  layers { rescaling { scale: 0.003921569 } }
  layers { name: "first" conv2d { filters: 8 kernel_size: 3 padding: SAME strides: 2 %(activation)s } }
  %(norm)s
  layers { name: "second" conv2d { filters: 12 kernel_size: 3 activation: RELU } }
  layers { max_pooling2d { } }
  layers { flatten { } }
  layers { dropout { rate: 0.2 } }
  layers { name: "out" dense { units: 10 activation: SOFTMAX } }
}
data { path: "%(data)s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
metrics { kind: ACCURACY }
optimizer { adam { } learning_rate: 0.003 }
callbacks { model_checkpoint { filepath: "%(dir)s/%(name)s-{epoch}.onnx" } }
batch_size: 64
steps_per_epoch: 60
epochs: 2
replicas: 2
seed: 3
"""
NORM = "layers { batch_normalization { momentum: 0.9 } } layers { activation { activation: RELU } }"
# One step that leaves every bit unchanged.
STILL = {"optimizer": "{ sgd { } learning_rate: 1e-30 }", "steps_per_epoch": 1, "epochs": 1}
TOLERANCE = 1e-4
EXAMPLES = 300


def figures(evaluated):
    return evaluated["loss"], evaluated["accuracy"]


def images(data):
    for name in ("t10k-images-idx3-ubyte", "t10k-images-idx3-ubyte.gz"):
        path = os.path.join(data, name)
        if os.path.exists(path):
            with (gzip.open if name.endswith(".gz") else open)(path, "rb") as f:
                f.read(16)
                return np.frombuffer(f.read(28 * 28 * EXAMPLES), np.uint8).reshape(-1, 28, 28, 1).astype(np.float32)
    raise FileNotFoundError(data)


def predictions(c, job, name):
    path = os.path.join(c.dir, f"{name}.npy")
    c.cairn("predict", job, "--split", "test", "-o", path)
    return np.load(path)[:EXAMPLES]


def write_job(c, data, name, norm):
    path = os.path.join(c.dir, f"{name}.textproto")
    with open(path, "w") as f:
        f.write(
            JOB
            % {
                "name": name,
                "data": data,
                "dir": c.dir,
                "norm": NORM if norm else "",
                "activation": "" if norm else "activation: RELU",
            }
        )
    return path


def check_elsewhere(runtime, path, x, wanted, what):
    onnx.checker.check_model(onnx.load(path), full_check=True)
    by_numpy = onnx_numpy.run(onnx.load(path), x[:50])
    check(
        np.abs(by_numpy - wanted[:50]).max() < TOLERANCE,
        f"{what}: numpy differs by {np.abs(by_numpy - wanted[:50]).max()}",
    )
    if runtime is not None:
        by_runtime = runtime.run([(path, x)])[0]
        check(
            np.abs(by_runtime - wanted).max() < TOLERANCE,
            f"{what}: onnxruntime differs by {np.abs(by_runtime - wanted).max()}",
        )
        print(
            f"{what}: onnxruntime differs by {np.abs(by_runtime - wanted).max():.2g} at most, "
            f"numpy by {np.abs(by_numpy - wanted[:50]).max():.2g}",
            flush=True,
        )


def submit_model(c, job_file, model, settings):
    sets = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
    return str(json.loads(c.cairn("submit", job_file, "--model", model, *sets, as_json=True).stdout)["job_id"])


def goes_out_and_comes_back(c, runtime, data, x, norm):
    name = "norm" if norm else "plain"
    job_file = write_job(c, data, name, norm)
    job = c.submit(job_file)
    status = c.wait(job)
    wanted = figures(c.evaluate(job))
    check(wanted[1] > 0.5, f"it learned little: {wanted}")
    outputs = predictions(c, job, name)
    path, folded = os.path.join(c.dir, f"{name}.onnx"), os.path.join(c.dir, f"{name}-folded.onnx")
    c.cairn("export", job, "-o", path)
    c.cairn("export", job, "-o", folded, "--format", "onnx", "--fold-batch-norm")
    check_elsewhere(runtime, path, x, outputs, name)
    check_elsewhere(runtime, folded, x, outputs, f"{name}, folded")
    count = sum(node.op_type == "BatchNormalization" for node in onnx.load(folded).graph.node)
    check(count == 0, f"{count} batch normalizations are left")
    for file in (path, os.path.join(c.dir, f"{name}-2.onnx")):
        check(figures(c.evaluate_with(job, "--weights", file)) == wanted, f"{file}: another accuracy than {wanted}")
    if norm:
        return job_file, path
    for settings in (
        {"strategy": "MIRRORED"},
        {"strategy": "PARAMETER_SERVER", "replicas": 1},
        {"strategy": "MULTI_WORKER_MIRRORED", "replicas": 1},
    ):
        for with_model in (False, True):
            again = (
                submit_model(c, job_file, path, {**STILL, **settings})
                if with_model
                else c.submit(job_file, {**STILL, **settings, "initial_weights": path})
            )
            ended = c.wait(again)
            what = f"{settings}, " + ("--model" if with_model else "initial_weights")
            check(c.evaluate(again)["accuracy"] == wanted[1], f"{what}: another accuracy")
            if settings["strategy"] != "PARAMETER_SERVER":
                check(ended["digest"] == status["digest"], f"{what}: other bits")
    return job_file, path


def scale(model, name, factor):
    weight = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(factor), name))


def foreign_models_train(c, runtime, job_file, x):
    b = Builder(3)
    y = b.op("Relu", b.conv("input", "conv1", 8, 1, (3, 3), strides=[2, 2], pads=[1] * 4))
    y = b.op("MaxPool", y, kernel_shape=[2, 2], strides=[2, 2])
    y = b.gemm(b.op("Flatten", y), "fc", 10, 8 * 7 * 7)
    model = b.graph("torch", b.op("Softmax", y, axis=1), [1, 28, 28], True, [10]).model
    scale(model, "conv1.weight", 1 / 255)  # its pixels go up to 255; other models leave the scaling to the loader
    scale(model, "fc.weight", 0.1)
    path = os.path.join(c.dir, "torch.onnx")
    onnx.save(model, path)
    still = submit_model(c, job_file, path, STILL)
    c.wait(still)
    outputs = predictions(c, still, "torch")
    channels_first = x.transpose(0, 3, 1, 2)
    check(
        np.abs(onnx_numpy.run(model, channels_first) - outputs).max() < TOLERANCE, "torch.onnx: numpy has other outputs"
    )
    if runtime is not None:
        check(
            np.abs(runtime.run([(path, channels_first)])[0] - outputs).max() < TOLERANCE,
            "torch.onnx: onnxruntime has other outputs",
        )
    job = submit_model(c, job_file, path, {})
    epochs = c.wait(job)["epochs"]
    print(f"torch.onnx: accuracy {epochs[-1]['train']['accuracy']:.3f} in epoch {len(epochs)}", flush=True)
    check(epochs[-1]["train"]["accuracy"] > 0.5, f"torch.onnx does not train, chance is 0.1: {epochs}")
    layers = json.loads(c.cairn("models", path, as_json=True).stdout)["layers"]
    names = [layer["name"] for layer in layers]
    check(names[:3] == ["input", "Conv_0", "conv1"] and "fc" in names, names)  # it has a separate padding before conv1
    # The same names as in PyTorch's state_dict.
    tensors = os.path.join(c.dir, "torch.safetensors")
    c.cairn("export", still, "-o", tensors, "--layout", "torch")
    with open(tensors, "rb") as f:
        header = f.read(4096)
    for name in (b'"conv1.weight"', b'"conv1.bias"', b'"fc.weight"'):
        check(name in header, f"{name} is not in torch.safetensors")


def refused(c, *args):
    done = c.cairn(*args, ok=False)
    check(done.returncode == 2, f"{args}: exit {done.returncode}\n{done.stderr}")
    return done.stderr.strip()


def bad_files_are_named(c, job_file, path):
    with open(path, "rb") as f:
        whole = f.read()
    cut = os.path.join(c.dir, "cut.onnx")
    with open(cut, "wb") as f:
        f.write(whole[: len(whole) // 2])
    check(
        refused(c, "submit", job_file, "--model", cut) == f"cairn: {cut}: not an ONNX file, or a damaged one",
        "a cut file as a model",
    )
    error = refused(c, "submit", job_file, "--set", f"initial_weights={cut}")
    check(f"{cut}: not an ONNX file, or a damaged one" in error, error)
    model = onnx.load(path)
    next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Hardmax"
    other = os.path.join(c.dir, "other.onnx")
    onnx.save(model, other)
    error = refused(c, "submit", job_file, "--model", other)
    check("(Hardmax): Cairn has no layer for this operator" in error, error)
    error = refused(c, "export", "1", "-o", os.path.join(c.dir, "x.keras"), "--fold-batch-norm")
    check(
        error == "cairn: --fold-batch-norm: only of --format onnx; the other formats hold the model as it was trained",
        error,
    )


def main():
    runtime, why = Onnxruntime.find()
    if runtime is None:
        print(f"onnxruntime is skipped: {why}", flush=True)
    with Cluster(ps=2, workers=2) as c:
        real = data_dir() and os.path.join(data_dir(), "fashion-mnist")
        data = real if real and os.path.isdir(real) else make_glyphs(c.dir)
        x = images(data)
        job_file, path = goes_out_and_comes_back(c, runtime, data, x, norm=False)
        goes_out_and_comes_back(c, runtime, data, x, norm=True)
        foreign_models_train(c, runtime, job_file, x)
        bad_files_are_named(c, job_file, path)


if __name__ == "__main__":
    main()
