"""What model.compile() was given, as fields of a job: loss, metrics, optimizer. What has no counterpart is refused by
its name; that numbers make sense is for the coordinator to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cairn import spelling
from cairn.keras_objects import Described, describe, no_counterpart, number

IGNORED = {"name", "dtype", "fn"}
# Arguments with the one value that Cairn computes with.
LOSS_NEUTRAL = {"reduction": ("sum_over_batch_size", "auto", None), "axis": (-1, None)}
METRIC_NEUTRAL = {
    "multi_label": (False,),
    "num_labels": (None,),
    "label_weights": (None,),
    "sparse_y_true": (True, False),
    "sparse_y_pred": (True, False),
    "axis": (-1, None),
    "class_aggregation": ("uniform_average",),
    "num_regressors": (0,),
    "thresholds": (None,),
}
METRIC_FIELDS = {"top_k": "k", "recall": "value", "precision": "value", "specificity": "value", "sensitivity": "value"}
OPTIMIZER_IGNORED = IGNORED | {"is_legacy_optimizer", "jit_compile", "ema_momentum", "ema_overwrite_frequency"}
OPTIMIZER_NEUTRAL = {"loss_scale_factor": (None,), "decay": (0, 0.0, None)}
# Arguments whose None is another value than the default: "do without".
NONE_IS_ZERO = {"muon": ("weight_decay", "adam_weight_decay", "rms_rate")}


def refuse_unknown(argument: str, described: Described, names: list[str]) -> ValueError:
    return ValueError(f"{argument}: {described.name} has no counterpart in Cairn; it has {', '.join(names)}")


def put_loss(loss: Any, value: Any, argument: str = "loss") -> None:
    """loss: a v1 Loss."""
    described = describe(argument, value)
    enum = loss.DESCRIPTOR.fields_by_name["kind"].enum_type
    found = spelling.find_value(enum, described.name)
    if found is None:
        raise refuse_unknown(argument, described, spelling.kind_names(loss.DESCRIPTOR))
    loss.kind = found.number
    with_axis = found.name in ("COSINE_SIMILARITY", "DICE", "TVERSKY")
    for key, raw in described.config.items():
        given = number(raw)
        if key in IGNORED or given is None:
            continue
        if key in LOSS_NEUTRAL and not (key == "axis" and with_axis):
            if given not in LOSS_NEUTRAL[key]:
                raise no_counterpart(argument, described, key, given)
        elif key == "axis":
            loss.axis.extend(given if isinstance(given, (list, tuple)) else [given])
        else:
            _put_field(loss, key, given, argument, described)


def put_metric(metric: Any, value: Any, argument: str) -> None:
    """metric: a v1 Metric. It has the name that Keras gives its figure."""
    described = describe(argument, value)
    enum = metric.DESCRIPTOR.fields_by_name["kind"].enum_type
    found = spelling.find_value(enum, described.name)
    if found is None:
        raise refuse_unknown(argument, described, spelling.kind_names(metric.DESCRIPTOR))
    if found.name == "ACCURACY" and not described.by_name:  # the class compares numbers, the name classes
        found = enum.values_by_name["EXACT_ACCURACY"]
    metric.kind = found.number
    name = described.name if described.by_name else described.config.get("name")
    if name and name != found.name.lower():
        metric.name = name
    for key, raw in described.config.items():
        given = number(raw)
        if key in IGNORED:
            continue
        if key == "thresholds" and isinstance(given, (list, tuple)) and len(given) == 1:
            key, given = "threshold", number(given[0])
        if key in METRIC_NEUTRAL:
            if given not in METRIC_NEUTRAL[key]:
                raise no_counterpart(argument, described, key, given)
        elif given is not None:
            _put_field(metric, METRIC_FIELDS.get(key, key), given, argument, described)


def put_optimizer(spec: Any, value: Any) -> None:
    """spec: a JobSpec. Sets optimizer and, of gradient_accumulation_steps, accumulate_steps."""
    described = describe("optimizer", value)
    if "inner_optimizer" in described.config:
        return _put_loss_scaling(spec, described)
    optimizer = spec.optimizer
    field = spelling.find_kind(optimizer.DESCRIPTOR, described.name)
    if field is None:
        raise refuse_unknown("optimizer", described, spelling.kind_names(optimizer.DESCRIPTOR))
    kind = getattr(optimizer, field.name)
    kind.SetInParent()
    config = {key: number(given) for key, given in described.config.items()}
    if config.pop("use_ema", False):
        optimizer.ema.momentum = config.get("ema_momentum") or 0.99
        optimizer.ema.overwrite_frequency = config.get("ema_overwrite_frequency") or 0
    steps = config.pop("gradient_accumulation_steps", None)
    if steps:
        spec.accumulate_steps = steps
    if field.name == "muon":
        _check_muon(described)
    for key, given in config.items():
        if given is None and key in NONE_IS_ZERO.get(field.name, ()):
            given = 0.0
        if key in OPTIMIZER_IGNORED or given is None:
            continue
        if key in OPTIMIZER_NEUTRAL:
            if given not in OPTIMIZER_NEUTRAL[key]:
                raise no_counterpart("optimizer", described, key, given)
        elif key == "learning_rate":
            put_learning_rate(optimizer, given)
        elif key in kind.DESCRIPTOR.fields_by_name:
            _put_field(kind, key, given, "optimizer", described)
        elif given or key not in ("weight_decay",):  # 0 is none
            _put_field(optimizer, key, given, "optimizer", described)
    if not isinstance(value, (str, Mapping)):
        for text in getattr(value, "_exclude_from_weight_decay_names", None) or ():
            optimizer.exclude_from_weight_decay.append(text)


def _put_loss_scaling(spec: Any, described: Described) -> None:
    """A LossScaleOptimizer: the one within it, and how the loss is scaled."""
    put_optimizer(spec, described.config["inner_optimizer"])
    spec.loss_scaling.SetInParent()
    for key, raw in described.config.items():
        given = number(raw)
        if key not in IGNORED | {"inner_optimizer"} and given is not None:
            _put_field(spec.loss_scaling, key, given, "optimizer", described)


def _check_muon(described: Described) -> None:
    """Before Keras 3.13 it scaled its step otherwise."""
    if "muon_a" in described.config and "rms_rate" not in described.config:
        raise ValueError(
            'optimizer: Muon without rms_rate, as in Keras before 3.13, scales its step otherwise; give "muon"'
        )


def put_learning_rate(optimizer: Any, value: Any) -> None:
    """A number or one of keras.optimizers.schedules."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        optimizer.learning_rate = value
        return
    described = describe("optimizer.learning_rate", value)
    rate = put_schedule(optimizer.schedule, described)
    if rate is not None:
        optimizer.learning_rate = rate


def put_schedule(schedule: Any, described: Described) -> float | None:
    """Returns its initial rate."""
    argument = "optimizer.learning_rate"
    field = spelling.find_kind(schedule.DESCRIPTOR, described.name)
    if field is None:
        raise refuse_unknown(argument, described, spelling.kind_names(schedule.DESCRIPTOR))
    kind = getattr(schedule, field.name)
    kind.SetInParent()
    rate = None
    for key, raw in described.config.items():
        given = number(raw)
        if key in IGNORED or given is None:
            continue
        if key == "initial_learning_rate":
            rate = float(given)
        elif isinstance(given, (list, tuple)):
            _put_list(kind, key, given, argument, described)
        else:
            _put_field(kind, key, given, argument, described)
    if rate is None and field.name == "piecewise_constant_decay" and kind.values:
        rate = kind.values[0]
    return rate


def _put_list(message: Any, key: str, given: Any, argument: str, described: Described) -> None:
    if key not in message.DESCRIPTOR.fields_by_name:
        raise no_counterpart(argument, described, key, given)
    getattr(message, key).extend(number(item) for item in given)


def _put_field(message: Any, key: str, given: Any, argument: str, described: Described) -> None:
    field = message.DESCRIPTOR.fields_by_name.get(key)
    if field is None or key == "kind":
        raise no_counterpart(argument, described, key, given)
    if field.label == field.LABEL_REPEATED:
        _put_list(message, key, given if isinstance(given, (list, tuple)) else [given], argument, described)
        return
    if field.enum_type is not None:
        found = spelling.find_value(field.enum_type, str(given))
        if found is None:
            raise no_counterpart(argument, described, key, given)
        given = found.number
    elif isinstance(given, float) and field.cpp_type not in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        given = int(given) if given.is_integer() else given
    try:
        setattr(message, key, given)
    except (TypeError, ValueError):
        raise no_counterpart(argument, described, key, given) from None
