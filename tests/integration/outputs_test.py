"""Models with several inputs and outputs in real clusters. The examples learn. Figures have Keras' names; they and the
digest do not depend on the number of workers and are equal in every synchronous strategy. The weights after some steps
equal those of the same arithmetic in numpy. evaluate and predict return every output by name. Mismatches are rejected
by name."""

import json
import os
import subprocess
import sys

import numpy as np
from cluster import Cluster, check
from keras_files import read_safetensors

SOURCE = os.environ.get("CAIRN_SOURCE", ".")
HOUSES = os.path.join(SOURCE, "examples", "houses")
STEPS, RATE, N = 4, 0.1, 12

HEADS = """
model {
  layers { name: "u" input { shape: 1 } }
  layers { name: "v" input { shape: 2 } }
  layers { name: "uv" inputs: ["u", "v"] concatenate { } }
  layers { name: "h" dense { units: 3 activation: TANH kernel_initializer { kind: CONSTANT value: 0.1 } } }
  layers { name: "a" inputs: "h" dense { units: 2 kernel_initializer { kind: CONSTANT value: 0.2 } } }
  layers { name: "b" inputs: "h" dense { units: 3 activation: SOFTMAX kernel_initializer { kind: ZEROS } } }
  layers { name: "c" inputs: "h" dense { units: 1 } }
  outputs: ["c", "b", "a"]
}
data { path: "%(data)s" inputs { input: "v" columns: ["v1", "v0"] } inputs { input: "u" columns: "0" }
  targets { output: "a" columns: ["y0", "y1"] } targets { output: "b" columns: "k" } weight_column: "w" }
outputs { output: "a" loss { kind: MEAN_SQUARED_ERROR } weight: 2 }
outputs { output: "b" loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY } weight: 0.5 metrics { kind: ACCURACY } }
optimizer { sgd { } learning_rate: 0.1 } batch_size: 12 epochs: 4 replicas: %(replicas)d
checkpoints { dir: "%(run)s" }
"""


def numpy_heads(x, y, k, w):
    """The weights after the steps, and each step's losses before its update: (all, a, b, right)."""
    h = {"k": np.full((3, 3), 0.1), "b": np.zeros(3)}
    a = {"k": np.full((3, 2), 0.2), "b": np.zeros(2)}
    b = {"k": np.zeros((3, 3)), "b": np.zeros(3)}
    figures = []
    for _ in range(STEPS):
        t = np.tanh(x @ h["k"] + h["b"])
        e = t @ a["k"] + a["b"] - y
        z = t @ b["k"] + b["b"]
        p = np.exp(z - z.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        loss_a, loss_b = (w * (e**2).mean(axis=1)).mean(), (w * -np.log(p[np.arange(N), k])).mean()
        figures.append((2 * loss_a + 0.5 * loss_b, loss_a, loss_b, (p.argmax(axis=1) == k).mean()))
        slope_a = 2 * (2 * e / 2) * w[:, None] / N
        slope_b = 0.5 * (p - np.eye(3)[k]) * w[:, None] / N
        slope_h = (slope_a @ a["k"].T + slope_b @ b["k"].T) * (1 - t**2)
        for layer, below, slope in ((a, t, slope_a), (b, t, slope_b), (h, x, slope_h)):
            layer["k"] = layer["k"] - RATE * below.T @ slope
            layer["b"] = layer["b"] - RATE * slope.sum(axis=0)
    return {"h": h, "a": a, "b": b}, figures


def as_numpy():
    rng = np.random.default_rng(5)
    u, v, y = rng.normal(size=(N, 1)), rng.normal(size=(N, 2)), rng.normal(size=(N, 2))
    k, w = rng.integers(0, 3, N), rng.uniform(0, 3, N)
    with Cluster(ps=2, workers=3) as c:
        data = os.path.join(c.dir, "d.csv")
        with open(data, "w") as f:
            f.write("u,y1,v0,text,k,v1,w,y0\n")
            for i in range(N):
                row = [f"{n:.9g}" for n in (u[i, 0], y[i, 1], v[i, 0], k[i], v[i, 1], w[i], y[i, 0])]
                f.write(",".join(row[:3] + ["of no use"] + row[3:]) + "\n")
        x = np.concatenate([u, v[:, ::-1]], axis=1)  # inputs in the model's order, columns in the named order
        weights, figures = numpy_heads(x, y, k, w)
        for replicas in (1, 3):
            run, job = os.path.join(c.dir, f"run{replicas}"), os.path.join(c.dir, "job.textproto")
            with open(job, "w") as f:
                f.write(HEADS % {"data": data, "run": run, "replicas": replicas})
            number = c.submit(job)
            status = c.wait(number)
            got = read_safetensors(os.path.join(run, f"step-{STEPS}", "model.safetensors"))
            for layer, want in weights.items():
                for name, numbers in (("kernel", want["k"]), ("bias", want["b"])):
                    own = got[f"{layer}/{name}"]
                    check(np.allclose(own, numbers, rtol=1e-4, atol=1e-5), f"{layer}/{name}: {own}, not {numbers}")
            for epoch, (loss, loss_a, loss_b, right) in zip(status["epochs"], figures):
                train = epoch["train"]
                own = [train[f] for f in ("loss", "a_loss", "b_loss", "b_accuracy")]
                check(np.allclose(own, (loss, loss_a, loss_b, right), rtol=1e-4), f"{train}, not {figures}")
                check(set(train) >= {"loss", "a_loss", "b_loss", "b_accuracy"}, train)
        print("weights and figures as numpy", flush=True)
        predictions(c, number, data, x, weights)


def predictions(c, job, data, x, weights):
    t = np.tanh(x @ weights["h"]["k"] + weights["h"]["b"])
    a = t @ weights["a"]["k"] + weights["a"]["b"]
    z = t @ weights["b"]["k"] + weights["b"]["b"]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    out = os.path.join(c.dir, "p.csv")
    c.cairn("predict", job, "--split", "train", "-o", out)
    with open(out) as f:
        rows = [line.split(",") for line in f.read().splitlines()]
    check(rows[0] == ["example", "c", "b_0", "b_1", "b_2", "a_0", "a_1", "input"], rows[0])
    numbers = np.array(rows[1:], dtype=float)
    check(np.allclose(numbers[:, 2:5], p, atol=1e-4) and np.allclose(numbers[:, 5:7], a, atol=1e-4), numbers)
    c.cairn("predict", job, "--split", "train", "-o", os.path.join(c.dir, "p.npy"))
    own = np.load(os.path.join(c.dir, "p.a.npy"))
    check(own.shape == (N, 2) and np.allclose(own, a, atol=1e-4), own)
    check(np.load(os.path.join(c.dir, "p.c.npy")).shape == (N, 1), "an output without a loss, too")
    c.cairn("predict", job, "--split", "train", "-o", os.path.join(c.dir, "p.jsonl"))
    with open(os.path.join(c.dir, "p.jsonl")) as f:
        first = json.loads(f.readline())
    check(set(first["outputs"]) == {"a", "b", "c"} and np.allclose(first["outputs"]["b"], p[0], atol=1e-4), first)
    refused = c.cairn("predict", job, "--classes", ok=False)
    check("several outputs" in refused.stderr, refused.stderr)


def make_houses(directory):
    path = os.path.join(directory, "houses")
    subprocess.run([sys.executable, os.path.join(HOUSES, "make_houses.py"), path, "600"], check=True)
    return path


def examples():
    """The same bits and figures with one worker and three, in every synchronous strategy; asynchronous jobs learn."""
    found = {}
    names = {"loss", "price_loss", "kind_loss", "price_mean_absolute_error", "kind_accuracy"}
    for workers in (1, 3):
        with Cluster(ps=workers, workers=workers) as c:
            data = make_houses(c.dir)
            one = c.submit(os.path.join(HOUSES, "two_inputs.textproto"), {"data.path": data, "epochs": 20})
            c.wait(one)
            price = c.evaluate(one)["mean_absolute_error"]
            check(price < 0.15, f"two inputs: off by {price}")
            two = os.path.join(HOUSES, "two_outputs.textproto")
            strategies = ("MULTI_WORKER_MIRRORED", "MIRRORED", "CENTRAL_STORAGE") if workers == 3 else ("MIRRORED",)
            for strategy in strategies:
                log = os.path.join(c.dir, f"{strategy}.csv")
                settings = {"data.path": data, "strategy": strategy, "epochs": 15}
                watched = os.path.join(c.dir, "watched.textproto")
                with open(two) as f, open(watched, "w") as g:
                    g.write(f.read() + f'callbacks {{ csv_logger {{ filename: "{log}" }} }}\n')
                    g.write('callbacks { early_stopping { monitor: "val_kind_accuracy" patience: 15 } }\n')
                job = c.submit(watched, settings)
                status = c.wait(job)
                figures = {name: figure for name, figure in c.evaluate(job).items() if name in names}
                found[workers, strategy] = (status["digest"], figures)
                check(set(figures) == names, figures)
                check(figures["kind_accuracy"] > 0.85 and figures["price_mean_absolute_error"] < 0.2, figures)
                both = 4 * figures["price_loss"] + figures["kind_loss"]
                check(abs(figures["loss"] - both) < 1e-6, f"the loss is not the weighted sum: {figures}")
                with open(log) as f:
                    head = f.readline().strip().split(",")
                check(set(head) >= names | {f"val_{n}" for n in names}, head)
            if workers == 3:
                free = c.submit(two, {"data.path": data, "strategy": "PARAMETER_SERVER", "epochs": 15})
                c.wait(free)
                check(c.evaluate(free)["kind_accuracy"] > 0.8, c.evaluate(free))
                shown = c.cairn("job", free).stdout
                check("kind_accuracy" in shown and "price_loss" in shown, shown)
    print(found, flush=True)
    digests = {digest for digest, _ in found.values()}
    check(len(digests) == 1, f"digests differ: {found}")
    check(len({json.dumps(figures, sort_keys=True) for _, figures in found.values()}) == 1, f"figures differ: {found}")


def refusals():
    with Cluster(ps=1, workers=1) as c:
        data = make_houses(c.dir)
        with open(os.path.join(HOUSES, "two_outputs.textproto")) as f:
            good = f.read()

        def refused(change, says):
            path = os.path.join(c.dir, "bad.textproto")
            with open(path, "w") as f:
                f.write(change(good))
            done = c.cairn("submit", path, "--set", f"data.path={data}", ok=False)
            check(done.returncode != 0 and says in done.stderr, f"{done.returncode}: {done.stderr}\nwanted: {says}")

        def swap(a, b):
            check(a in good, a)
            return lambda text: text.replace(a, b)

        refused(swap('outputs { output: "kind"', 'outputs { output: "kinds"'), 'outputs[1].output: "kinds" is not')
        refused(swap('outputs { output: "kind"', 'outputs { output: "price"'), 'outputs[1].output: "price" twice')
        refused(lambda t: t + "loss { kind: MEAN_SQUARED_ERROR }", "loss: together with outputs")
        refused(swap('  targets { output: "price" columns: "price" }\n', ""), 'there is no entry for output "price"')
        refused(swap('columns: "price"', 'columns: "prize"'), "data.targets[0].columns[0]: ")
        refused(swap('"distance", "noise"', '"distance", "noises"'), 'has no column "noises"')
        refused(swap('input: "place"', 'input: "places"'), 'data.inputs[1].input: "places"')
        refused(swap('"kind" inputs: "trunk" dense { units: 3', '"kind" inputs: "trunk" dense { units: 2'), "3 classes")
        one = c.cairn("models", write_keras(c.dir)).stdout
        check('of output "price"' in one and "data.targets { output: ..." in one, one)


def write_keras(directory):
    """Writes a functional model with two outputs, as model.to_json() does."""

    def tensor(name):
        history = [name, 0, 0]
        return {"class_name": "__keras_tensor__", "config": {"shape": [None, 4], "keras_history": history}}

    def layer(kind, name, config, inputs):
        nodes = [{"args": [tensor(i) for i in inputs], "kwargs": {}}] if inputs else []
        config = {"name": name, **config}
        return {"module": "keras.layers", "class_name": kind, "name": name, "config": config, "inbound_nodes": nodes}

    layers = [
        layer("InputLayer", "x", {"batch_shape": [None, 4], "dtype": "float32"}, []),
        layer("Dense", "price", {"units": 1, "activation": "linear", "use_bias": True}, ["x"]),
        layer("Dense", "kind", {"units": 3, "activation": "softmax", "use_bias": True}, ["x"]),
    ]
    config = {"name": "m", "layers": layers, "input_layers": [["x", 0, 0]]}
    config["output_layers"] = [["price", 0, 0], ["kind", 0, 0]]
    path = os.path.join(directory, "two.json")
    with open(path, "w") as f:
        json.dump({"module": "keras", "class_name": "Functional", "config": config}, f)
    return path


if __name__ == "__main__":
    as_numpy()
    examples()
    refusals()
