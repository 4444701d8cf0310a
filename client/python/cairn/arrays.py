"""Arrays of a caller as examples of a job: which features they become, and what `data` of a job says of them.

Workers read files, so that arrays are written as TFRecord (records.py) into a folder that the workers of the local
cluster see. Errors are TypeError and ValueError that name the argument.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy

from cairn import records
from cairn.records import Feature
from cairn.v1 import data_pb2

INPUT, LABEL, WEIGHT = "x", "y", "w"  # features of what is written here
EXACT_FLOAT_MAX = 2**24  # whole numbers up to this are the same as float32
Encoding = data_pb2.TfRecord
Named = dict[str, numpy.ndarray]


def as_array(name: str, value: Any) -> numpy.ndarray:
    """A numeric array with at least one example."""
    try:
        array = numpy.asarray(value)
    except ValueError:
        raise ValueError(f"{name}: its rows have different lengths; give an array") from None
    if array.dtype.kind not in "buif":
        raise TypeError(f"{name}: is an array of {array.dtype}; give numbers")
    if array.ndim == 0:
        raise ValueError(f"{name}: is one number; the first axis of an array counts the examples")
    if len(array) == 0:
        raise ValueError(f"{name}: has no examples")
    return array


def is_array(value: Any) -> bool:
    """Whether it is data itself, and not the name of data."""
    return hasattr(value, "__array__") or isinstance(value, (list, tuple))


def floats(name: str, array: numpy.ndarray) -> numpy.ndarray:
    """As float32. Errors: a whole number that float32 does not have."""
    if array.dtype.kind in "ui" and (array.max() > EXACT_FLOAT_MAX or array.min() < -EXACT_FLOAT_MAX):
        raise ValueError(f"{name}: has whole numbers beyond {EXACT_FLOAT_MAX:,}, which float32 does not have")
    return array.astype(numpy.float32, copy=False)


def one_or_named(name: str, value: Any, names: list[str]) -> Named:
    """{"": array}, or arrays by the names of inputs or outputs: a dict has them, a list is in the order of `names`."""
    if isinstance(value, Mapping):
        unknown = [key for key in value if key not in names]
        if unknown:
            raise ValueError(f'{name}: "{unknown[0]}" is not one of the model\'s {", ".join(names)}')
        missing = [key for key in names if key not in value]
        if missing:
            raise ValueError(f'{name}: there is nothing for "{missing[0]}"')
        return {key: as_array(f"{name}[{key!r}]", value[key]) for key in names}
    several = isinstance(value, (list, tuple)) and len(value) > 0 and all(hasattr(v, "__array__") for v in value)
    if not several:
        if len(names) > 1:
            raise ValueError(f"{name}: the model has {', '.join(names)}; give a dict or a list of as many arrays")
        return {"": as_array(name, value)}
    if len(value) != len(names):
        raise ValueError(f"{name}: has {len(value)} arrays, the model takes {len(names)}")
    if len(names) == 1:
        return {"": as_array(f"{name}[0]", value[0])}
    return {key: as_array(f"{name}[{i}]", value[i]) for i, key in enumerate(names)}


@dataclass
class Examples:
    """Arrays of one split, all with as many examples."""

    x: Named
    y: Named
    weight: numpy.ndarray | None = None
    name: str = "data"  # of the argument, for errors

    def __post_init__(self) -> None:
        count = self.count()
        rest = [("y", a) for a in self.y.values()] + [("x", a) for a in self.x.values()]
        if self.weight is not None:
            rest.append(("sample_weight", self.weight))
        for part, array in rest:
            if len(array) != count:
                raise ValueError(f"{self.name}: x has {count} examples, {part} has {len(array)}")

    def count(self) -> int:
        return len(next(iter(self.x.values())))

    def part(self, begin: int, end: int) -> Examples:
        cut = lambda arrays: {key: array[begin:end] for key, array in arrays.items()}  # noqa: E731
        weight = None if self.weight is None else self.weight[begin:end]
        return Examples(cut(self.x), cut(self.y), weight, self.name)


def weights_of(name: str, value: Any) -> numpy.ndarray:
    array = as_array(name, value)
    if array.ndim != 1:
        raise ValueError(f"{name}: has {array.ndim} axes; give one number for each example")
    if not (numpy.isfinite(array).all() and (array >= 0).all()):
        raise ValueError(f"{name}: has numbers below 0, or that are not finite")
    return array.astype(numpy.float32)


# ---- what is written ----


@dataclass
class Layout:
    """How examples lie in records: the features, by the job's data."""

    data: Any  # a v1 Data: what is read of a record
    extra: list[Feature] = field(default_factory=list)

    def input_features(self, x: Named) -> list[Feature]:
        if self.data.inputs:
            by_input = {source.input: source.feature for source in self.data.inputs}
            arrays = {key: x[key] if key in x else x[""] for key in by_input}
            return [Feature(by_input[k], records.FLOAT_LIST, floats(f"x[{k!r}]", a)) for k, a in arrays.items()]
        name = self.data.tfrecord.input or INPUT
        array, encoding = next(iter(x.values())), self.data.tfrecord.encoding
        if encoding == Encoding.RAW_UINT8:
            return [Feature(name, records.BYTES_LIST, _bytes("x", array))]
        if encoding == Encoding.RAW_FLOAT32:
            rows = numpy.ascontiguousarray(floats("x", array), dtype="<f4").reshape(len(array), -1)
            return [Feature(name, records.BYTES_LIST, rows.view(numpy.uint8))]
        return [Feature(name, records.FLOAT_LIST, floats("x", array))]

    def target_features(self, y: Named) -> list[Feature]:
        if not self.data.targets:
            array = next(iter(y.values())) + self.data.tfrecord.label_offset
            return [_label(self.data.tfrecord.label or LABEL, array)]
        found = []
        for target in self.data.targets:
            array = y[target.output] if target.output in y else y[""]
            found.append(Feature(target.feature, records.FLOAT_LIST, floats("y", array)))
        return found

    def weight_features(self, examples: Examples) -> list[Feature]:
        if not self.data.weight_column:
            return []
        weight = examples.weight if examples.weight is not None else numpy.ones(examples.count(), numpy.float32)
        return [Feature(self.data.weight_column, records.FLOAT_LIST, weight)]

    def write(self, path: Path, examples: Examples) -> None:
        features = self.input_features(examples.x) + self.target_features(examples.y) + self.weight_features(examples)
        records.write(path, features)


def _bytes(name: str, array: numpy.ndarray) -> numpy.ndarray:
    if array.dtype == numpy.uint8:
        return array
    if array.min() < 0 or array.max() > 255 or (array != array.astype(numpy.uint8)).any():
        raise ValueError(f"{name}: the job was given whole numbers from 0 to 255, and here are others")
    return array.astype(numpy.uint8)


def _label(name: str, array: numpy.ndarray) -> Feature:
    """Whole numbers are class numbers where the loss takes them so, whatever their type is."""
    rows = array.reshape(len(array))
    if rows.dtype.kind in "bui" or (numpy.isfinite(rows).all() and (rows == numpy.floor(rows)).all()):
        return Feature(name, records.INT64_LIST, rows.astype(numpy.int64))
    return Feature(name, records.FLOAT_LIST, rows.astype(numpy.float32))


def layout_of(examples: Examples, folder: Path) -> Layout:
    """That of a new job, whose `data` is filled in."""
    data = data_pb2.Data(path=str(folder), format=data_pb2.Data.TFRECORD)
    if "" in examples.x:
        array = examples.x[""]
        data.tfrecord.input = INPUT
        data.tfrecord.encoding = Encoding.RAW_UINT8 if array.dtype == numpy.uint8 else Encoding.RAW_FLOAT32
        data.tfrecord.shape.extend(array.shape[1:] or (1,))
    else:
        for key in examples.x:
            data.inputs.add(input=key, feature=f"{INPUT}/{key}")
    if list(examples.y) == [""] and _is_label(examples.y[""]):
        data.tfrecord.label = LABEL
    else:
        for key, array in examples.y.items():
            target = data.targets.add(output=key, feature=f"{LABEL}/{key}" if key else LABEL)
            target.shape.extend(array.shape[1:] or (1,))
    if examples.weight is not None:
        data.weight_column = WEIGHT
    return Layout(data)


def _is_label(array: numpy.ndarray) -> bool:
    """One number an example."""
    return array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)


def layout_of_job(data: Any, job: str) -> Layout:
    """That of arrays which take the place of a job's own data. job: for errors."""
    if data.tfrecord.encoding == Encoding.JPEG_OR_PNG:
        raise ValueError(f"x: {job} reads JPEG or PNG pictures; give the path of such data")
    lists = [*data.inputs, *data.targets]
    if any(source.columns for source in lists):
        raise ValueError(f"x: {job} reads columns of a CSV file; give the path of such a file")
    if any(target.pictures for target in data.targets):
        raise ValueError(f"x: {job} reads targets from pictures; give the path of such data")
    layout = Layout(data_pb2.Data())
    layout.data.CopyFrom(data)
    return layout
