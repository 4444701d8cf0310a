"""state_dict out of a job, a checkpoint or a file, and into one.

    state = cairn.torch.state_dict(job)                      # or a checkpoint's folder, or a .safetensors file
    cairn.torch.load(model, job)                             # into a model of the same variables
    cairn.torch.save(model.state_dict(), "start.safetensors")  # for initial_weights, or Run(weights=...)

The names are PyTorch's own. Cairn keeps float32; other buffers, such as BatchNorm's num_batches_tracked, are not in it,
and a model that is loaded keeps its own.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from cairn import arguments, safetensors
from cairn.job import Job
from cairn.torch_variables import variables_of

Tensor = torch.Tensor
_STEP = re.compile(r"step-(\d+)")
WEIGHTS_FILE = "model.safetensors"  # of a checkpoint


def state_dict(source: Job | str | os.PathLike[str]) -> dict[str, Tensor]:
    """Tensors of float32 by name, of a job (its newest weights), a .safetensors file, a checkpoint's folder, or a
    folder of checkpoints, of which the newest is taken.

    Errors: TypeError, ValueError, OSError; cairn.Error of a job.
    """
    if isinstance(source, Job):
        with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
            return _tensors(source.export(Path(folder) / WEIGHTS_FILE))
    if not isinstance(source, (str, os.PathLike)):
        raise TypeError(f"source: is {arguments.type_name(source)}; give a job or a path")
    path = Path(os.fspath(source))
    return _tensors(_file_of(path) if path.is_dir() else path)


def _file_of(folder: Path) -> Path:
    if (folder / WEIGHTS_FILE).exists():
        return folder / WEIGHTS_FILE
    steps = {int(m.group(1)): p for p in folder.iterdir() if (m := _STEP.fullmatch(p.name))}
    if not steps:
        raise ValueError(f"source: {folder} holds no checkpoint; give the folder that `checkpoints.dir` names")
    return steps[max(steps)] / WEIGHTS_FILE


def _tensors(path: Path) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in safetensors.read(path).items()}


def save(state: Mapping[str, Tensor] | torch.nn.Module, path: str | os.PathLike[str]) -> Path:
    """Writes a state_dict, or a model's present one, as a file that a job may begin with. Values that are not floating
    are left out. Errors: TypeError, OSError."""
    if isinstance(state, torch.nn.Module):
        state = state.state_dict()
    if not isinstance(state, Mapping):
        raise TypeError(f"state: is {arguments.type_name(state)}; give a state_dict or a model")
    arrays = {}
    for name, value in state.items():
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"state[{name!r}]: is {arguments.type_name(value)}; give tensors")
        if value.is_floating_point():
            arrays[name] = value.detach().cpu().float().numpy()
    target = Path(os.path.abspath(os.fspath(path)))
    safetensors.write(target, arrays)
    return target


@torch.no_grad()
def load(model: torch.nn.Module, source: Any) -> torch.nn.Module:
    """Copies the values of a job, checkpoint, file or state_dict into the model's parameters and buffers.

    Errors: ValueError names a variable that is missing or has another shape; nothing is changed then.
    """
    state = source if isinstance(source, Mapping) else state_dict(source)
    tensors = dict(model.named_parameters()) | dict(model.named_buffers())
    names = [variable["name"] for variable in variables_of(model)]
    for name in names:
        if name not in state:
            raise ValueError(f"source: it has no {name!r}; it has {', '.join(sorted(state)[:8]) or 'nothing'}")
        if state[name].shape != tensors[name].shape:
            theirs, own = list(state[name].shape), list(tensors[name].shape)
            raise ValueError(f"source: {name!r} has the shape {theirs}, and {own} in the model")
    for name in names:
        tensors[name].copy_(state[name])
    return model
