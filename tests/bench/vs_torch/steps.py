"""One process of torch_bench.py: the same model, data, batch and optimizer in a plain loop, under
DistributedDataParallel (gloo), and as a cairn.torch.Run. One compute thread a process.

    steps.py plain MODEL STEPS                     prints examples/s after a warm-up
    steps.py ddp MODEL STEPS RANK PROCESSES PORT   the same; each process has its share of the batch
    steps.py elastic MODEL STEPS FILE              under torchrun: writes "TIME STEP" to FILE-RANK after each step
    steps.py cairn MODEL STEPS COORDINATOR NAME REPLICAS EPOCHS

MODEL: mlp (784-128-10), wide_mlp (784-512-512-10), lenet or resnet18. STEPS: of an epoch.
"""

import os
import runpy
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

nn = torch.nn
LOSS = nn.functional.cross_entropy
BATCH = 64
RATE = 0.01
EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../examples/python")


def example(name):
    return runpy.run_path(os.path.join(EXAMPLES, name), run_name="example")


def model_of(kind):
    torch.manual_seed(0)
    if kind == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    if kind == "wide_mlp":
        return nn.Sequential(
            nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
    if kind == "lenet":
        return example("torch_lenet.py")["lenet"]()
    return example("torch_resnet.py")["resnet18"](10, 64)


def data_of(kind, steps):
    shape = (3, 32, 32) if kind == "resnet18" else (1, 28, 28)
    count = steps * BATCH
    generator = torch.Generator().manual_seed(1)
    pictures = torch.randn(min(count, 16 * BATCH), *shape, generator=generator)
    labels = torch.randint(0, 10, (len(pictures),), generator=generator)
    return torch.utils.data.TensorDataset(pictures, labels)


def train(model, data, steps, first, last, after_step=None):
    """Seconds of `steps` steps, each of the examples first .. last of a batch."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    pictures, labels = data.tensors
    order = torch.randperm(len(pictures))
    begin = time.perf_counter()
    for step in range(steps):
        at = step * BATCH % len(order)
        ids = order[at + first : at + last]
        optimizer.zero_grad()
        loss = LOSS(model(pictures[ids]), labels[ids])
        loss.backward()
        optimizer.step()
        loss.item()  # as whoever shows it
        if after_step is not None:
            after_step(step)
    return time.perf_counter() - begin


def plain(kind, steps):
    model, data = model_of(kind), data_of(kind, steps)
    train(model, data, max(3, steps // 10), 0, BATCH)
    print(f"{steps * BATCH / train(model, data, steps, 0, BATCH):.1f}", flush=True)


def ddp(kind, steps, rank, processes, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=processes)
    model, data = nn.parallel.DistributedDataParallel(model_of(kind)), data_of(kind, steps)
    share = BATCH // processes
    part = rank * share, (rank + 1) * share
    train(model, data, max(3, steps // 10), *part)
    dist.barrier()
    print(f"{steps * BATCH / train(model, data, steps, *part):.1f}", flush=True)


def elastic(kind, steps, path):
    dist.init_process_group("gloo")
    rank, processes = dist.get_rank(), dist.get_world_size()
    share = BATCH // processes
    with open(f"{path}-{rank}", "a", buffering=1) as file:
        file.write(f"{time.time()} pid {os.getpid()}\n")
        model = nn.parallel.DistributedDataParallel(model_of(kind))
        write = lambda step: file.write(f"{time.time()} {step}\n")  # noqa: E731
        train(model, data_of(kind, steps), steps, rank * share, (rank + 1) * share, write)


def cairn_run(kind, steps, coordinator, name, replicas, epochs):
    import cairn
    import cairn.torch

    data = data_of(kind, steps)
    order = torch.utils.data.RandomSampler(data, replacement=True, num_samples=steps * BATCH)
    model = model_of(kind)
    run = cairn.torch.Run(name, model, LOSS, data, sampler=order, optimizer=cairn.SGD(RATE), batch_size=BATCH,
                          replicas=replicas, epochs=epochs, set={"backups": 0})  # fmt: skip
    run.train(coordinator, progress=False, log_level="info")


def main():
    torch.set_num_threads(1)
    how, kind, steps = sys.argv[1], sys.argv[2], int(sys.argv[3])
    more = sys.argv[4:]
    if how == "plain":
        plain(kind, steps)
    elif how == "ddp":
        ddp(kind, steps, *(int(number) for number in more))
    elif how == "elastic":
        elastic(kind, steps, *more)
    else:
        cairn_run(kind, steps, *more[:2], *(int(number) for number in more[2:]))


if __name__ == "__main__":
    main()
