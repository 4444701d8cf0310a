"""A model of Keras as a job has it: its layers as model.to_json() writes them, its weights in a file, and what it was
compiled with. Anything with these methods is a model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from cairn import arguments, keras_compile, safetensors


class KerasModel:
    def __init__(self, model: Any):
        if not callable(getattr(model, "to_json", None)):
            raise TypeError(f"model: is {arguments.type_name(model)}; give a model of Keras, which has to_json()")
        self.model = model
        self.json = self._json()
        self.config = json.loads(self.json).get("config", {})

    def _json(self) -> str:
        try:
            text = self.model.to_json()
        except NotImplementedError:  # a subclassed model
            name = type(self.model).__name__
            raise ValueError(
                f"model: {name} cannot be written as JSON; Cairn takes Sequential and Functional models"
            ) from None
        return arguments.text("model.to_json()", text)

    def names(self, key: str) -> list[str]:
        """The layers of "input_layers" or "output_layers"; empty: a Sequential model, which has one of each."""
        places = self.config.get(key, [])
        if isinstance(places, Mapping):
            return [place[0] for place in places.values()]
        if places and isinstance(places[0], str):  # Keras 3, of one: ["name", 0, 0]
            return [places[0]]
        return [place[0] for place in places]

    # ---- weights ----

    def write_weights(self, folder: Path) -> Path:
        """A file with the weights that the model has now. Errors: ValueError."""
        if callable(getattr(self.model, "save", None)):
            path = folder / "model.keras"
            self.model.save(str(path))
            return path
        path = folder / "weights.safetensors"
        safetensors.write(path, self._named_weights())
        return path

    def _named_weights(self) -> dict[str, numpy.ndarray]:
        variables = list(getattr(self.model, "weights", None) or ())
        if not variables:
            raise ValueError("model: has no weights yet; build it, or give weights=False to start from new ones")
        values = self.model.get_weights() if hasattr(self.model, "get_weights") else [_value(v) for v in variables]
        named: dict[str, numpy.ndarray] = {}
        for variable, value in zip(variables, values, strict=True):
            # "conv2d/kernel" of Keras 3, "conv2d/kernel:0" of Keras 2
            name = str(getattr(variable, "path", None) or variable.name).split(":")[0]
            if name in named:
                raise ValueError(f'model: two variables are called "{name}"; give their layers names of their own')
            named[name] = numpy.asarray(value)
        return named

    # ---- compile() ----

    def put_compiled(self, spec: Any) -> None:
        compiled = self._compiled()
        keras_compile.put_optimizer(spec, compiled["optimizer"])
        if compiled.get("weighted_metrics"):
            raise ValueError("model.compile(weighted_metrics=...) has no counterpart in Cairn; use metrics")
        outputs = self.names("output_layers")
        if len(outputs) > 1:
            self._put_outputs(spec, compiled, outputs)
            return
        if _given(compiled.get("loss_weights")):
            raise ValueError("model.compile(loss_weights=...): the model has one output; leave loss_weights out")
        keras_compile.put_loss(spec.loss, _only(compiled["loss"], outputs, "loss"))
        for i, metric in enumerate(_list(_only(compiled.get("metrics"), outputs, "metrics"))):
            keras_compile.put_metric(spec.metrics.add(), metric, f"metrics[{i}]")

    def _compiled(self) -> dict[str, Any]:
        config = None
        if callable(getattr(self.model, "get_compile_config", None)):
            config = self.model.get_compile_config()
        if not config:
            names = ("optimizer", "loss", "loss_weights", "metrics")
            config = {name: getattr(self.model, name, None) for name in names}
        for name in ("optimizer", "loss"):
            if config.get(name) is None:
                raise ValueError(f"model: has no {name}; call model.compile(optimizer=..., loss=...) before fit")
        return dict(config)

    def _put_outputs(self, spec: Any, compiled: Mapping[str, Any], outputs: list[str]) -> None:
        losses = _by_output(compiled["loss"], outputs, "loss")
        weights = _by_output(compiled.get("loss_weights"), outputs, "loss_weights")
        metrics = _by_output(compiled.get("metrics"), outputs, "metrics")
        for name in outputs:
            if losses.get(name) is None:
                continue
            to = spec.outputs.add(output=name)
            keras_compile.put_loss(to.loss, losses[name], f'loss["{name}"]')
            if weights.get(name) is not None:
                to.weight = arguments.real(f'loss_weights["{name}"]', weights[name])
            for i, metric in enumerate(_list(metrics.get(name))):
                keras_compile.put_metric(to.metrics.add(), metric, f'metrics["{name}"][{i}]')


def _value(variable: Any) -> numpy.ndarray:
    return numpy.asarray(variable.numpy() if hasattr(variable, "numpy") else variable)


def _given(value: Any) -> bool:
    return value is not None and value != [] and value != {}


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _is_serialized(value: Any) -> bool:
    return isinstance(value, Mapping) and "class_name" in value


def _only(value: Any, outputs: list[str], name: str) -> Any:
    """That of a model with one output, which may stand in a list or a dict."""
    if isinstance(value, Mapping) and not _is_serialized(value):
        if len(value) != 1 or (outputs and outputs[0] not in value):
            raise ValueError(
                f"{name}: names {', '.join(value)}; the model's output is {outputs[0] if outputs else 'one'}"
            )
        return next(iter(value.values()))
    if name == "loss" and isinstance(value, (list, tuple)) and len(value) == 1:
        return value[0]
    if (
        name == "metrics"
        and isinstance(value, (list, tuple))
        and len(value) == 1
        and isinstance(value[0], (list, tuple))
    ):
        return value[0]
    return value


def _by_output(value: Any, outputs: list[str], name: str) -> dict[str, Any]:
    """One for all outputs, a list in their order, or a dict."""
    if value is None:
        return {}
    if isinstance(value, Mapping) and not _is_serialized(value):
        unknown = [key for key in value if key not in outputs]
        if unknown:
            raise ValueError(f'{name}: "{unknown[0]}" is not one of the outputs {", ".join(outputs)}')
        return dict(value)
    if isinstance(value, (list, tuple)):
        if len(value) != len(outputs):
            raise ValueError(
                f"{name}: has {len(value)} entries, the model {len(outputs)} outputs: {', '.join(outputs)}"
            )
        return dict(zip(outputs, value, strict=True))
    if name == "loss_weights":
        raise TypeError(f"loss_weights: is {arguments.type_name(value)}; give a dict or a list")
    return {key: value for key in outputs}
