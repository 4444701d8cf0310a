"""The PyTorch side of the comparison: a model with one CPU thread per process, in one process or with
DistributedDataParallel over gloo.

    train.py MODEL PROCESSES BATCH STEPS      prints images/s over STEPS steps after a warm-up

MODEL: cnn (the small CNN), lenet, mlp, resnet18 (torchvision's, 224 x 224) or resnet18_channels_last.

It has the same layers, batch per process, optimizer (plain SGD) and loss as the Cairn job; the data is in memory.
"""

import os
import socket
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn


def model_of(kind):
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    if kind.startswith("resnet18"):
        import torchvision

        return torchvision.models.resnet18(num_classes=10).to(memory_format=format_of(kind))
    dense = [nn.Linear(3136, 128), nn.ReLU(), nn.Linear(128, 10)] if kind == "lenet" else [nn.Linear(3136, 10)]
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        *dense,
    )


def format_of(kind):
    return torch.channels_last if kind.endswith("channels_last") else torch.contiguous_format


def work(rank, kind, processes, batch, steps, port, results):
    torch.set_num_threads(1)
    torch.manual_seed(rank)
    model = model_of(kind)
    if processes > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=processes)
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss = nn.CrossEntropyLoss()
    sides = (3, 224, 224) if kind.startswith("resnet18") else (1, 28, 28)
    images = torch.randint(0, 256, (16 * batch, *sides), dtype=torch.uint8)
    labels = torch.randint(0, 10, (16 * batch,))

    def step(i):
        at = (i % 16) * batch
        x = images[at : at + batch].float().contiguous(memory_format=format_of(kind)) / 255
        optimizer.zero_grad()
        loss(model(x), labels[at : at + batch]).backward()
        optimizer.step()

    for i in range(max(5, steps // 10)):
        step(i)
    if processes > 1:
        dist.barrier()
    begin = time.perf_counter()
    for i in range(steps):
        step(i)
    if processes > 1:
        dist.barrier()
    if rank == 0:
        results.put(processes * steps * batch / (time.perf_counter() - begin))
    if processes > 1:
        dist.destroy_process_group()


def main():
    kind, processes, batch, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = mp.get_context("spawn")
    results = context.SimpleQueue()
    if processes == 1:
        work(0, kind, 1, batch, steps, port, results)
    else:
        mp.spawn(work, (kind, processes, batch, steps, port, results), nprocs=processes)
    print(f"{results.get():.1f}")


if __name__ == "__main__":
    main()
