"""Samplers of torch.utils.data: the order in which a job's epoch goes through a data set.

A job without shuffling has the positions 0 .. n-1 of an epoch in turn. A sampler says which example is at a position;
its order is drawn anew for each epoch from random numbers that are a function of (seed, epoch), so that it is the same
in every process, and again after a restart.
"""

from __future__ import annotations

import hashlib
import struct
import threading
from typing import Any

import torch

ORDERS_MAX = 2  # replicas may be in two epochs at a time
_WORDS = struct.Struct("<QQ")


def check(sampler: Any) -> None:
    """Errors: TypeError, ValueError."""
    kind = type(sampler).__name__
    if isinstance(sampler, torch.utils.data.DataLoader):
        raise TypeError("sampler: is a DataLoader; give its sampler")
    if isinstance(sampler, torch.utils.data.BatchSampler):
        raise ValueError("sampler: BatchSampler makes batches, which the job does; give its sampler, and batch_size")
    if isinstance(sampler, torch.utils.data.distributed.DistributedSampler):
        raise ValueError("sampler: DistributedSampler shares examples out, which the job does; leave it out")
    if not hasattr(sampler, "__len__") or not hasattr(sampler, "__iter__"):
        raise TypeError(f"sampler: {kind} has no __len__ or __iter__; give a sampler of torch.utils.data")
    if len(sampler) < 1:
        raise ValueError(f"sampler: {kind} gives no examples")


class Order:
    """Thread-safe: the orders are drawn under a lock. It sets PyTorch's random numbers when it draws one."""

    def __init__(self, sampler: Any, steps_per_epoch: int):
        self.sampler = sampler
        self.length = len(sampler)
        self.steps_per_epoch = steps_per_epoch
        self._lock = threading.Lock()
        self._orders: dict[tuple[int, int], list[int]] = {}

    def examples(self, seed: int, step: int, positions: list[int]) -> list[int]:
        """The examples at these positions of the epoch in which the step is (steps count from 0)."""
        key = (seed, step // self.steps_per_epoch)
        with self._lock:
            if key not in self._orders:
                while len(self._orders) >= ORDERS_MAX:
                    del self._orders[min(self._orders, key=lambda known: known[1])]
                self._orders[key] = self._draw(*key)
            order = self._orders[key]
        return [order[position] for position in positions]

    def _draw(self, seed: int, epoch: int) -> list[int]:
        digest = hashlib.blake2b(_WORDS.pack(seed, epoch), digest_size=8, person=b"sampler").digest()
        number = int.from_bytes(digest, "little") >> 1
        torch.manual_seed(number)
        if getattr(self.sampler, "generator", None) is not None:
            self.sampler.generator.manual_seed(number)
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
        order = [int(index) for index in self.sampler]
        if len(order) != self.length:
            raise ValueError(f"sampler: gave {len(order)} examples in epoch {epoch}, its length is {self.length}")
        return order
