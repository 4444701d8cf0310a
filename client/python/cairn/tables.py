"""What is made of a job's figures: history, log, data frame, plot. Statuses in JSON are those of `cairn job --json`."""

from __future__ import annotations

import time
from typing import Any

from cairn.progress import epoch_figures, has_figures, is_whole

RATE_CALLBACKS = ("reduce_lr_on_plateau", "learning_rate_scheduler")


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)  # JSON has no NaN


def _whole_epochs(status: dict[str, Any]) -> list[dict[str, Any]]:
    epochs = status["epochs"]
    return [epochs[i] for i in range(len(epochs)) if has_figures(epochs[i]) and is_whole(status, i)]


def history_of(status: dict[str, Any]) -> dict[str, list[float]]:
    """Keras adds the learning rate where a callback sets it."""
    sets_rate = any(name in callback for callback in status["spec"].get("callbacks", []) for name in RATE_CALLBACKS)
    history: dict[str, list[float]] = {}
    for result in _whole_epochs(status):
        figures = epoch_figures(result)
        if sets_rate:
            figures["learning_rate"] = result.get("learning_rate", 0.0)
        for name, value in figures.items():
            history.setdefault(name, []).append(_number(value))
    return history


def log_of(status: Any) -> list[str]:
    """status: a JobStatus."""
    lines = [(event.unix_ms, event.text) for event in status.events]
    text = [f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(ms / 1000))} {line}" for ms, line in lines]
    text += [f"epoch {note.epoch + 1}: {note.callback}: {note.text}" for note in status.notes]
    if status.reason:
        text.append(status.reason)
    return text


def frame_of(status: dict[str, Any]) -> Any:
    try:
        import pandas  # type: ignore[import-not-found,import-untyped]
    except ImportError:
        raise ImportError(
            "job.metrics needs pandas, which is not installed here; job.history has the figures"
        ) from None
    rows = [
        {
            "epoch": result["epoch"] + 1,
            **{name: _number(value) for name, value in epoch_figures(result).items()},
            "learning_rate": result.get("learning_rate"),
            "seconds": result.get("seconds"),
        }
        for result in _whole_epochs(status)
    ]
    return pandas.DataFrame(rows).set_index("epoch") if rows else pandas.DataFrame()


def plot_of(status: dict[str, Any], names: tuple[str, ...]) -> Any:
    """names: figures without "val_"; all of them where there are none."""
    try:
        from matplotlib import pyplot  # type: ignore[import-not-found,import-untyped]
    except ImportError:
        raise ImportError(
            "job.plot() needs matplotlib, which is not installed here; job.history has the figures"
        ) from None
    history = history_of(status)
    known = [name for name in history if not name.startswith("val_")]
    for name in names:
        if name not in known:
            raise ValueError(f'plot: there is no figure "{name}"; the job has {", ".join(known) or "none yet"}')
    shown = list(names) or known
    figure, axes = pyplot.subplots(1, max(1, len(shown)), figsize=(5 * max(1, len(shown)), 4), squeeze=False)
    for axis, name in zip(axes[0], shown, strict=False):
        for key, label in ((name, "training"), (f"val_{name}", "validation")):
            if key in history:
                axis.plot(range(1, len(history[key]) + 1), history[key], marker="o", label=label)
        axis.set_title(name)
        axis.set_xlabel("epoch")
        axis.legend()
    return figure
