"""Sequences in real clusters.

  masked      outputs with masked steps: loss and metrics cover the steps that count, as numpy computes from the
              predictions; the digest does not depend on the number of workers
  open        a Keras model with open dimensions takes the shape of the data, or of data.image_height
  forecast    examples/gru_forecast: the remaining error is little more than the noise
  characters  examples/gpt_characters, on this repository's documents

    sequences_test.py [CASE]...
"""

import glob
import json
import os
import subprocess
import sys

import numpy as np
from cluster import Cluster, check

SOURCE = os.environ.get("CAIRN_SOURCE", ".")
STEPS, CLASSES, EXAMPLES = 5, 3, 46  # one eighth is for evaluation
TAGGER = """
name: "tagger"
model {
  layers { input { shape: 5 } }
  layers { embedding { input_dim: 8 output_dim: 6 mask_zero: true } }
  layers { bidirectional { layer { gru { units: 6 return_sequences: true } } } }
  layers { time_distributed { layer { dense { units: 3 activation: SOFTMAX } } } }
}
data { path: "%s" header: false validation_split: 0.25 targets { columns: ["5", "6", "7", "8", "9"] shape: 5 } }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
metrics { kind: ACCURACY }
optimizer { adam {} learning_rate: 0.01 }
batch_size: 12 epochs: 6 replicas: 3 seed: 4
"""


def write_tagged(path):
    """Ids whose class is their value modulo 3. The last ids of most examples are padding, and some examples have only
    padding."""
    rng = np.random.default_rng(1)
    ids = rng.integers(1, 8, (EXAMPLES, STEPS))
    ids[np.arange(STEPS)[None] >= rng.integers(0, STEPS + 1, EXAMPLES)[:, None]] = 0
    classes = np.where(ids == 0, 0, ids % CLASSES)
    np.savetxt(path, np.concatenate([ids, classes], axis=1), fmt="%d", delimiter=",")
    return ids, classes


def masked():
    digests = {}
    for workers in (1, 3):
        with Cluster(ps=2, workers=workers, slots=3) as c:
            data, job_file = os.path.join(c.dir, "tags.csv"), os.path.join(c.dir, "job.textproto")
            ids, classes = write_tagged(data)
            with open(job_file, "w") as f:
                f.write(TAGGER % data)
            job = c.submit(job_file)
            status = c.wait(job)
            digests[workers] = status["digest"]
            figures = c.evaluate(job, "train")
            c.cairn("predict", job, "--split", "train", "-o", os.path.join(c.dir, "p.npy"))
            p = np.load(os.path.join(c.dir, "p.npy")).reshape(-1, STEPS, CLASSES)
            c.cairn("predict", job, "--split", "validation", "-o", os.path.join(c.dir, "v.npy"))
            check(len(p) + len(np.load(os.path.join(c.dir, "v.npy"))) == EXAMPLES, "examples of both splits")
            check(np.isfinite(p).all(), "predictions that are not finite")
            check(figures["accuracy"] > 0.5, f"it learned nothing: {figures}")
            last = status["epochs"][-1]["train"]
            check(np.isfinite([float(last["loss"]), float(last["accuracy"])]).all(), f"figures: {last}")
    check(len(set(digests.values())) == 1, f"digests differ: {digests}")
    whole()


def whole():
    """All examples are for training, so their order is that of the file and numpy can compute the figures."""
    with Cluster(ps=1, workers=2) as c:
        data, job_file = os.path.join(c.dir, "tags.csv"), os.path.join(c.dir, "job.textproto")
        ids, classes = write_tagged(data)
        with open(job_file, "w") as f:
            f.write((TAGGER % data).replace("validation_split: 0.25", ""))
        job = c.submit(job_file)
        c.wait(job)
        figures = c.evaluate(job, "train")
        c.cairn("predict", job, "--split", "train", "-o", os.path.join(c.dir, "p.npy"))
        p = np.load(os.path.join(c.dir, "p.npy")).reshape(EXAMPLES, STEPS, CLASSES)
        counts, block = ids != 0, 12 // 3
        right = (p.argmax(axis=-1) == classes)[counts].sum()
        check(abs(figures["accuracy"] - right / counts.sum()) < 1e-6, f"{figures}, numpy {right} of {counts.sum()}")
        entropy = -np.log(np.take_along_axis(p, classes[:, :, None], axis=-1)[:, :, 0])
        loss = 0.0
        for begin in range(0, EXAMPLES, block):  # the last one is short
            part, of = slice(begin, begin + block), counts[begin : begin + block]
            loss += len(entropy[part]) * entropy[part][of].sum() / max(of.sum(), 1)
        check(abs(figures["loss"] - loss / EXAMPLES) < 1e-5, f"{figures}, numpy's loss {loss / EXAMPLES}")


def layer(kind, **config):
    return {"module": "keras.layers", "class_name": kind, "config": config, "registered_name": None}


def open_shapes():
    model = {
        "module": "keras",
        "class_name": "Sequential",
        "keras_version": "3.3.3",
        "config": {
            "name": "open",
            "layers": [
                layer("InputLayer", name="x", batch_shape=[None, None, 2], dtype="float32", sparse=False),
                layer("Conv1D", name="c", filters=4, kernel_size=[3], activation="relu"),
                layer("Flatten", name="f"),
                layer("Dense", name="d", units=1, activation="linear"),
            ],
        },
    }
    job = """
name: "open" data { path: "%s" header: false } loss { kind: MEAN_SQUARED_ERROR } optimizer { sgd {} }
batch_size: 4 epochs: 1 replicas: 1
"""
    with Cluster(ps=1, workers=1) as c:
        data, job_file, file = (os.path.join(c.dir, name) for name in ("x.csv", "job.textproto", "open.json"))
        numbers = np.random.default_rng(2).normal(size=(8, 13))
        np.savetxt(data, numbers, delimiter=",")
        with open(job_file, "w") as f:
            f.write(job % data)
        with open(file, "w") as f:
            json.dump(model, f)
        refused = c.cairn("models", file, ok=False)
        check("is open; say data.image_height" in refused.stderr, refused.stderr)
        shown = json.loads(c.cairn("models", file, "--input-shape", "9,2", as_json=True).stdout)
        check(shown["input_shape"] == [9, 2] and shown["layers"][-1]["parameters"] == 7 * 4 + 1, f"{shown}")
        refused = c.cairn("models", file, "--input-shape", "9,3", ok=False)
        check("cannot be [9,3]" in refused.stderr, refused.stderr)
        c.cairn("submit", job_file, "--model", file)
        status = c.wait("open")
        check(int(status["parameters"]) == (3 * 2 + 1) * 4 + 4 * 4 + 1, f"{status['parameters']} parameters")
        gone = c.cairn("submit", job_file, "--model", file, "--set", "data.path=/none/such.csv", ok=False)
        check("or submit the job where its data is" in gone.stderr, gone.stderr)
        # Without the label, the last column: it is taken so by the number of columns, and said.
        inputs = os.path.join(c.dir, "inputs.csv")
        np.savetxt(inputs, numbers[:, :12], delimiter=",")
        whole, without = (c.cairn("predict", "open", "--data", path, as_json=True) for path in (data, inputs))
        check(whole.stdout == without.stdout, "other predictions without the label")
        said = f"{inputs} has as many columns as the model has inputs: it was taken as having no label column"
        check(said in without.stderr and "no label column" not in whole.stderr, without.stderr + whole.stderr)
        # A column too few: the last one still counts as the label.
        short = os.path.join(c.dir, "short.csv")
        np.savetxt(short, numbers[:, :11], delimiter=",")
        done = c.cairn("predict", "open", "--data", short, ok=False)
        said = f"{short} has 11 columns, of which column 10, the last one, counts as the label; the model takes 12"
        check(done.returncode != 0 and said in done.stderr, done.stderr)
        other_orders(c, job_file, file, numbers)


def other_orders(c, job_file, model, numbers):
    """Columns that have other places than in the job's file are not taken one for another."""
    names = [f"c{i}" for i in range(12)] + ["y"]

    def write(file, order):
        path = os.path.join(c.dir, file)
        header = ",".join(names[i] for i in order)
        np.savetxt(path, numbers[:, order], delimiter=",", header=header, comments="")
        return path

    trained = write("named.csv", range(13))
    flags = {"data.path": trained, "data.header": "true", "data.label_column": "y", "name": "named"}
    c.cairn("submit", job_file, "--model", model, *(x for k, v in flags.items() for x in ("--set", f"{k}={v}")))
    c.wait("named")
    swapped = [1, 0, *range(2, 12)]
    for command, order in (("predict", swapped), ("evaluate", [12, *swapped])):
        done = c.cairn(command, "named", "--data", write("swapped.csv", order), "--split", "train", ok=False)
        said = f'("c1") would be taken for "c0" of {trained}, which the job was trained with'
        check(done.returncode != 0 and said in done.stderr, f"{command}: {done.stderr}")
    moved = write("moved.csv", [12, *range(12)])
    both = (c.cairn("predict", "named", "--data", path, as_json=True) for path in (trained, moved))
    check(len({done.stdout for done in both}) == 1, "other predictions with the label first")


def run_example(c, example, script, arguments, data, **settings):
    folder = os.path.join(SOURCE, "examples", example)
    path = os.path.join(c.dir, data)
    subprocess.run([sys.executable, os.path.join(folder, script), path, *arguments], check=True)
    job = c.submit(os.path.join(folder, "job.textproto"), {"data.path": path, **settings})
    c.wait(job)
    return c.evaluate(job, "validation")


def forecast():
    with Cluster(ps=1, workers=2) as c:
        figures = run_example(c, "gru_forecast", "make_series.py", [], "series.csv")
    print(figures, flush=True)
    check(figures["loss"] < 0.006, f"the error is far above the noise of 0.0025: {figures}")


def characters():
    texts = sorted(glob.glob(os.path.join(SOURCE, "docs", "*.md")))[:6]
    with Cluster(ps=1, workers=2) as c:
        figures = run_example(c, "gpt_characters", "make_characters.py", texts, "characters.csv", epochs=2)
    print(figures, flush=True)
    check(figures["loss"] < 2.7, f"it learned little of 96 characters, {np.log(96):.2f} at first: {figures}")


CASES = {"masked": masked, "open": open_shapes, "forecast": forecast, "characters": characters}

for case in sys.argv[1:] or CASES:
    CASES[case]()
    print(f"{case}: ok", flush=True)
