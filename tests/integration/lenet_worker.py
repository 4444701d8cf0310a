"""LeNet in PyTorch with batch normalization and dropout, on drawn examples, as a program of Cairn.

    lenet_worker.py COORDINATOR NAME [MODEL]         a worker; MODEL is lenet (the default) or plain

Used by python_torch_test.py, and as the script of a user.
"""

import sys

import torch

import cairn.torch

TRAIN, TEST = 640, 128


class Drawn(torch.utils.data.Dataset):
    """Pictures of noise on ten patterns: a few steps tell them apart."""

    def __init__(self, count, seed):
        generator = torch.Generator().manual_seed(17)
        patterns = torch.randn(10, 1, 28, 28, generator=generator)
        generator.manual_seed(seed)
        self.labels = torch.randint(0, 10, (count,), generator=generator)
        self.pictures = patterns[self.labels] + torch.randn(count, 1, 28, 28, generator=generator)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return self.pictures[index], self.labels[index]


def lenet(plain=False):
    """plain: smooth, and without what makes a step depend on random numbers or on its batch. With ReLU and MaxPool2d a
    last bit decides now and then where a gradient goes: after 100 steps such weights are 5e-3 apart.
    """
    nn = torch.nn
    torch.manual_seed(1)
    activation, pool = (nn.Tanh, nn.AvgPool2d) if plain else (nn.ReLU, nn.MaxPool2d)
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        *([] if plain else [nn.BatchNorm2d(6)]),
        activation(),
        pool(2),
        nn.Conv2d(6, 16, 5),
        activation(),
        pool(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        activation(),
        *([] if plain else [nn.Dropout(0.2)]),
        nn.Linear(120, 84),
        activation(),
        nn.Linear(84, 10),
    )


def program(name="lenet"):
    return cairn.torch.Program(
        name,
        lenet(plain=name == "plain"),
        torch.nn.functional.cross_entropy,
        Drawn(TRAIN, 2),
        validation=Drawn(TEST, 3),
        figures={"accuracy": cairn.torch.accuracy},
        output_shape=(10,),
    )


def main():
    coordinator, name, model = [*sys.argv[1:], "lenet"][:3]
    cairn.torch.worker(program(model), coordinator, name=name, log_level="info").wait()


if __name__ == "__main__":
    main()
