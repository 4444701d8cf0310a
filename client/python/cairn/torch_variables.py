"""A PyTorch model's parameters and buffers as the variables of a job."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _NormBase


def norms_of(model: torch.nn.Module) -> dict[str, _NormBase]:
    """By name, those that keep running statistics."""
    return {n: m for n, m in model.named_modules() if isinstance(m, _NormBase) and m.running_mean is not None}


def joined(module: str, name: str) -> str:
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
    for module, norm in norms_of(model).items():
        if norm.momentum is None:
            raise ValueError(f"module {module!r}: momentum=None is a cumulative average; give it a number such as 0.1")
        for name in ("running_mean", "running_var"):
            momenta[joined(module, name)] = 1 - norm.momentum
    for name, buffer in model.named_buffers():
        if buffer.dtype != torch.float32:
            continue  # a counter or indices: it stays as the model has it
        variable = {"name": name, "shape": list(buffer.shape), "kind": "FROZEN"}
        if name in momenta:
            variable |= {"kind": "MOVING_AVERAGE", "momentum": momenta[name]}
        variables.append(variable)
    return variables
