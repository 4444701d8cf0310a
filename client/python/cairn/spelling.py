"""Names as Keras spells them, found in the protos: "mse", "MeanSquaredError" and "mean_squared_error" are
MEAN_SQUARED_ERROR; "MultiWorkerMirroredStrategy" is MULTI_WORKER_MIRRORED. As `cairn submit --set` takes them.
"""

from __future__ import annotations

from typing import Any

# Keras' other names of losses and metrics.
SHORT_NAMES = {
    "acc": "accuracy",
    "bce": "binarycrossentropy",
    "mse": "meansquarederror",
    "mae": "meanabsoluteerror",
    "mape": "meanabsolutepercentageerror",
    "msle": "meansquaredlogarithmicerror",
    "rmse": "rootmeansquarederror",
    "kld": "kldivergence",
    "kullbackleiblerdivergence": "kldivergence",
    "logcosh": "logcosherror",
    "topkcategoricalaccuracy": "topkaccuracy",
    "sparsetopkcategoricalaccuracy": "topkaccuracy",
}


def squash(name: str) -> str:
    """Letters and digits alone, in small letters."""
    return "".join(c for c in name if c.isascii() and c.isalnum()).lower()


def _find_squashed(enum: Any, squashed: str) -> Any:
    return next((value for value in enum.values if squash(value.name) == squashed), None)


def find_value(enum: Any, name: str) -> Any:
    """The value of an enum's descriptor, or None."""
    squashed = squash(name)
    if not squashed:
        return None
    value = _find_squashed(enum, squashed)
    if value is None and squashed in SHORT_NAMES:
        value = _find_squashed(enum, SHORT_NAMES[squashed])
    base = squashed.removesuffix("strategy")
    if value is None and base and base != squashed:
        value = _find_squashed(enum, base)
    return value


def kind_enum(message: Any) -> Any:
    """The field `kind` of a message's descriptor where it is an enum: Loss, Metric. Else None."""
    field = message.fields_by_name.get("kind")
    return field if field is not None and field.enum_type is not None else None


def find_kind(message: Any, name: str) -> Any:
    """The field of the oneof `kind` with that name: Optimizer, Callback. None: there is none."""
    oneof = message.oneofs_by_name.get("kind")
    fields = oneof.fields if oneof is not None else ()
    return next((field for field in fields if squash(field.name) == squash(name)), None)


def kind_names(message: Any) -> list[str]:
    """What `kind` may be."""
    field = kind_enum(message)
    if field is not None:
        return [value.name for value in field.enum_type.values if value.number != 0]
    oneof = message.oneofs_by_name.get("kind")
    return [] if oneof is None else [field.name for field in oneof.fields]
