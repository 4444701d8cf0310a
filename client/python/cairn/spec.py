"""A JobSpec from what a caller gives: the path of a job file, its text, a dict or a message."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from cairn import arguments, settings
from cairn.v1 import job_pb2

JOB_FILE_BYTES_MAX = 4 << 20
NO_FIELD = re.compile(r'Message type "cairn\.v1\.([\w.]+)" has no field named "(\w+)"')
NO_VALUE = re.compile(r'Enum type "cairn\.v1\.([\w.]+)" has no value named (\w+)')


def read(job: Any) -> Any:
    """A new JobSpec. A str with a line break or a brace is the text of a job, any other one a path.

    Errors: TypeError, ValueError (with the line and the field), OSError (the file cannot be read).
    """
    spec = job_pb2.JobSpec()
    if isinstance(job, job_pb2.JobSpec):
        spec.CopyFrom(job)
    elif isinstance(job, Mapping):
        settings.apply(spec, job, "job")
    elif isinstance(job, os.PathLike) or (isinstance(job, str) and not re.search(r"[\n{]", job)):
        path = os.fspath(job)
        if not path:
            raise ValueError("job: is empty; give the path of a job file, its text, a dict or a JobSpec")
        parse(_text_of(path), path, spec)
    elif isinstance(job, str):
        parse(job, "job", spec)
    else:
        raise TypeError(
            f"job: is {arguments.type_name(job)}; give the path of a job file, its text, a dict or a cairn.v1 JobSpec"
        )
    return spec


def _text_of(path: str) -> str:
    if os.path.isdir(path):
        raise IsADirectoryError(f"{path}: is a directory; name the job file in it")
    with open(path, "rb") as file:
        data = file.read(JOB_FILE_BYTES_MAX + 1)
    if len(data) > JOB_FILE_BYTES_MAX:
        raise ValueError(f"{path}: longer than {JOB_FILE_BYTES_MAX >> 20} MiB; is this a job file?")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        raise ValueError(f"{path}:{line}: is not UTF-8; save the file as UTF-8") from None


def parse(text: str, where: str, message: Any) -> None:
    """Text format. Errors: ValueError "WHERE:LINE:COLUMN: what"."""
    try:
        text_format.Merge(text, message)
    except text_format.ParseError as error:
        what = re.sub(r"^\d+:\d+ : ", "", str(error)).removesuffix(".")
        place = "" if error.GetLine() is None else f":{error.GetLine()}:{error.GetColumn()}"
        raise ValueError(f"{where}{place}: {what}{_hint(what)}") from None


def _hint(what: str) -> str:
    pool = job_pb2.DESCRIPTOR.pool
    if found := NO_FIELD.search(what):
        names = [f.name for f in pool.FindMessageTypeByName(f"cairn.v1.{found.group(1)}").fields]
        close = arguments.nearest(found.group(2), names)
        return f'; did you mean "{close}"?' if close else f"; it has {', '.join(names)}"
    if found := NO_VALUE.search(what):
        values = pool.FindEnumTypeByName(f"cairn.v1.{found.group(1)}").values
        return f"; use one of {', '.join(v.name for v in values if v.number != 0)}"
    return ""


def names_root(path: str) -> bool:
    """Whether it may begin with a root's name, "data:/x", or be an address, "s3://bucket/x": only workers know."""
    return re.match(r"[A-Za-z0-9_-]+:/", path) is not None


def _absolute(path: str) -> str:
    return str(Path(os.path.abspath(path))) if path and not names_root(path) else path


def make_paths_absolute(spec: Any) -> None:
    """Relative paths are taken from the folder of this process, as `cairn submit` takes them from its own, since a
    worker may have any. Errors: ValueError: there is no such data."""
    data = spec.data.path
    if data and not os.path.isabs(data) and not names_root(data):
        path = _absolute(data)
        if not os.path.exists(path):
            raise ValueError(
                f"data.path: {data}: there is no {path} here; a relative path is taken from the folder of this "
                "process. Give the absolute path, as the workers see it"
            )
        spec.data.path = path
    if spec.HasField("checkpoints"):
        spec.checkpoints.dir = _absolute(spec.checkpoints.dir)
    spec.resume_from = _absolute(spec.resume_from)
    spec.initial_weights = _absolute(spec.initial_weights)
    for callback in spec.callbacks:
        if callback.HasField("tensorboard"):
            callback.tensorboard.log_dir = _absolute(callback.tensorboard.log_dir or "logs")
        elif callback.HasField("csv_logger"):
            callback.csv_logger.filename = _absolute(callback.csv_logger.filename)
        elif callback.HasField("model_checkpoint"):
            callback.model_checkpoint.filepath = _absolute(callback.model_checkpoint.filepath)
        elif callback.HasField("backup_and_restore"):
            callback.backup_and_restore.backup_dir = _absolute(callback.backup_and_restore.backup_dir)
