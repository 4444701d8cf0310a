"""Optimizers that update a variable as a whole (Lamb, Adafactor, Muon), and ScheduleFreeAdamW, in real clusters.

The digest depends neither on partitions, ps and workers nor on resuming from a checkpoint, nor on kill -9 of a ps; with
clipping, weight decay, a moving average and accumulation too. Checkpoints hold Keras' slots with Keras' shapes.
"""

import json
import os
import struct

import numpy
from cluster import Cluster, attempts, check
from gradients_test import EPOCHS, kills, matrix, resumed
from jobs import make_glyphs, small_job

SETTINGS = {
    "lamb": {"optimizer.lamb.beta_1": 0.8},
    "adafactor": {"optimizer.adafactor.clip_threshold": 0.9, "optimizer.learning_rate": 0.1},
    "muon": {"optimizer.muon.exclude_layers": "^dense/"},
    "schedule_free_adamw": {"optimizer.schedule_free_adamw.warmup_steps": 5},
}
ALL = {
    "optimizer.lamb.beta_1": 0.8,
    "optimizer.global_clipnorm": 1,
    "optimizer.weight_decay": 0.01,
    "optimizer.exclude_from_weight_decay": "bias",
    "optimizer.ema.momentum": 0.9,
    "optimizer.schedule.cosine_decay.decay_steps": 40,
    "accumulate_steps": 2,
}
MOMENTS = {"conv2d/kernel/momentum": [3, 3, 1, 8], "conv2d/kernel/velocity": [3, 3, 1, 8], "dense/bias/momentum": [10]}
SLOTS = {
    "lamb": MOMENTS,
    "adafactor": {
        "conv2d_1/kernel/r": [3, 3, 8],
        "conv2d_1/kernel/c": [3, 3, 16],
        "conv2d/kernel/c": [3, 3, 8],
        "dense/bias/velocity": [10],
    },
    "muon": MOMENTS,
    "schedule_free_adamw": MOMENTS,
}


def read_safetensors(path):
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(length)), f.read()
    header.pop("__metadata__", None)
    return {
        name: numpy.frombuffer(data[entry["data_offsets"][0] : entry["data_offsets"][1]], "<f4").reshape(entry["shape"])
        for name, entry in header.items()
    }


def slots(name):
    with Cluster(ps=2, workers=1) as c:
        directory = os.path.join(c.dir, "checkpoints")
        settings = {**SETTINGS[name], "checkpoints.dir": directory}
        status = c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir), 4), settings))
        accuracy = status["epochs"][-1]["train"]["accuracy"]
        check(accuracy > 0.5, f"{name}: accuracy {accuracy}")
        newest = max(os.listdir(directory), key=lambda entry: int(entry.rsplit("-", 1)[-1]))
        tensors = read_safetensors(os.path.join(directory, newest, "optimizer.safetensors"))
        for tensor, shape in SLOTS[name].items():
            check(tensor in tensors, f"{name}: {tensor} is not among {sorted(tensors)}")
            check(list(tensors[tensor].shape) == shape, f"{name}: {tensor} {tensors[tensor].shape}, not {shape}")
            check(bool((tensors[tensor] != 0).any()), f"{name}: {tensor} is 0 everywhere")
        check("conv2d/kernel/r" not in tensors, f"{name}: r of one row")


def main():
    digests = []
    for name, settings in SETTINGS.items():
        digests.append(matrix(settings))
        resumed({**settings, "optimizer.ema.momentum": 0.9})
        slots(name)
    digests.append(matrix(ALL))
    check(len(set(digests)) == len(digests), f"some settings do not matter: {digests}")
    attempts(lambda times: kills(SETTINGS["lamb"], EPOCHS * times))
    attempts(lambda times: kills(SETTINGS["muon"], EPOCHS * times))


if __name__ == "__main__":
    main()
