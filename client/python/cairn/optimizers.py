"""Optimizers of a job, for cairn.torch.Run and `set={"optimizer": ...}`: cairn.SGD(0.1, momentum=0.9).

Each gives the job's field `optimizer` as a dict. Formulas and defaults are those of Keras
(proto/cairn/v1/optimizer.proto).
Fields that every optimizer has go along: weight_decay, clipvalue, clipnorm, global_clipnorm, ema, schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cairn import arguments

COMMON = ("weight_decay", "exclude_from_weight_decay", "clipvalue", "clipnorm", "global_clipnorm", "ema", "schedule")
_ADAM = ("beta_1", "beta_2", "epsilon")
_MORE_ADAM = ("amsgrad", "corrected_epsilon")
# Name -> its field in the job, and the fields of that.
KINDS = {
    "SGD": ("sgd", ("momentum", "nesterov")),
    "Adam": ("adam", (*_ADAM, *_MORE_ADAM)),
    "AdamW": ("adamw", (*_ADAM, *_MORE_ADAM, "weight_decay")),
    "RMSprop": ("rmsprop", ("rho", "momentum", "epsilon", "centered")),
    "Adagrad": ("adagrad", ("initial_accumulator_value", "epsilon")),
    "Adadelta": ("adadelta", ("rho", "epsilon")),
    "Adamax": ("adamax", _ADAM),
    "Nadam": ("nadam", _ADAM),
    "Lion": ("lion", ("beta_1", "beta_2")),
}


def _maker(name: str) -> Callable[..., dict[str, Any]]:
    kind, own = KINDS[name]

    def make(learning_rate: float | None = None, **fields: Any) -> dict[str, Any]:
        known = (*own, *(field for field in COMMON if field not in own))
        for field in fields:
            if field not in known:
                close = arguments.nearest(field, known)
                hint = f'; did you mean "{close}"?' if close else f"; it has learning_rate, {', '.join(known)}"
                raise TypeError(f'{name}: there is no argument "{field}"{hint}')
        optimizer: dict[str, Any] = {kind: {key: value for key, value in fields.items() if key in own}}
        if learning_rate is not None:
            optimizer["learning_rate"] = arguments.real("learning_rate", learning_rate)
        return optimizer | {key: value for key, value in fields.items() if key not in own}

    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"The job's optimizer: {name} of Keras. Fields: {', '.join((*own, *COMMON))}."
    return make


SGD, Adam, AdamW, RMSprop = _maker("SGD"), _maker("Adam"), _maker("AdamW"), _maker("RMSprop")
Adagrad, Adadelta, Adamax = _maker("Adagrad"), _maker("Adadelta"), _maker("Adamax")
Nadam, Lion = _maker("Nadam"), _maker("Lion")
