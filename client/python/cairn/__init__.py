"""Cairn from Python: submit jobs to a cluster, follow them, and get their models back.

    import cairn

    client = cairn.Client()                 # $CAIRN_COORDINATOR, or a local cluster for as long as this program runs
    job = client.submit("job.textproto", set={"epochs": 5})
    job.wait()                              # a progress bar; Ctrl-C leaves the job running
    job.history["val_accuracy"]

docs/python.md is the guide. Importing this package loads nothing but this file: gRPC and numpy are loaded when they are
used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cairn.client import Client
    from cairn.errors import (  # noqa: F401
        Aborted,
        AlreadyExists,
        Cancelled,
        DataLoss,
        DeadlineExceeded,
        Error,
        FailedPrecondition,
        Internal,
        InvalidArgument,
        JobFailed,
        LocalClusterError,
        NotFound,
        OutOfRange,
        PermissionDenied,
        ProgramError,
        ResourceExhausted,
        Unauthenticated,
        Unavailable,
        Unimplemented,
        Unknown,
        Unreachable,
    )
    from cairn.job import Job
    from cairn.optimizers import SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, Lion, Nadam, RMSprop  # noqa: F401

# Name -> the module that has it.
_HOMES = {"Client": "client", "Job": "job"}
_ERRORS = (
    "Aborted",
    "AlreadyExists",
    "Cancelled",
    "DataLoss",
    "DeadlineExceeded",
    "Error",
    "FailedPrecondition",
    "Internal",
    "InvalidArgument",
    "JobFailed",
    "LocalClusterError",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "ProgramError",
    "ResourceExhausted",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unknown",
    "Unreachable",
)
_OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "Lion", "Nadam", "RMSprop", "SGD")
_HOMES.update({name: "errors" for name in _ERRORS})
_HOMES.update({name: "optimizers" for name in _OPTIMIZERS})

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if name == "__version__":
        value = importlib.import_module("cairn.programs").version()
        globals()[name] = value
        return value
    if home is None:
        raise AttributeError(f"module 'cairn' has no attribute {name!r}; it has {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"cairn.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
