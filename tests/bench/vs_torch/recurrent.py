"""Compares a recurrent layer's forward and backward pass with PyTorch's, one thread, in alternating rounds.

usage: recurrent.py PATH/TO/bench_recurrent [CELL...]
"""

import statistics
import subprocess
import sys
import time

import torch

UNITS = FEATURES = 128
STEPS, BATCH, COUNT, ROUNDS = 64, 32, 20, 5


def torch_step(cell):
    layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "simple_rnn": torch.nn.RNN}[cell](
        FEATURES, UNITS, batch_first=True
    )
    last = torch.nn.Linear(UNITS, 10)
    x, labels = torch.rand(BATCH, STEPS, FEATURES) * 2 - 1, torch.randint(0, 10, (BATCH,))
    loss = torch.nn.CrossEntropyLoss()

    def step():
        layer.zero_grad()
        last.zero_grad()
        loss(last(layer(x)[0][:, -1]), labels).backward()

    return step


def main():
    torch.set_num_threads(1)
    for cell in sys.argv[2:] or ["lstm", "gru", "simple_rnn"]:
        step = torch_step(cell)
        step()
        ours, theirs = [], []
        for _ in range(ROUNDS):
            command = [sys.argv[1], "--cell", cell, "--rounds", "1", "--count", str(COUNT)]
            ours.append(float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[0]))
            start = time.perf_counter()
            for _ in range(COUNT):
                step()
            theirs.append((time.perf_counter() - start) * 1000 / COUNT)
        ratio = statistics.median(t / o for t, o in zip(theirs, ours))
        print(
            f"{cell}: Cairn {min(ours):.2f} ms, PyTorch {min(theirs):.2f} ms; {ratio:.2f} x PyTorch (median of rounds)"
        )


if __name__ == "__main__":
    main()
