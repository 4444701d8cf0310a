"""Objectives in real clusters: targets of any shape, sample weights, Keras' losses, metrics and optimizers.

The weights of a linear model after some steps equal those of the same arithmetic in numpy; a small U-Net learns masks;
the digest and every figure, including AUC and IoU, do not depend on how many ps and workers there are.
"""

import os
import subprocess
import sys

import numpy as np
from cluster import Cluster, check
from jobs import make_glyphs
from keras_files import read_safetensors

SOURCE = os.environ.get("CAIRN_SOURCE", ".")
STEPS, RATE = 5, 0.1

LINEAR = """
model { layers { input { shape: 3 } } layers { name: "d" dense { units: 2 kernel_initializer { kind: ZEROS } } } }
data { path: "%s" targets { columns: ["y1", "y0"] } weight_column: "w" }
loss { %s } optimizer { sgd {} learning_rate: 0.1 } batch_size: 12 epochs: 5 replicas: %d
checkpoints { dir: "%s" }
"""


def numpy_weights(x, y, w, gradient):
    """This many steps over all examples: the loss is sum(w * loss) / examples."""
    kernel, bias = np.zeros((3, 2)), np.zeros(2)
    for _ in range(STEPS):
        slope = gradient(x @ kernel + bias - y) * w[:, None] / len(x)
        kernel, bias = kernel - RATE * x.T @ slope, bias - RATE * slope.sum(axis=0)
    return kernel, bias


def weighted_targets():
    rng = np.random.default_rng(3)
    x, y, w = rng.normal(size=(12, 3)), rng.normal(size=(12, 2)), rng.uniform(0, 3, 12)
    gradients = {
        "kind: MEAN_SQUARED_ERROR": lambda e: 2 * e / 2,
        "kind: HUBER delta: 0.5": lambda e: np.clip(e, -0.5, 0.5) / 2,
        "kind: LOG_COSH": lambda e: np.tanh(e) / 2,
    }
    with Cluster(ps=2, workers=2) as c:
        data = os.path.join(c.dir, "d.csv")
        with open(data, "w") as f:
            f.write("a,y0,b,y1,w,c\n")
            for i in range(12):
                row = (x[i, 0], y[i, 1], x[i, 1], y[i, 0], w[i], x[i, 2])
                f.write(",".join(f"{v:.9g}" for v in row) + "\n")
        for i, (loss, gradient) in enumerate(gradients.items()):
            run, job = os.path.join(c.dir, f"run{i}"), os.path.join(c.dir, "job.textproto")
            with open(job, "w") as f:
                f.write(LINEAR % (data, loss, 1 + 2 * (i % 2), run))
            c.wait(c.submit(job))
            got = read_safetensors(os.path.join(run, f"step-{STEPS}", "model.safetensors"))
            kernel, bias = numpy_weights(x, y, w, gradient)
            for name, want in (("d/kernel", kernel), ("d/bias", bias)):
                check(np.allclose(got[name], want, rtol=1e-5, atol=1e-6), f"{loss}: {name}: {got[name]}, not {want}")
            print(loss, "as numpy", flush=True)


def masks():
    """A U-Net on masks: mean IoU; the same bits and figures in two clusters."""
    found = []
    for ps, workers in ((1, 1), (2, 2)):
        with Cluster(ps=ps, workers=workers) as c:
            folder = os.path.join(c.dir, "shapes")
            make = os.path.join(SOURCE, "examples", "segmentation", "make_shapes.py")
            subprocess.run([sys.executable, make, folder, "600"], check=True)
            job = c.submit(
                os.path.join(SOURCE, "examples", "segmentation", "job.textproto"),
                {"data.path": os.path.join(folder, "pictures")},
            )
            status = c.wait(job)
            figures = c.evaluate(job)
            print(ps, workers, status["digest"], figures, flush=True)
            found.append((status["digest"], figures))
    check(found[0] == found[1], f"other bits or figures with other machines: {found}")
    iou = found[0][1]["mean_io_u"]
    check(iou >= 0.9, f"mean IoU {iou}, below 0.9")


def autoencoder():
    """Each new optimizer lowers the loss; metrics have Keras' names."""
    with Cluster(ps=2, workers=2) as c:
        data = make_glyphs(c.dir)
        example = os.path.join(SOURCE, "examples", "autoencoder", "job.textproto")
        for optimizer in ("adam", "Adadelta", "adamax", "Nadam", "lion", "ftrl"):
            rate = {"Adadelta": 1, "lion": 0.0005, "ftrl": 0.05}.get(optimizer, 0.002)
            settings = {"data.path": data, "optimizer": optimizer, "optimizer.learning_rate": rate}
            settings["metrics"] = "mae,mse"
            status = c.wait(c.submit(example, {**settings, "epochs": 3}))
            losses = [epoch["train"]["loss"] for epoch in status["epochs"]]
            print(optimizer, losses, flush=True)
            check(losses[-1] < losses[0], f"{optimizer}: the loss did not fall: {losses}")


if __name__ == "__main__":
    weighted_targets()
    masks()
    autoencoder()
