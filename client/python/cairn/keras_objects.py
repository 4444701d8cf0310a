"""What an object of Keras is: its class and its arguments. Keras itself is not needed: a name, what Keras'
serialization makes of an object, or anything with get_config() will do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cairn import arguments

KERAS_MODULES = ("keras", "tf_keras", "tensorflow.keras", "tensorflow.python.keras")


@dataclass(frozen=True)
class Described:
    name: str  # of the class, or what the user wrote in its place
    config: dict[str, Any]
    by_name: bool = False  # the user wrote a name


def describe(argument: str, value: Any) -> Described:
    """Errors: TypeError, ValueError (a function of the user's own), which begin with `argument`."""
    if isinstance(value, str):
        return Described(value, {}, by_name=True)
    if isinstance(value, Mapping):
        return _of_serialized(argument, value)
    if hasattr(value, "get_config"):
        return Described(type(value).__name__, dict(value.get_config()))
    if callable(value):
        name = getattr(value, "__name__", type(value).__name__)
        if not str(getattr(value, "__module__", "")).startswith(KERAS_MODULES):
            raise ValueError(f"{argument}: {name} is a function of your own; Cairn has Keras' own ones alone")
        return Described(name, {}, by_name=True)
    raise TypeError(f"{argument}: is {arguments.type_name(value)}; give a name or an object of Keras")


def _of_serialized(argument: str, value: Mapping[str, Any]) -> Described:
    """{"class_name": ..., "config": {...}} as keras.saving.serialize_keras_object writes it."""
    if "class_name" not in value:
        raise TypeError(f'{argument}: is a dict without "class_name"; give a name or an object of Keras')
    name, config = value["class_name"], value.get("config") or {}
    if name == "function":
        if not str(value.get("module")).startswith(KERAS_MODULES):
            raise ValueError(f"{argument}: {config} is a function of your own; Cairn has Keras' own ones alone")
        return Described(str(config), {}, by_name=True)
    return Described(str(name), dict(config))


def number(value: Any) -> Any:
    """A float of a float, an array of one number or a variable; other values as they are."""
    if isinstance(value, (bool, str, int, float, type(None), list, tuple, Mapping)):
        return value
    if hasattr(value, "numpy"):
        value = value.numpy()
    return float(value) if hasattr(value, "__float__") else value


def no_counterpart(argument: str, described: Described, key: str, value: Any) -> ValueError:
    return ValueError(f"{argument}: {described.name}({key}={value!r}) has no counterpart in Cairn; leave {key} out")
