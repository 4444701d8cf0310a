"""LeNet in PyTorch on Fashion-MNIST, by cairn.torch.Run.

    torch_lenet.py DATA [--epochs N] [--replicas N] [--examples N] [--seed N]

DATA: the folder with the four files of Fashion-MNIST (or MNIST) in the IDX format, gzipped. Every process that runs the
script computes; $CAIRN_COORDINATOR names the cluster, else each has a local one.
"""

import argparse
import gzip
import math
import os

import numpy
import torch

import cairn
import cairn.torch

nn = torch.nn


def read(path, dims):
    """An array of bytes. The format: two zero bytes, 8, the number of axes, their sizes, the numbers."""
    with gzip.open(path, "rb") as file:
        header = file.read(4 + 4 * dims)
        if header[:4] != bytes([0, 0, 8, dims]):
            raise ValueError(f"{path}: is no IDX file of bytes with {dims} axes")
        shape = [int(side) for side in numpy.frombuffer(header, ">i4", dims, 4)]
        return torch.from_numpy(numpy.frombuffer(file.read(), "u1").reshape(shape).copy())


def dataset(folder, split, examples=None):
    pictures = read(os.path.join(folder, f"{split}-images-idx3-ubyte.gz"), 3)[:examples]
    labels = read(os.path.join(folder, f"{split}-labels-idx1-ubyte.gz"), 1)[:examples]
    return torch.utils.data.TensorDataset(pictures.unsqueeze(1).float() / 255, labels.long())


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 16, 5, padding=2),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--examples", type=int, default=None, help="of each split; default: all")
    parser.add_argument("--seed", type=int, default=0)
    flags = parser.parse_args()
    torch.manual_seed(flags.seed)
    model = lenet()
    train = dataset(flags.data, "train", flags.examples)
    steps = flags.epochs * math.ceil(len(train) / 64)
    run = cairn.torch.Run(
        f"lenet-{flags.seed}",
        model,
        nn.functional.cross_entropy,
        train,
        validation=dataset(flags.data, "t10k", flags.examples),
        figures={"accuracy": cairn.torch.accuracy},
        optimizer=cairn.AdamW(0.002, weight_decay=0.01, schedule={"cosine_decay": {"decay_steps": steps}}),
        batch_size=64,
        replicas=flags.replicas,
        epochs=flags.epochs,
        seed=flags.seed,
    )
    job = run.train()
    print("val_accuracy:", job.history["val_accuracy"][-1])
    return job


if __name__ == "__main__":
    main()
