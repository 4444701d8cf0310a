"""Slot: a program's model at work for one job, as Cairn calls it (cairn.torch).

Parameters are views of Cairn's values, and a gradient is handed over as soon as autograd has it. Running statistics of
batch normalization are moving averages of the job. Random numbers of a step are a function of (seed, step, replica),
so that a step that is computed again, anywhere, is the same.
"""

from __future__ import annotations

import copy
import hashlib
import random
import struct
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy
import torch

from cairn.torch_variables import joined, norms_of

if TYPE_CHECKING:
    from cairn.torch_program import Program

Tensor = torch.Tensor
# The buffers of values that a worker has in turn, and their views.
_VIEWS_MAX = 8


def seed_all(seed: int, step: int, replica: int) -> None:
    """Sets the random numbers of PyTorch, numpy and Python to those of the replica's step."""
    digest = hashlib.blake2b(struct.pack("<QQI", seed, step, replica), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():  # torch.manual_seed, where it is not, keeps a traceback for later: 0.3 ms a step
        torch.cuda.manual_seed_all(number)
    numpy.random.seed(number & 0xFFFFFFFF)
    random.seed(number)


class Slot:
    """A copy of the model, of one job and one slot of a worker, and so of one thread."""

    def __init__(self, program: Program, job: Any):
        self.program = program
        self._check(job)
        torch.set_num_threads(job.threads)  # of this thread's operations
        self.model = copy.deepcopy(program.model).to(program.device)
        self.on_cpu = program.device.type == "cpu"
        self.at_once = program.collate is torch.utils.data.default_collate
        self.views: dict[int, list[Tensor]] = {}
        self.gradients: list[Tensor] = []
        self.step: Any = None
        self.places = [(offset, shape) for _, shape, _, offset in job.variables]
        if not self.on_cpu:
            self.space = torch.empty(job.space, device=program.device)
            self.copies = self._cut(self.space)
        index = {name: i for i, (name, _, _, _) in enumerate(job.variables)}
        self.parameters = [(index[n], p) for n, p in self.model.named_parameters()]
        for place, parameter in self.parameters:
            if parameter.requires_grad:
                parameter.register_hook(self._hook(place))
        self.buffers, self.averages = [], []
        averaged = {id(m) for m in norms_of(self.model).values()}
        for module_name, module in self.model.named_modules():
            for name, buffer in module.named_buffers(recurse=False):
                if buffer.dtype != torch.float32:
                    continue
                place = index[joined(module_name, name)]
                average = id(module) in averaged and name in ("running_mean", "running_var")
                (self.averages if average else self.buffers).append((place, module, name))
        self.own = {(id(m), n): torch.zeros_like(getattr(m, n)) for _, m, n in self.averages}
        for norm in norms_of(self.model).values():
            norm.momentum = 1.0  # what stays after a step is the batch's statistic

    def _check(self, job: Any) -> None:
        mine = [(v["name"], tuple(v["shape"]), v["kind"].lower()) for v in self.program.variables]
        theirs = [(name, tuple(shape), kind) for name, shape, kind, _ in job.variables]
        for own, other in zip(mine, theirs):
            if own != other:
                raise ValueError(
                    f"variable {other} of the job is {own} in the program; give another model another version"
                )
        if len(mine) != len(theirs):
            raise ValueError(f"the job has {len(theirs)} variables, the program {len(mine)}; give it another version")
        if job.figures != list(self.program.figures):
            raise ValueError(f"the job's figures are {job.figures}, the program's {list(self.program.figures)}")
        if self.program.config and job.config != self.program.config:
            raise ValueError(f"the job is not the Run {self.program.name!r}; give this one another name or version")

    def _hook(self, place: int) -> Callable[[Tensor], None]:
        def take(gradient: Tensor) -> None:
            self.gradients[place].copy_(gradient.to_dense() if gradient.is_sparse else gradient)
            self.step.final(place)

        return take

    def _cut(self, space: Tensor) -> list[Tensor]:
        cut = []
        for offset, shape in self.places:
            size = 1
            for side in shape:
                size *= side
            cut.append(space[offset : offset + size].view(shape))
        return cut

    def _values(self, step: Any) -> list[Tensor]:
        """The step's values by variable: views of Cairn's buffer, which comes back every few steps, or copies."""
        views = self.views.get(step.values_address)
        if views is not None:
            return views
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # values are read-only, and PyTorch does not know such tensors
            space = torch.frombuffer(step.values, dtype=torch.float32)
        if not self.on_cpu:
            self.space.copy_(space)
            return self.copies
        if len(self.views) >= _VIEWS_MAX:
            self.views.clear()
        views = self.views[step.values_address] = self._cut(space)
        return views

    def _use(self, step: Any, training: bool) -> None:
        values = self._values(step)
        for place, parameter in self.parameters:
            parameter.data = values[place]
        for place, module, name in self.buffers:
            module._buffers[name] = values[place]
        for place, module, name in self.averages:
            module._buffers[name] = self.own[id(module), name] if training else values[place]
        self.model.train(training)

    def _examples(self, step: Any) -> list[int] | None:
        """Which of the data set; None: they are Cairn's. A sampler sets random numbers."""
        if step.indices is None:
            return None
        indices = step.indices.tolist()
        order = self.program.order
        if order is None or step.split != "train":
            return indices
        return order.examples(step.seed, step.step, indices)

    def _batch(self, step: Any, indices: list[int] | None) -> Any:
        if indices is None:
            inputs = torch.from_numpy(numpy.array(step.inputs)).float()
            return self._moved((inputs, torch.from_numpy(numpy.array(step.labels))))
        examples = self.program.datasets[step.split]
        if examples is None:
            raise ValueError(f"the program has no {step.split} data set")
        if self.at_once and type(examples) is torch.utils.data.TensorDataset:
            return self._moved(list(examples[indices]))  # what the default makes of its rows
        return self._moved(self.program.collate([examples[i] for i in indices]))

    def _moved(self, batch: Any) -> Any:
        if self.on_cpu:
            return batch
        if isinstance(batch, torch.Tensor):
            return batch.to(self.program.device)
        if isinstance(batch, Mapping):
            return {k: self._moved(v) for k, v in batch.items()}
        if isinstance(batch, (tuple, list)):
            return type(batch)(self._moved(b) for b in batch)
        return batch

    def _compute(self, batch: Any) -> tuple[Tensor, Any, list[Tensor]]:
        given = [module._buffers[name] for _, module, name in self.buffers]
        versions = [buffer._version for buffer in given]
        if self.program.autocast is None:
            result = self.program.compute(self.model, batch)
        else:
            with torch.autocast(self.program.device.type, dtype=self.program.autocast):
                result = self.program.compute(self.model, batch)
        for (place, module, name), buffer, version in zip(self.buffers, given, versions):
            if module._buffers[name] is not buffer or buffer._version != version:
                raise ValueError(
                    f"buffer {self.program.variables[place]['name']!r}: the model changes it when it is called, and "
                    "Cairn keeps it as it is; make it a parameter, or compute it anew in each call"
                )
        return result

    # ---- what Cairn calls ----

    def train(self, step: Any) -> tuple[float, list[float]]:
        indices = self._examples(step)
        seed_all(step.seed, step.step, step.replica)
        batch = self._batch(step, indices)
        self._use(step, training=True)
        self.step = step
        self.gradients = self._cut(torch.frombuffer(step.gradients, dtype=torch.float32))
        try:
            loss, _, figures = self._compute(batch)
            total = loss * step.examples  # of the mean: sums over the examples
            for place, module, name in self.averages:
                self.gradients[place].copy_(module._buffers[name]).mul_(step.examples)
                step.final(place)
            total.backward()
            return float(total), [float(f) for f in figures]
        finally:
            self.step, self.gradients = None, []
            for _, parameter in self.parameters:
                parameter.grad = None

    @torch.no_grad()
    def evaluate(self, step: Any) -> tuple[float, list[float]]:
        batch = self._batch(step, self._examples(step))
        self._use(step, training=False)
        loss, _, figures = self._compute(batch)
        return float(loss) * step.examples, [float(f) for f in figures]

    @torch.no_grad()
    def predict(self, step: Any) -> None:
        batch = self._batch(step, self._examples(step))
        self._use(step, training=False)
        _, outputs, _ = self._compute(batch)
        torch.frombuffer(step.outputs, dtype=torch.float32).copy_(outputs.reshape(-1))
