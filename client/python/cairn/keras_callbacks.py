"""Keras' callbacks as callbacks of a job. An object is known by the name of its class; what it was made with is in its
attributes, as Keras keeps them. One without a counterpart is refused by its name, and so is an argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cairn import arguments
from cairn.v1 import callback_pb2

NEEDLESS = ("History", "ProgbarLogger", "BaseLogger")  # job.history and job.wait() are that
SCHEDULE_EPOCHS_MAX = 10_000


def put(spec: Any, callbacks: Any) -> None:
    """Appends to spec.callbacks. spec: epochs are set."""
    if callbacks is None:
        return
    for i, callback in enumerate(callbacks if isinstance(callbacks, (list, tuple)) else [callbacks]):
        where = f"callbacks[{i}]"
        name = _class_of(callback)
        if name in NEEDLESS:
            continue
        if name not in KINDS:
            known = ", ".join(KINDS)
            raise ValueError(f"{where}: {name} has no counterpart in Cairn; it has {known}")
        KINDS[name](spec, callback, where)


def _class_of(callback: Any) -> str:
    """Keras' name of it: of a class that is derived from one of Keras', its own, since it may do anything."""
    if isinstance(callback, (str, bytes, type)):
        raise TypeError(f"callbacks: {callback!r} is no object; give callbacks that were made")
    return type(callback).__name__


class Reader:
    """The attributes of a callback."""

    def __init__(self, callback: Any, where: str):
        self.callback = callback
        self.name = type(callback).__name__
        self.where = where

    def get(self, *names: str, default: Any = None) -> Any:
        """The first of the attributes that is there and not None."""
        for name in names:
            value = getattr(self.callback, name, None)
            if value is not None:
                return value
        return default

    def refuse_unless(self, name: str, *neutral: Any) -> None:
        value = getattr(self.callback, name, None)
        if value is not None and value not in neutral:
            raise ValueError(
                f"{self.where}: {self.name}({name}={value!r}) has no counterpart in Cairn; leave {name} out"
            )

    def mode(self) -> int:
        mode = self.get("mode")
        if mode is None:  # Keras 2 keeps the comparison alone
            compares = getattr(self.get("monitor_op"), "__name__", "")
            mode = "min" if compares == "less" else "max" if compares == "greater" else "auto"
        name = arguments.choice(f"{self.where}.mode", mode, ("auto", "min", "max"))
        return callback_pb2.MonitorMode.Value(f"MODE_{name.upper()}")

    def frequency(self, attribute: str = "save_freq") -> str:
        value = self.get(attribute, default="epoch")
        if value == "epoch":
            return "epoch"
        return str(arguments.whole(f"{self.where}.{attribute}", value, 1))

    def path(self, *names: str) -> str:
        value = self.get(*names, default="")
        return str(value.__fspath__() if hasattr(value, "__fspath__") else value)


def _early_stopping(spec: Any, callback: Any, where: str) -> None:
    read = Reader(callback, where)
    to = spec.callbacks.add().early_stopping
    to.monitor = read.get("monitor", default="val_loss")
    to.min_delta = abs(read.get("min_delta", default=0))  # Keras turns its sign where less is better
    to.patience = read.get("patience", default=0)
    to.mode = read.mode()
    if read.get("baseline") is not None:
        to.baseline = read.get("baseline")
    to.restore_best_weights = bool(read.get("restore_best_weights", default=False))
    to.start_from_epoch = read.get("start_from_epoch", default=0)


def _reduce_lr(spec: Any, callback: Any, where: str) -> None:
    read = Reader(callback, where)
    to = spec.callbacks.add().reduce_lr_on_plateau
    to.monitor = read.get("monitor", default="val_loss")
    to.factor = read.get("factor", default=0.1)
    to.patience = read.get("patience", default=10)
    to.mode = read.mode()
    to.min_delta = abs(read.get("min_delta", default=1e-4))
    to.cooldown = read.get("cooldown", default=0)
    to.min_lr = read.get("min_lr", default=0.0)


def _model_checkpoint(spec: Any, callback: Any, where: str) -> None:
    read = Reader(callback, where)
    path = read.path("filepath")
    if read.get("save_weights_only", default=False) and not path.endswith((".weights.h5", ".safetensors")):
        raise ValueError(f"{where}: ModelCheckpoint(save_weights_only=True) writes {path}; let it end in .weights.h5")
    to = spec.callbacks.add().model_checkpoint
    to.filepath = path
    to.monitor = read.get("monitor", default="val_loss")
    to.mode = read.mode()
    to.save_best_only = bool(read.get("save_best_only", default=False))
    to.save_freq = read.frequency()
    threshold = read.get("best")
    if threshold is not None and math.isfinite(threshold):
        to.initial_value_threshold = threshold


def _backup_and_restore(spec: Any, callback: Any, where: str) -> None:
    read = Reader(callback, where)
    read.refuse_unless("save_before_preemption", False)
    to = spec.callbacks.add().backup_and_restore
    to.backup_dir = read.path("backup_dir")
    to.save_freq = read.frequency()
    to.delete_checkpoint = bool(read.get("delete_checkpoint", default=True))


def _csv_logger(spec: Any, callback: Any, where: str) -> None:
    read = Reader(callback, where)
    to = spec.callbacks.add().csv_logger
    to.filename = read.path("filename")
    to.separator = read.get("sep", "separator", default=",")
    to.append = bool(read.get("append", default=False))


def _tensorboard(spec: Any, callback: Any, where: str) -> None:
    read = Reader(callback, where)
    read.refuse_unless("write_images", False)
    read.refuse_unless("embeddings_freq", 0)
    read.refuse_unless("write_steps_per_second", False)
    to = spec.callbacks.add().tensorboard
    to.log_dir = read.path("log_dir", "_log_dir") or "logs"
    to.histogram_freq = read.get("histogram_freq", default=0)
    to.write_graph = bool(read.get("write_graph", default=True))
    to.update_freq = "1" if read.get("update_freq") == "batch" else read.frequency("update_freq")


def _terminate_on_nan(spec: Any, callback: Any, where: str) -> None:
    spec.callbacks.add().terminate_on_nan.SetInParent()


def _scheduler(spec: Any, callback: Any, where: str) -> None:
    """The rates that the function gives for the job's epochs, in turn: a piecewise constant schedule."""
    schedule: Callable[..., float] = Reader(callback, where).get("schedule")
    if spec.epochs > SCHEDULE_EPOCHS_MAX:
        raise ValueError(f"{where}: LearningRateScheduler: {spec.epochs} epochs; at most {SCHEDULE_EPOCHS_MAX:,}")
    rate = spec.optimizer.learning_rate
    if not spec.optimizer.HasField("learning_rate"):
        rate = 0.01 if spec.optimizer.HasField("sgd") else 0.001
    rates = []
    for epoch in range(max(1, spec.epochs)):
        rate = _rate(schedule, epoch, rate, where)
        rates.append(rate)
    put_rates(spec, rates)


def put_rates(spec: Any, rates: list[float]) -> None:
    """The learning rate of each epoch, as a callback; the optimizer begins with the first."""
    to = spec.callbacks.add().learning_rate_scheduler.schedule
    if len(set(rates)) == 1:
        to.constant.SetInParent()
        spec.optimizer.learning_rate = rates[0]
        return
    for epoch, rate in enumerate(rates):
        if not to.piecewise_constant_decay.values or rate != rates[epoch - 1]:
            if epoch > 0:
                to.piecewise_constant_decay.boundaries.append(epoch - 1)
            to.piecewise_constant_decay.values.append(rate)
    spec.optimizer.learning_rate = rates[0]


def _rate(schedule: Callable[..., float], epoch: int, rate: float, where: str) -> float:
    try:
        value = schedule(epoch, rate)
    except TypeError:  # as Keras: a function of the epoch alone
        value = schedule(epoch)
    number = arguments.real(f"{where}: LearningRateScheduler's function at epoch {epoch}", value)
    if not (number > 0 and math.isfinite(number)):
        raise ValueError(
            f"{where}: LearningRateScheduler's function at epoch {epoch} is {number:g}; give a rate above 0"
        )
    return number


KINDS: dict[str, Callable[[Any, Any, str], None]] = {
    "EarlyStopping": _early_stopping,
    "ReduceLROnPlateau": _reduce_lr,
    "LearningRateScheduler": _scheduler,
    "ModelCheckpoint": _model_checkpoint,
    "BackupAndRestore": _backup_and_restore,
    "CSVLogger": _csv_logger,
    "TensorBoard": _tensorboard,
    "TerminateOnNaN": _terminate_on_nan,
}
