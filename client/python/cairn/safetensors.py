"""Writes and reads .safetensors files: eight bytes of length, a header in JSON, then the numbers of all tensors end to
end."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy


def write(path: Path, tensors: Mapping[str, numpy.ndarray]) -> None:
    """float32, under the names given."""
    header, at, rows = {}, 0, []
    for name, value in tensors.items():
        array = numpy.ascontiguousarray(value, dtype="<f4")
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
        rows.append(array)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # the numbers begin at a multiple of eight
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for array in rows:
            file.write(array.data)  # without a copy


def read(path: Path) -> dict[str, numpy.ndarray]:
    """The arrays of float32, by name, each a copy of its own.

    Errors: OSError; ValueError names the file and what is wrong with it, or a tensor of another type.
    """
    try:
        with open(path, "rb") as file:
            return _read(file, os.fstat(file.fileno()).st_size)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: is no .safetensors file that can be read: {error}") from None


def _read(file: BinaryIO, length: int) -> dict[str, numpy.ndarray]:
    """A tensor after the other: a file of gigabytes is in memory once."""
    size = int.from_bytes(file.read(8), "little")
    if not 2 <= size <= length - 8:
        raise ValueError("its header is cut off")
    header = json.loads(file.read(size))
    header.pop("__metadata__", None)
    arrays = {}
    for name, tensor in header.items():
        if tensor["dtype"] != "F32":
            raise ValueError(f"{name!r} is {tensor['dtype']}, and F32 is read")
        begin, end = tensor["data_offsets"]
        if not 0 <= begin <= end <= length - 8 - size:
            raise ValueError(f"{name!r} is cut off")
        file.seek(8 + size + begin)
        body = bytearray(end - begin)
        file.readinto(body)
        arrays[name] = numpy.frombuffer(body, "<f4").reshape(tensor["shape"])
    return arrays
