"""Writes and reads .safetensors files: eight bytes of length, a header in JSON, then the numbers of all tensors end to
end."""

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


def read(path: Path) -> dict[str, numpy.ndarray]:
    """The arrays of float32, by name, each a copy of its own.

    Errors: OSError; ValueError names the file and what is wrong with it, or a tensor of another type.
    """
    data = Path(path).read_bytes()
    size = int.from_bytes(data[:8], "little")
    try:
        if not 2 <= size <= len(data) - 8:
            raise ValueError("its header is cut off")
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        body, arrays = memoryview(data)[8 + size :], {}
        for name, tensor in header.items():
            if tensor["dtype"] != "F32":
                raise ValueError(f"{name!r} is {tensor['dtype']}, and F32 is read")
            begin, end = tensor["data_offsets"]
            arrays[name] = numpy.frombuffer(body[begin:end], "<f4").reshape(tensor["shape"]).copy()
        return arrays
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: is no .safetensors file that can be read: {error}") from None
