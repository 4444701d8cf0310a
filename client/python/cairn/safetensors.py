"""Writes a .safetensors file: eight bytes of length, a header in JSON, then the numbers of all tensors end to end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

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
            file.write(array.tobytes())
