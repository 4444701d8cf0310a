"""A process of a cairn.torch.Run, as a user's script is one: LeNet with batch normalization and dropout, four replicas.

    run_worker.py COORDINATOR NAME EPOCHS [drawn]     drawn: its starting weights are of its own, as without a seed

Used by python_run_test.py.
"""

import os
import sys
import time

import torch

import cairn.torch
from lenet_worker import TEST, TRAIN, Drawn, lenet


def run_of(name, epochs, drawn=False):
    model = lenet()
    if drawn:
        torch.seed()
        for layer in model:
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
    return cairn.torch.Run(
        name,
        model,
        torch.nn.functional.cross_entropy,
        Drawn(TRAIN, 2),
        validation=Drawn(TEST, 3),
        figures={"accuracy": cairn.torch.accuracy},
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9),
        batch_size=64,
        epochs=epochs,
        replicas=4,
        sampler=torch.utils.data.RandomSampler(range(TRAIN)),
        seed=7,
        set={"backups": 1, "partition_bytes": 65536},
    )


def main():
    coordinator, name, epochs = sys.argv[1:4]
    begin = os.environ.get("RUN_WORKER_BEGINS")  # it waits for this file
    if begin:
        print("waits to begin", flush=True)
        while not os.path.exists(begin):
            time.sleep(0.05)
    job = run_of(name, int(epochs), sys.argv[4:] == ["drawn"]).train(coordinator, progress=False, log_level="info")
    print(f"trained: {job.status().digest}", flush=True)


if __name__ == "__main__":
    main()
