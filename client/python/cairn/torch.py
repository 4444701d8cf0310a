"""PyTorch models on a Cairn cluster (docs/programs.md).

    program = cairn.torch.Program("lenet", model, torch.nn.functional.cross_entropy, train_set, validation=test_set,
                                  figures={"accuracy": cairn.torch.accuracy})
    program.save_weights("/shared/lenet.safetensors")
    text = program.job_text("optimizer { sgd { } learning_rate: 0.1 } batch_size: 64 replicas: 4 epochs: 2",
                            initial_weights="/shared/lenet.safetensors")          # for `cairn submit`
    cairn.torch.worker(program, "host:7070").wait()

Parameters are views of Cairn's values, and a gradient is handed over as soon as autograd has it. Running statistics of
batch normalization are moving averages of the job. Random numbers of a step are a function of (seed, step, replica),
so that a step that is computed again, anywhere, is the same.
"""

from __future__ import annotations

import copy
import hashlib
import json
import random
import re
import struct
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy
import torch
from torch.nn.modules.batchnorm import _NormBase

from cairn import safetensors
from cairn.worker import Worker

Tensor = torch.Tensor
# The buffers of values that a worker has in turn, and their views.
_VIEWS_MAX = 8


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """How many examples have their largest output at the target: a figure of a Program."""
    return (outputs.argmax(dim=1) == targets).sum()


def _norms(model: torch.nn.Module) -> dict[str, _NormBase]:
    """By name, those that keep running statistics."""
    return {n: m for n, m in model.named_modules() if isinstance(m, _NormBase) and m.running_mean is not None}


def _joined(module: str, name: str) -> str:
    return f"{module}.{name}" if module else name


def variables_of(model: torch.nn.Module) -> list[dict[str, Any]]:
    """The model's parameters and buffers as `model.external.variables` has them.

    Errors: ValueError names a parameter that is not float32, or a batch normalization whose average Cairn cannot keep.
    """
    variables = []
    for name, parameter in model.named_parameters():
        if parameter.dtype != torch.float32:
            raise ValueError(f"parameter {name!r}: {parameter.dtype} is not supported; use float32, and autocast")
        kind = "TRAINABLE" if parameter.requires_grad else "FROZEN"
        variables.append({"name": name, "shape": list(parameter.shape), "kind": kind})
    momenta = {}
    for module, norm in _norms(model).items():
        if norm.momentum is None:
            raise ValueError(f"module {module!r}: momentum=None is a cumulative average; give it a number such as 0.1")
        for name in ("running_mean", "running_var"):
            momenta[_joined(module, name)] = 1 - norm.momentum
    for name, buffer in model.named_buffers():
        if buffer.dtype != torch.float32:
            continue  # a counter or indices: it stays as the model has it
        variable = {"name": name, "shape": list(buffer.shape), "kind": "FROZEN"}
        if name in momenta:
            variable |= {"kind": "MOVING_AVERAGE", "momentum": momenta[name]}
        variables.append(variable)
    return variables


def seed_all(seed: int, step: int, replica: int) -> None:
    """Sets the random numbers of PyTorch, numpy and Python to those of the replica's step."""
    digest = hashlib.blake2b(struct.pack("<QQI", seed, step, replica), digest_size=8).digest()
    number = int.from_bytes(digest, "little")
    torch.manual_seed(number)
    numpy.random.seed(number & 0xFFFFFFFF)
    random.seed(number)


class Program:
    """A model, its loss and its data, as a program of Cairn.

    model: a torch.nn.Module of float32 parameters. It is copied, and stays as it is.
    loss_fn(outputs, targets): the mean over the batch, as PyTorch's criteria have it.
    dataset, validation, test: map-style data sets of (input, target).
    figures: by name, function(outputs, targets) that gives the sum over the batch.
    collate: makes a batch of a list of examples. Default: PyTorch's.
    device: where it is computed; values and gradients are copied where that is not the CPU.
    autocast: a dtype that torch.autocast uses, such as torch.bfloat16.
    output_shape: of the model's output for one example, for prediction.

    A model of several inputs or losses overrides `compute`.
    """

    def __init__(
        self,
        name: str,
        model: torch.nn.Module,
        loss_fn: Callable[[Any, Any], Tensor],
        dataset: Any,
        *,
        version: str = "1",
        validation: Any = None,
        test: Any = None,
        figures: Mapping[str, Callable[[Any, Any], Tensor]] | None = None,
        collate: Callable[[list[Any]], Any] | None = None,
        device: str | torch.device = "cpu",
        autocast: torch.dtype | None = None,
        output_shape: tuple[int, ...] = (),
    ):
        self.name, self.version = name, version
        self.model, self.loss_fn = model, loss_fn
        self.datasets = {"train": dataset, "validation": validation, "test": test}
        self.figures = dict(figures or {})
        self.collate = collate if collate is not None else torch.utils.data.default_collate
        self.device = torch.device(device)
        self.autocast = autocast
        self.output_shape = tuple(output_shape)
        for split, examples in self.datasets.items():
            if examples is not None and not (hasattr(examples, "__len__") and hasattr(examples, "__getitem__")):
                raise ValueError(
                    f"{split}: {type(examples).__name__} has no __len__ or __getitem__; use a map-style one"
                )
        self.variables = variables_of(model)

    def compute(self, model: torch.nn.Module, batch: Any) -> tuple[Tensor, Any, list[Tensor]]:
        """The batch's mean loss, the outputs, and the sums of the figures in their order."""
        inputs, targets = batch
        outputs = model(inputs)
        sums = [function(outputs, targets) for function in self.figures.values()]
        return self.loss_fn(outputs, targets), outputs, sums

    # ---- the job ----

    def external(self) -> dict[str, Any]:
        """As model.external."""
        size = {"output_shape": list(self.output_shape)} if self.output_shape else {}
        return {
            "program": self.name,
            "version": self.version,
            "variables": self.variables,
            "figures": list(self.figures),
            **size,
        }

    def data(self) -> dict[str, Any]:
        """As data.external."""
        counts = {"train": "examples", "validation": "validation_examples", "test": "test_examples"}
        return {counts[split]: len(d) for split, d in self.datasets.items() if d is not None}

    def job_text(self, rest: str, initial_weights: str | Path | None = None) -> str:
        """A job file. rest: the optimizer and everything else, as text."""
        lines = ["model { external {", *_text(self.external()), "} }", "data { external {", *_text(self.data()), "} }"]
        if initial_weights is not None:
            lines.append(f"initial_weights: {json.dumps(str(Path(initial_weights).absolute()))}")
        return "\n".join([*lines, rest, ""])

    def save_weights(self, path: str | Path) -> None:
        """The model's present values as a file that a job may begin with."""
        state = self.model.state_dict(keep_vars=True)
        tensors = dict(self.model.named_parameters()) | dict(self.model.named_buffers()) | state
        names = [v["name"] for v in self.variables]
        safetensors.write(Path(path), {n: tensors[n].detach().cpu().numpy() for n in names})

    def open(self, job: Any) -> _Slot:
        return _Slot(self, job)


def _text(message: Mapping[str, Any]) -> list[str]:
    """Fields as protobuf's text format has them."""
    lines = []
    for key, value in message.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [f"{key} {{ {' '.join(_text(item))} }}" for item in value]
        elif isinstance(value, list):
            lines += [f"{key}: {json.dumps(item)}" for item in value]
        elif key == "kind":
            lines.append(f"{key}: {value}")
        else:
            lines.append(f"{key}: {json.dumps(value)}")
    return lines


class _Slot:
    """A copy of the model, of one job and one slot of a worker, and so of one thread."""

    def __init__(self, program: Program, job: Any):
        self.program = program
        self._check(job)
        torch.set_num_threads(job.threads)  # of this thread's operations
        self.model = copy.deepcopy(program.model).to(program.device)
        self.on_cpu = program.device.type == "cpu"
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
        averaged = {id(m) for m in _norms(self.model).values()}
        for module_name, module in self.model.named_modules():
            for name, buffer in module.named_buffers(recurse=False):
                if buffer.dtype != torch.float32:
                    continue
                place = index[_joined(module_name, name)]
                average = id(module) in averaged and name in ("running_mean", "running_var")
                (self.averages if average else self.buffers).append((place, module, name))
        self.own = {(id(m), n): torch.zeros_like(getattr(m, n)) for _, m, n in self.averages}
        for norm in _norms(self.model).values():
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

    def _batch(self, step: Any) -> Any:
        if step.indices is None:
            inputs = torch.from_numpy(numpy.array(step.inputs)).float()
            return self._moved((inputs, torch.from_numpy(numpy.array(step.labels))))
        examples = self.program.datasets[step.split]
        if examples is None:
            raise ValueError(f"the program has no {step.split} data set")
        return self._moved(self.program.collate([examples[i] for i in step.indices.tolist()]))

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
        seed_all(step.seed, step.step, step.replica)
        batch = self._batch(step)
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
        batch = self._batch(step)
        self._use(step, training=False)
        loss, _, figures = self._compute(batch)
        return float(loss) * step.examples, [float(f) for f in figures]

    @torch.no_grad()
    def predict(self, step: Any) -> None:
        batch = self._batch(step)
        self._use(step, training=False)
        _, outputs, _ = self._compute(batch)
        torch.frombuffer(step.outputs, dtype=torch.float32).copy_(outputs.reshape(-1))


def _fingerprint(device: torch.device) -> str:
    """What decides the bits of a step."""
    if device.type == "cuda":
        return f"torch {torch.__version__} {torch.cuda.get_device_name(device)}"
    found = re.search(r"CPU capability usage: (\S+)", torch.__config__.show())
    return f"torch {torch.__version__} {found.group(1) if found else 'cpu'}"


def worker(program: Program, coordinator: str | None = None, **options: Any) -> Worker:
    """A worker with the program, in this process; options as cairn.worker.Worker's.

    It has one slot: PyTorch's random numbers are a process' own. Start a process for each further one.
    """
    if options.pop("slots", 1) != 1:
        raise ValueError("slots: a process has the random numbers of one; start a process for each further slot")
    device = program.device
    cuda = device.type == "cuda"
    about = {
        "device": f"torch: {torch.cuda.get_device_name(device) if cuda else 'cpu'}",
        "gpu": cuda,
        "fingerprint": _fingerprint(device),
    }
    return Worker([program], coordinator, **(about | options))
