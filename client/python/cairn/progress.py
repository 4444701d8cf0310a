"""The progress of a job as Keras shows it: a bar an epoch on a terminal, lines elsewhere, a table in a notebook.

It is told a job's status in the form of `cairn job --json`, which has its figures.
"""

from __future__ import annotations

import html
import math
import shutil
import sys
from typing import Any, TextIO

BAR_CELLS = 30
BAR_CELLS_MIN = 5
CLEAR_TO_END = "\x1b[K"
Status = dict[str, Any]


def figure_text(value: float | None) -> str:
    """ "0.3012"; very small and large ones as 1.2000e-05. None is what JSON has for a number that is not finite."""
    if value is None or math.isnan(value):
        return "nan"
    return f"{value:.4e}" if value != 0 and not 1e-3 <= abs(value) < 1e6 else f"{value:.4f}"


def duration_text(seconds: float) -> str:
    if seconds < 9.95:
        return f"{seconds:.1f}s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole // 60 % 60:02}m"


def figures_of(sums: Status | None, prefix: str = "") -> dict[str, float | None]:
    """Name -> figure, without the count of the examples."""
    return {prefix + name: value for name, value in (sums or {}).items() if name != "examples"}


def epoch_figures(result: Status) -> dict[str, float | None]:
    """With Keras' keys: loss, accuracy, val_loss, val_accuracy."""
    return {**figures_of(result.get("train")), **figures_of(result.get("validation"), "val_")}


def has_figures(result: Status) -> bool:
    """Not so of the epochs before the checkpoint that a job goes on from."""
    return result.get("train", {}).get("examples", 0) > 0


def is_whole(status: Status, index: int) -> bool:
    """An epoch's result is whole when its validation is, or when nothing more will come."""
    epochs, spec = status["epochs"], status["spec"]
    wanted = status.get("data", {}).get("validation_examples", 0)
    due = wanted > 0 and (epochs[index]["epoch"] + 1) % max(1, spec.get("validation_freq", 1)) == 0
    if spec.get("validation_by") == "BY_EVALUATOR" or not due:
        return True
    ended = status["state"] not in ("QUEUED", "STARTING", "RUNNING", "FINALIZING")
    return ended or index + 1 < len(epochs) or epochs[index].get("validation", {}).get("examples", 0) >= wanted


def list_text(figures: dict[str, float | None]) -> str:
    return "".join(f" - {name}: {figure_text(value)}" for name, value in figures.items())


def bar(done: int, total: int, cells: int) -> str:
    if total <= 0 or cells < BAR_CELLS_MIN:
        return ""
    full = max(0, min(done, total)) * cells // total
    return f"[{'=' * full}{'>' if full < cells else ''}{'.' * (cells - full - 1)}] "


def head_text(status: Status) -> str:
    """'job 3 "fashion": running'"""
    reason = f" - {status['reason']}" if status.get("reason") else ""
    state = status["state"].lower().replace("_", " ")
    return f'job {status["job_id"]} "{status["spec"]["name"]}": {state}{reason}'


class TextProgress:
    """On a terminal the running epoch's line is drawn anew in its place."""

    def __init__(self, out: TextIO | None = None, terminal: bool | None = None):
        self.out = sys.stdout if out is None else out
        self.terminal = self.out.isatty() if terminal is None else terminal
        self._head = ""
        self._epochs_told = 0
        self._epoch_begun = -1
        self._notes_told = 0
        self._bar_open = False

    def update(self, status: Status) -> None:
        ended = status["state"] not in ("QUEUED", "STARTING", "RUNNING", "FINALIZING")
        if not ended:
            self._tell_head(status)
        self._tell_epochs(status)
        for note in status.get("notes", [])[self._notes_told :]:
            self._line(f"epoch {note['epoch'] + 1}: {note['callback']}: {note['text']}")
        self._notes_told = len(status.get("notes", []))
        if ended:
            self._tell_head(status)
        elif self.terminal and status["state"] == "RUNNING":
            self._draw(status)
        self.out.flush()

    def close(self) -> None:
        """Leaves the cursor on a line of its own."""
        if self._bar_open:
            self.out.write("\n")
            self._bar_open = False
            self.out.flush()

    def note(self, text: str) -> None:
        self._line(text)
        self.out.flush()

    def _line(self, text: str) -> None:
        self.out.write(f"\r{text}{CLEAR_TO_END}\n" if self._bar_open else f"{text}\n")
        self._bar_open = False

    def _tell_head(self, status: Status) -> None:
        head = head_text(status)
        if head != self._head:
            self._line(head)
        self._head = head

    def _tell_epochs(self, status: Status) -> None:
        epochs, total = status["epochs"], status["spec"].get("epochs", 1)
        while self._epochs_told < len(epochs) and is_whole(status, self._epochs_told):
            result = epochs[self._epochs_told]
            self._epochs_told += 1
            if not has_figures(result):
                continue
            text = f" - {duration_text(result.get('seconds', 0))}{list_text(epoch_figures(result))}"
            if self.terminal:
                self._begin_epoch(result["epoch"], total)
                steps = f"{status['steps_per_epoch']}/{status['steps_per_epoch']}"
                self._line(bar(1, 1, self._cells(steps + text)) + steps + text)
            else:
                self._line(f"Epoch {result['epoch'] + 1}/{total}{text}")

    def _begin_epoch(self, epoch: int, total: int) -> None:
        if epoch > self._epoch_begun:
            self._line(f"Epoch {epoch + 1}/{total}")
            self._epoch_begun = epoch

    def _draw(self, status: Status) -> None:
        steps, total = status.get("steps_per_epoch", 0), status["spec"].get("epochs", 1)
        pending = self._epochs_told < len(status["epochs"])  # its validation is still being computed
        epoch = status["epochs"][self._epochs_told]["epoch"] if pending else status.get("epoch", 0)
        if steps <= 0 or epoch >= total:
            return
        self._begin_epoch(epoch, total)
        done = steps if pending else max(0, min(steps, status.get("step", 0) - epoch * steps))
        sums = status["epochs"][self._epochs_told].get("train") if pending else status.get("epoch_sums")
        text = f"{done}/{steps}{list_text(figures_of(sums))}"
        if pending:
            text += " - validating"
        elif status.get("images_per_second"):
            text += f" - {status['images_per_second']:,.0f} images/s"
        line = bar(done, steps, self._cells(text)) + text
        self.out.write(f"\r{line[: self._width() - 1]}{CLEAR_TO_END}")  # a terminal may wrap in its last column
        self._bar_open = True

    def _width(self) -> int:
        return max(20, shutil.get_terminal_size().columns)

    def _cells(self, rest: str) -> int:
        return min(BAR_CELLS, self._width() - 4 - len(rest))


def table_html(status: Status) -> str:
    """The job for a notebook: state, a bar, the figures of its last epochs."""
    steps, step = status.get("total_steps", 0), status.get("step", 0)
    rows = [result for result in status["epochs"] if has_figures(result)][-5:]
    names = list(dict.fromkeys(name for result in rows for name in epoch_figures(result)))
    text = [f"<b>{html.escape(head_text(status))}</b>"]
    if steps > 0:
        text.append(f'<br><progress value="{step}" max="{steps}"></progress> step {step:,} of {steps:,}')
    if rows:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in ["epoch", *names])
        text.append(f"<table><tr>{head}</tr>")
        for result in rows:
            figures = epoch_figures(result)
            cells = [str(result["epoch"] + 1), *(figure_text(figures[n]) if n in figures else "" for n in names)]
            text.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
        text.append("</table>")
    return "".join(text)


class NotebookProgress:
    """One output of a cell, replaced at each update."""

    def __init__(self, display: Any):
        self._display = display  # IPython.display
        self._handle: Any = None

    def update(self, status: Status) -> None:
        shown = self._display.HTML(table_html(status))
        if self._handle is None:
            self._handle = self._display.display(shown, display_id=True)
        else:
            self._handle.update(shown)

    def note(self, text: str) -> None:
        print(text, flush=True)

    def close(self) -> None:
        pass


def of_this_process() -> TextProgress | NotebookProgress:
    """A notebook's where this is the kernel of one."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None and getattr(shell, "kernel", None) is not None:
        import IPython.display  # type: ignore[import-not-found]

        return NotebookProgress(IPython.display)
    return TextProgress()
