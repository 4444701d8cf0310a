"""Program: a PyTorch model as a program of Cairn, and a worker that has it (cairn.torch)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from cairn import safetensors
from cairn.torch_sampler import Order
from cairn.torch_slot import Slot
from cairn.torch_variables import variables_of
from cairn.worker import Worker

Tensor = torch.Tensor


def accuracy(outputs: Tensor, targets: Tensor) -> Tensor:
    """How many examples have their largest output at the target: a figure of a Program."""
    return (outputs.argmax(dim=1) == targets).sum()


def _check_examples(split: str, examples: Any) -> None:
    if examples is None:
        return
    if isinstance(examples, torch.utils.data.DataLoader):
        raise ValueError(f"{split}: is a DataLoader; give its dataset, and its collate_fn as collate")
    one_by_one = hasattr(examples, "__len__") and hasattr(examples, "__getitem__")
    if not one_by_one or isinstance(examples, torch.utils.data.IterableDataset):
        raise ValueError(f"{split}: {type(examples).__name__} has no __len__ or __getitem__; use a map-style one")


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
            _check_examples(split, examples)
        self.variables = variables_of(model)
        # Of a Run: the order of the training examples, and text that its job has and other jobs have not.
        self.order: Order | None = None
        self.config = ""

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
            **({"config": self.config} if self.config else {}),
        }

    def data(self) -> dict[str, Any]:
        """As data.external."""
        counts = {"train": "examples", "validation": "validation_examples", "test": "test_examples"}
        sizes = {counts[split]: len(d) for split, d in self.datasets.items() if d is not None}
        return sizes if self.order is None else sizes | {"examples": self.order.length}

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

    def open(self, job: Any) -> Slot:
        return Slot(self, job)


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
