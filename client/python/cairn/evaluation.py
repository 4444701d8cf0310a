"""Job.evaluate and Job.predict: the workers compute, on the job's data, on other data that they see, or on arrays that
are written for them.

Figures are made of sums by `cairn evaluate`, and outputs that have names are told apart by `cairn predict`; one output
comes from the coordinator as it is.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy

from cairn import arguments, arrays
from cairn.arrays import Examples
from cairn.errors import ProgramError
from cairn.spec import names_root
from cairn.v1 import cluster_pb2, data_pb2, types_pb2

if TYPE_CHECKING:
    from cairn.job import Job

TIMEOUT_S = 1800.0
SPLITS = ("train", "validation", "test")
BESIDE_FIGURES = ("job_id", "split", "examples", "version")  # in the JSON of an evaluation


@dataclass(frozen=True)
class Options:
    split: str | None  # None: test, or the only one that the data have
    weights: str | os.PathLike[str] | None

    def __post_init__(self) -> None:
        if self.split is not None:
            arguments.choice("split", self.split, SPLITS)
        if self.weights is not None and not isinstance(self.weights, (str, os.PathLike)):
            raise TypeError(f"weights: is {arguments.type_name(self.weights)}; give a path")


def evaluate(job: Job, data: Any, y: Any, options: Options) -> dict[str, float]:
    if data is None or isinstance(data, (str, os.PathLike)):
        if y is not None:
            raise ValueError("y: goes with arrays alone; the data that the workers read have their labels with them")
        return _evaluate_path(job, _seen_path("data", data), options.split, options)
    if y is None and isinstance(data, tuple) and len(data) == 2:
        data, y = data
    _check_array(data)
    if y is None:
        raise ValueError("y: is missing; give evaluate(x, y)")
    with job._scratch("data") as folder:
        spec = job.status().spec
        layout = arrays.layout_of_job(spec.data, f"job {job.id}")
        examples = Examples(_inputs(spec, data), _targets(spec, y))
        layout.write(folder / "train.tfrecord", examples)
        return _evaluate_path(job, str(folder), "train", options)


def _evaluate_path(job: Job, path: str, split: str | None, options: Options) -> dict[str, float]:
    weights = _seen_path("weights", options.weights)
    more = _flags(split, path, weights)
    status = job.status()
    try:
        answer = job._client._program.ask("evaluate", str(job.id), *more, timeout=TIMEOUT_S)
    except ProgramError:
        # The coordinator is asked again: its error has a code.
        request = cluster_pb2.EvaluateRequest(split=_split(split), weights=weights)
        request.job.job_id = job.id
        if path:
            request.data.CopyFrom(_other_data(status.spec.data, path))
        job._client._connection.call("Evaluate", request, TIMEOUT_S)
        raise
    return {n: float("nan") if v is None else float(v) for n, v in answer.items() if n not in BESIDE_FIGURES}


def predict(job: Job, data: Any, options: Options) -> numpy.ndarray | dict[str, numpy.ndarray]:
    spec = job.status().spec
    if data is None or isinstance(data, (str, os.PathLike)):
        path = _seen_path("data", data)
        other = _other_data(spec.data, path) if path else None
        return _predict(job, spec, other, options.split, options)
    _check_array(data)
    with job._scratch("data") as folder:
        inputs = _inputs(spec, data)
        count = len(next(iter(inputs.values())))
        layout = (
            arrays.layout_of_job(spec.data, f"job {job.id}") if len(spec.outputs) > 0 else _own_layout(spec, inputs)
        )
        # Nothing is compared with the targets, but a record has them.
        targets = {t.output: numpy.zeros((count, *t.shape), numpy.float32) for t in layout.data.targets}
        layout.write(folder / "train.tfrecord", Examples(inputs, targets or {"": numpy.zeros(count, numpy.int64)}))
        layout.data.path = str(folder)
        return _predict(job, spec, layout.data, "train", options)


def _predict(job: Job, spec: Any, data: Any, split: str | None, options: Options) -> Any:
    weights = _seen_path("weights", options.weights)
    if len(spec.outputs) > 0:
        return _predict_named(job, data, split, weights)
    request = cluster_pb2.PredictRequest(split=_split(split), weights=weights)
    request.job.job_id = job.id
    if data is not None:
        request.data.CopyFrom(data)
    parts, shape = [], ()
    for answer in job._client._connection.stream("Predict", request, TIMEOUT_S):
        shape = tuple(answer.output_shape)
        parts.append(numpy.frombuffer(answer.outputs, "<f4").reshape(answer.examples, *shape))
    return numpy.concatenate(parts) if parts else numpy.zeros((0, *shape), numpy.float32)


def _predict_named(job: Job, data: Any, split: str | None, weights: str) -> dict[str, numpy.ndarray]:
    """`cairn predict -o p.npy` writes a file for each output: p.NAME.npy, with "_" for "/" in the name."""
    with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
        more = _flags(split, "" if data is None else data.path, weights)
        target = str(Path(folder) / "p.npy")
        job._client._program.run("predict", str(job.id), "-o", target, *more, timeout=TIMEOUT_S)
        names = {output.output.replace("/", "_"): output.output for output in job.status().spec.outputs}
        found = {path.name[len("p.") : -len(".npy")]: path for path in sorted(Path(folder).glob("p.*.npy"))}
        return {names.get(name, name): numpy.load(path) for name, path in found.items()}


# ---- what is asked for ----


def _split(name: str | None) -> int:
    return types_pb2.SPLIT_UNSPECIFIED if name is None else types_pb2.Split.Value(name.upper())


def _flags(split: str | None, data: str, weights: str) -> list[str]:
    given = {"--split": split, "--data": data, "--weights": weights}
    return [part for flag, value in given.items() if value for part in (flag, value)]


def _seen_path(name: str, value: Any) -> str:
    """ "": None. A relative path is taken from the folder of this process."""
    if value is None:
        return ""
    path = arguments.text(name, os.fspath(value))
    if names_root(path):
        return path
    absolute = os.path.abspath(path)
    if not os.path.isabs(path) and not os.path.exists(absolute):
        raise ValueError(f"{name}: {path}: there is no {absolute} here; give the absolute path, as the workers see it")
    return absolute


def _other_data(data: Any, path: str) -> Any:
    """The job's data with another path, as `cairn evaluate --data` makes it. Of its augmentation a random_crop alone
    says how larger pictures become the model's input."""
    other = data_pb2.Data()
    other.CopyFrom(data)
    other.path, other.format = path, data_pb2.Data.AUTO
    other.ClearField("validation_split")
    other.ClearField("test_split")
    crops = [step for step in data.augmentation if step.HasField("random_crop")]
    other.ClearField("augmentation")
    other.augmentation.extend(crops)
    return other


def _own_layout(spec: Any, inputs: arrays.Named) -> arrays.Layout:
    """Of x alone, whatever the job's own data are: what is read is said anew."""
    data = _other_data(spec.data, "")
    for name in ("tfrecord", "inputs", "label_column", "header", "weight_column", "targets"):
        data.ClearField(name)
    data.format = data_pb2.Data.TFRECORD
    if "" in inputs:
        array = inputs[""]
        data.tfrecord.input, data.tfrecord.label = arrays.INPUT, arrays.LABEL
        byte = array.dtype == numpy.uint8
        data.tfrecord.encoding = data_pb2.TfRecord.RAW_UINT8 if byte else data_pb2.TfRecord.RAW_FLOAT32
        data.tfrecord.shape.extend(array.shape[1:] or (1,))
    for key in inputs:
        if key:
            data.inputs.add(input=key, feature=f"{arrays.INPUT}/{key}")
    for target in spec.data.targets:
        data.tfrecord.ClearField("label")
        data.targets.add(output=target.output, feature=f"{arrays.LABEL}/{target.output}", shape=target.shape)
    return arrays.Layout(data)


def _check_array(data: Any) -> None:
    if not arrays.is_array(data) and not isinstance(data, dict):
        raise TypeError(f"data: is {arguments.type_name(data)}; give a path or arrays")


def _inputs(spec: Any, x: Any) -> arrays.Named:
    return arrays.one_or_named("data", x, [source.input for source in spec.data.inputs])


def _targets(spec: Any, y: Any) -> arrays.Named:
    named = [target.output for target in spec.data.targets]
    return arrays.one_or_named("y", y, named if len(named) > 1 else [])
