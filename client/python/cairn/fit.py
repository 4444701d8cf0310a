"""Client.fit: a compiled model of Keras and its data as a job.

The arguments are those of Keras' fit, and fields of a job. What of Keras' has no counterpart is refused by its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

from cairn import arguments, arrays, keras_callbacks, settings, spelling
from cairn.arrays import Examples
from cairn.keras_model import KerasModel
from cairn.v1 import data_pb2, job_pb2


class FitOptions(TypedDict, total=False):
    """Keyword arguments of Client.fit. `data` and `y` are its positional ones."""

    epochs: int  # default 1
    batch_size: int  # over all replicas; default 32
    validation_data: Any  # (x, y) or (x, y, sample_weight) where data are arrays
    validation_split: float  # the last examples of arrays; of a path: examples chosen by a seed
    validation_freq: int  # epochs; default 1
    callbacks: Any  # Keras' callbacks, one or a list
    class_weight: Mapping[int, float]
    sample_weight: Any  # of arrays: a number for each example
    shuffle: bool  # default True
    steps_per_epoch: int
    strategy: str  # "parameter_server", "MirroredStrategy", ...; default multi_worker_mirrored
    replicas: int  # default: the cluster's slots
    seed: int
    name: str  # of the job; default: the model's
    weights: Any  # True: the model's own (the default); False: new ones, by the seed; or a file that the workers see
    set: Mapping[str, Any]  # any other field of the job, as in Client.submit


# Keras' arguments of fit that are not taken, and why.
REFUSED = {
    "x": "give the data as the first argument, or as data=",
    "verbose": "job.wait(progress=False) shows nothing",
    "initial_epoch": "a job begins at epoch 0; set={'resume_from': ...} goes on from a checkpoint",
    "validation_steps": "a validation goes through all of its data",
    "validation_batch_size": "a validation has the batches of the training",
    "max_queue_size": "the workers read ahead by themselves; set={'data.prefetch': ...} says how far",
    "workers": "the workers read by themselves",
    "use_multiprocessing": "the workers read by themselves",
}


def check_options(options: Mapping[str, Any]) -> None:
    known = FitOptions.__annotations__
    for key in options:
        if key in REFUSED:
            raise TypeError(f"fit: {key} has no counterpart in Cairn: {REFUSED[key]}")
        if key not in known:
            close = arguments.nearest(key, known)
            hint = f'; did you mean "{close}"?' if close else f"; it has {', '.join(known)}"
            raise TypeError(f'fit: there is no argument "{key}"{hint}')


def job_of(model: Any, data: Any, y: Any, options: FitOptions, folder: Callable[[str], Path]) -> Any:
    """A JobSpec. folder(argument): a new folder that the workers see; it raises ValueError for the argument where there
    is none."""
    check_options(options)
    keras = KerasModel(model)
    spec = job_pb2.JobSpec()
    spec.model.keras_json = keras.json
    spec.name = _name(options.get("name"), model)
    spec.epochs = arguments.whole("epochs", options.get("epochs", 1), 1)
    for key in ("batch_size", "steps_per_epoch", "validation_freq", "replicas"):
        if options.get(key) is not None:
            setattr(spec, key, arguments.whole(key, options[key], 1))
    if "seed" in options:
        spec.seed = arguments.whole("seed", options["seed"], 0, 2**64 - 1)
    if options.get("strategy") is not None:
        put_strategy(spec, options["strategy"])
    keras.put_compiled(spec)
    keras_callbacks.put(spec, options.get("callbacks"))
    _put_class_weight(spec, options.get("class_weight"))
    _put_data(spec, keras, data, y, options, folder)
    if "shuffle" in options:
        spec.data.shuffle = arguments.boolean("shuffle", options["shuffle"])
    _put_weights(spec, keras, options.get("weights", True), folder)
    settings.apply(spec, options.get("set", {}))
    return spec


def _name(given: Any, model: Any) -> str:
    if given is not None:
        return arguments.text("name", given)
    name = str(getattr(model, "name", "") or "keras")
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "_" for c in name)[:63]


def put_strategy(spec: Any, value: Any) -> None:
    """A name, or an object of tf.distribute: its class is the name."""
    name = value if isinstance(value, str) else type(value).__name__
    enum = spec.DESCRIPTOR.fields_by_name["strategy"].enum_type
    found = spelling.find_value(enum, name)
    if found is None or found.number == 0:
        names = ", ".join(v.name.lower() for v in enum.values if v.number)
        raise ValueError(f'strategy: "{name}" is not one of {names}')
    spec.strategy = found.number


def _put_class_weight(spec: Any, value: Any) -> None:
    if value is None:
        return
    if not isinstance(value, Mapping):
        raise TypeError(f"class_weight: is {arguments.type_name(value)}; give a dict of class numbers and weights")
    for key, weight in value.items():
        number = arguments.whole("class_weight's class", key, 0)
        spec.class_weight.add(class_id=number, weight=arguments.real(f"class_weight[{key}]", weight))


def _put_weights(spec: Any, keras: KerasModel, value: Any, folder: Callable[[str], Path]) -> None:
    if value is False:
        return
    if value is True:
        spec.initial_weights = str(keras.write_weights(folder("weights")))
    elif isinstance(value, (str, os.PathLike)):
        spec.initial_weights = arguments.text("weights", os.fspath(value))
    else:
        kind = arguments.type_name(value)
        raise TypeError(f"weights: is {kind}; give True, False or the path of a file that the workers see")


# ---- data ----


def _put_data(
    spec: Any, keras: KerasModel, data: Any, y: Any, options: FitOptions, folder: Callable[[str], Path]
) -> None:
    if data is None:
        raise TypeError("data: is missing; give a path, arrays, or a dict of the job's data")
    if isinstance(data, (str, os.PathLike, data_pb2.Data)) or (isinstance(data, Mapping) and y is None):
        _put_named_data(spec, data, y, options)
        return
    if not arrays.is_array(data) and not isinstance(data, Mapping):
        raise TypeError(f"data: is {arguments.type_name(data)}; give a path, arrays, or a dict of the job's data")
    train = _examples(keras, data, y, options.get("sample_weight"))
    validation = _validation(keras, options)
    split = arguments.share("validation_split", options.get("validation_split") or 0.0)
    if split and validation is None:  # Keras' rule: the last ones
        cut = int(train.count() * (1 - split))
        if not 0 < cut < train.count():
            raise ValueError(f"validation_split: {split:g} of {train.count()} examples leaves one side without any")
        train, validation = train.part(0, cut), train.part(cut, train.count())
    place = folder("data")
    layout = arrays.layout_of(train, place)
    if validation is not None:
        _check_alike(train, validation)
        layout.write(place / "validation.tfrecord", validation)
    layout.write(place / "train.tfrecord", train)
    spec.data.CopyFrom(layout.data)


def _put_named_data(spec: Any, data: Any, y: Any, options: FitOptions) -> None:
    """A path, or what the job's field `data` has."""
    for key in ("validation_data", "sample_weight"):
        if options.get(key) is not None:
            cure = (
                "validation_split sets examples aside"
                if key == "validation_data"
                else "set={'data.weight_column': ...}"
            )
            raise ValueError(f"{key}: goes with arrays alone; of data that the workers read: {cure}")
    if y is not None:
        raise ValueError("y: goes with arrays alone; the data that the workers read have their labels with them")
    if isinstance(data, (str, os.PathLike)):
        spec.data.path = arguments.text("data", os.fspath(data))
    else:
        settings.put_message(spec.data, data, "data")
    if options.get("validation_split"):
        spec.data.validation_split = arguments.share("validation_split", options["validation_split"])


def _examples(keras: KerasModel, data: Any, y: Any, sample_weight: Any) -> Examples:
    """x with y beside it, or (x, y), or (x, y, sample_weight)."""
    if y is None and isinstance(data, tuple) and len(data) in (2, 3):
        return _of_tuple(keras, data, "data", sample_weight)
    if y is None:
        raise ValueError("y: is missing; give data and y, or data=(x, y)")
    weight = None if sample_weight is None else arrays.weights_of("sample_weight", sample_weight)
    x = arrays.one_or_named("data", data, keras.names("input_layers"))
    return Examples(x, arrays.one_or_named("y", y, keras.names("output_layers")), weight, "data")


def _of_tuple(keras: KerasModel, data: Any, name: str, sample_weight: Any = None) -> Examples:
    if not isinstance(data, (tuple, list)) or len(data) not in (2, 3):
        raise TypeError(f"{name}: is {arguments.type_name(data)}; give (x, y) or (x, y, sample_weight)")
    weight = data[2] if len(data) == 3 else sample_weight
    x = arrays.one_or_named(f"{name}'s x", data[0], keras.names("input_layers"))
    y = arrays.one_or_named(f"{name}'s y", data[1], keras.names("output_layers"))
    return Examples(x, y, None if weight is None else arrays.weights_of("sample_weight", weight), name)


def _validation(keras: KerasModel, options: FitOptions) -> Examples | None:
    given = options.get("validation_data")
    return None if given is None else _of_tuple(keras, given, "validation_data")


def _check_alike(train: Examples, validation: Examples) -> None:
    for part, ours, theirs in (("x", train.x, validation.x), ("y", train.y, validation.y)):
        for key, array in ours.items():
            if array.shape[1:] != theirs[key].shape[1:]:
                raise ValueError(
                    f"validation_data: an example of {part} has the shape {list(theirs[key].shape[1:])}, one of the "
                    f"training {list(array.shape[1:])}"
                )
    if validation.weight is not None and train.weight is None:
        raise ValueError("validation_data: has sample weights, and the training has none")
