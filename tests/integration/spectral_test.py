"""Spectral normalization in real clusters: a layer whose kernel is divided by its largest singular value in each step.

The digest depends neither on partitions, ps and workers nor on resuming from a checkpoint, nor on kill -9 of a ps. With
a learning rate that changes nothing, kernel and vector are those of a power iteration in numpy, step by step. What
would not be Keras' is refused by name.
"""

import os

import numpy
from cluster import Cluster, attempts, check
from gradients_test import EPOCHS, kills, matrix, resumed, run
from jobs import make_glyphs, small_job
from optimizers_test import read_safetensors

WRAPPED = {
    "model.layers[6]": "{ name: 'sn' spectral_normalization { layer { name: 'conv' conv2d { filters: 16 kernel_size: 3 "
    "activation: RELU kernel_regularizer { l2: 0.001 } } } power_iterations: 2 } }",
    "model.layers[9]": "{ name: 'head' spectral_normalization { layer { dense { units: 10 activation: SOFTMAX } } } }",
}
STILL = {"optimizer": "{ sgd {} learning_rate: 1e-30 }"}


def normalized(kernel, u, iterations):
    """As keras.layers.SpectralNormalization, in float64."""
    w = kernel.reshape(-1, kernel.shape[-1]).astype(numpy.float64)
    u = u.astype(numpy.float64)
    for _ in range(iterations):
        v = u @ w.T
        v /= numpy.linalg.norm(v)
        u = v @ w
        u /= numpy.linalg.norm(u)
    return (kernel / (v @ w @ u.T)).astype(numpy.float32), u.astype(numpy.float32)


def power_iterations():
    with Cluster(ps=2, workers=2) as c:
        directory = os.path.join(c.dir, "checkpoints")
        settings = {**WRAPPED, **STILL, "checkpoints.dir": directory, "checkpoints.every_steps": 1}
        status = c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir), 1), {**settings, "checkpoints.keep_max": 100}))
        written = sorted(status["checkpoints"], key=lambda i: int(i["step"]))
        first, last = written[0], written[-1]
        steps = int(last["step"]) - int(first["step"])
        check(steps > 2, f"checkpoints: {written}")
        begin, end = (read_safetensors(os.path.join(i["path"], "model.safetensors")) for i in (first, last))
        for kernel, vector, iterations in (
            ("sn/conv/kernel", "sn/vector_u", 2),
            ("head/dense/kernel", "head/vector_u", 1),
        ):
            w, u = begin[kernel], begin[vector]
            for _ in range(steps):
                w, u = normalized(w, u, iterations)
            check(bool(numpy.allclose(w, end[kernel], rtol=1e-5, atol=1e-6)), f"{kernel} after {steps} steps")
            check(bool(numpy.allclose(u, end[vector], rtol=1e-4, atol=1e-5)), f"{vector} after {steps} steps")
            largest = numpy.linalg.svd(end[kernel].reshape(-1, end[kernel].shape[-1]), compute_uv=False)[0]
            check(abs(largest - 1) < 0.05, f"{kernel}: its largest singular value is {largest}")
            print(f"{kernel}: {steps} steps, largest singular value {largest}", flush=True)


def refusals():
    with Cluster(ps=1, workers=1) as c:
        job = small_job(c.dir, make_glyphs(c.dir))
        for settings, text in (
            ({"strategy": "PARAMETER_SERVER"}, 'strategy: layer "sn" has a spectral normalization'),
            ({"strategy": "CENTRAL_STORAGE"}, 'strategy: layer "sn" has a spectral normalization'),
            ({"accumulate_steps": 2}, 'accumulate_steps: layer "sn" has a spectral normalization'),
        ):
            sets = [word for item in {**WRAPPED, **settings}.items() for word in ("--set", "=".join(map(str, item)))]
            done = c.cairn("submit", job, *sets, ok=False)
            check(done.returncode != 0 and text in done.stderr, f"{settings}: {done.stdout} {done.stderr}")


def main():
    digest = matrix(WRAPPED)
    check(digest != run(1, 1, {}), "spectral normalization does not matter")
    resumed(WRAPPED)
    power_iterations()
    refusals()
    attempts(lambda times: kills(WRAPPED, EPOCHS * times))


if __name__ == "__main__":
    main()
