"""Job: one job of a cluster."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn import arguments, progress as progress_module, tables
from cairn.errors import JobFailed, ProgramError
from cairn.v1 import cluster_pb2
from cairn.watch import FINAL, state_of, watch

if TYPE_CHECKING:
    import numpy

    from cairn.client import Client

SHOWN_EVERY_S = 1.0
EXPORT_TIMEOUT_S = 600.0
STATUS_TIMEOUT_S = 30.0
# Those of `cairn trace`; it waits a little longer than the nodes record.
TRACE_STEPS_MAX, TRACE_SECONDS_MAX = 1000, 600
TRACE_PATIENCE_S = 60.0


class Job:
    """A job. It is the same job for as long as the cluster knows it, whatever newer one takes its name.

    Thread-safe. Errors: those of cairn.Error; NotFound once it was deleted.
    """

    def __init__(self, client: Client, status: Any):
        self._client = client
        self.id: int = status.job_id
        self.name: str = status.spec.name
        self._last = status

    def __repr__(self) -> str:
        return f'<cairn.Job {self.id} "{self.name}" {state_of(self._last)}>'

    def _repr_html_(self) -> str:
        return progress_module.table_html(self._json())

    # ---- how it is ----

    def status(self) -> Any:
        """All that the cluster says of it: a cairn.v1 JobStatus message."""
        request = cluster_pb2.GetJobRequest(job_id=self.id)
        self._last = self._client._connection.call("GetJob", request, self._client._timeout)
        return self._last

    def _json(self) -> dict[str, Any]:
        """The same with figures: what `cairn job --json` prints."""
        self.status()  # its errors have the coordinator's code
        return self._client._program.ask("job", str(self.id), timeout=STATUS_TIMEOUT_S)

    @property
    def state(self) -> str:
        """QUEUED, STARTING, RUNNING, FINALIZING, SUCCEEDED, ENDED_WITH_ERRORS, FAILED or CANCELLED."""
        return state_of(self.status())

    @property
    def reason(self) -> str:
        """Why it waits, failed or ended with errors, and what to do; else ""."""
        return self.status().reason

    @property
    def log(self) -> list[str]:
        """What happened to it, oldest first: events of the cluster, what callbacks did, last why it ended."""
        return tables.log_of(self.status())

    @property
    def history(self) -> dict[str, list[float]]:
        """Figures by epoch, with the keys of Keras' History.history: loss, accuracy, val_loss, val_accuracy, ..."""
        return tables.history_of(self._json())

    @property
    def metrics(self) -> Any:
        """The same as a pandas.DataFrame, a row an epoch, with learning rate and seconds. Errors: ImportError."""
        return tables.frame_of(self._json())

    def plot(self, *figures: str) -> Any:
        """Curves of the figures by epoch, training and validation in one: a matplotlib Figure. Errors: ImportError."""
        return tables.plot_of(self._json(), figures)

    # ---- waiting ----

    def wait(self, timeout: float | None = None, progress: bool = True) -> str:
        """Until the job has ended. Returns its state: SUCCEEDED, or ENDED_WITH_ERRORS, which is warned of.

        progress: shows it, as Keras does. Ctrl-C ends the wait and leaves the job running.
        Errors: JobFailed: it failed or was cancelled. TimeoutError: it has not ended within `timeout` seconds, and goes
        on.
        """
        seconds = arguments.seconds("timeout", timeout)
        end = None if seconds is None else time.monotonic() + seconds
        shown = progress_module.of_this_process() if arguments.boolean("progress", progress) else None
        try:
            self._follow(shown, end)
        except KeyboardInterrupt:
            if shown is not None:
                shown.note(f"job {self.id} goes on; job.wait() shows it again, job.cancel() ends it")
            raise
        finally:
            if shown is not None:
                shown.close()
        state = state_of(self._last)
        if state not in FINAL:
            at = f"step {self._last.step:,} of {self._last.total_steps:,}"
            raise TimeoutError(f'job {self.id} "{self.name}" is {state} at {at} after {seconds:g} s; it goes on')
        if state in ("FAILED", "CANCELLED"):
            raise JobFailed(f'job {self.id} "{self.name}" {_ended(state, self._last.reason)}', self, state)
        if state == "ENDED_WITH_ERRORS":
            warnings.warn(f'job {self.id} "{self.name}" ended with errors: {self._last.reason}', stacklevel=2)
        return state

    def _follow(self, shown: Any, end: float | None) -> None:
        told, at = None, -math.inf
        for status in watch(self._client._connection, self.id, end):
            self._last = status
            change = (status.state, status.reason, len(status.epochs), len(status.notes))
            now = time.monotonic()
            if shown is None or (change == told and now - at < SHOWN_EVERY_S):
                continue
            told, at = change, now
            with contextlib.suppress(ProgramError):  # the coordinator may be away; the next status comes
                shown.update(self._client._program.ask("job", str(self.id), timeout=STATUS_TIMEOUT_S))

    # ---- its weights ----

    def evaluate(
        self,
        data: Any = None,
        y: Any = None,
        *,
        split: str | None = None,
        weights: str | os.PathLike[str] | None = None,
    ) -> dict[str, float]:
        """Loss and metrics of the weights, computed by the workers.

        data: the job's own where it is None; a path as the workers see it; or arrays x and y, on a local cluster.
        split: "train", "validation" or "test" of the data; not of arrays. None: test, or the only one that `data` has.
        weights: a checkpoint or a file of weights in the place of the job's.
        """
        from cairn import evaluation  # loads numpy

        return evaluation.evaluate(self, data, y, evaluation.Options(split, weights))

    def predict(
        self, data: Any = None, *, split: str | None = None, weights: str | os.PathLike[str] | None = None
    ) -> numpy.ndarray | dict[str, numpy.ndarray]:
        """The model's outputs, an array [examples, ...] of float32; of a model with several outputs a dict of arrays.
        Arguments as those of evaluate; an array is x."""
        from cairn import evaluation

        return evaluation.predict(self, data, evaluation.Options(split, weights))

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        format: str | None = None,
        layout: str = "keras",
        fold_batch_norm: bool = False,
    ) -> Path:
        """Writes the weights, and the model where the format holds one, to a file of this machine; returns its path.

        path: its ending says the format, .keras, .safetensors, .weights.h5 or .onnx, unless `format` does.
        layout: of .safetensors: "keras" or "torch". fold_batch_norm: of .onnx.
        Errors: ProgramError with what `cairn export` says.
        """
        target = Path(os.path.abspath(arguments.text("path", os.fspath(path))))
        more = [] if format is None else ["--format", arguments.choice("format", format, FORMATS)]
        if arguments.choice("layout", layout, ("keras", "torch")) != "keras":
            more += ["--layout", layout]
        if arguments.boolean("fold_batch_norm", fold_batch_norm):
            more.append("--fold-batch-norm")
        self.status()
        self._client._program.run("export", str(self.id), "-o", str(target), *more, timeout=EXPORT_TIMEOUT_S)
        return target

    def load_model(self) -> Any:
        """The trained model as an object of Keras. Errors: ImportError where there is no Keras."""
        load = _keras_loader()
        with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
            return load(str(self.export(Path(folder) / "model.keras")))

    # ---- what its nodes do ----

    def trace(self, path: str | os.PathLike[str] = "trace.json", *, steps: int = 20, seconds: int = 60) -> Path:
        """Writes what every node of the job does in some of its next steps, in the Chrome trace event format, to a file
        of this machine, and returns its path; https://ui.perfetto.dev shows it. The job must be running.

        steps: how many, 1 to 1000. seconds: nodes record at most so long, 1 to 600.
        What is missing of a node, and steps that the job did not do in that time, are warned of.
        Errors: ProgramError with what `cairn trace` says: the job does not run, or is being traced already.
        """
        target = Path(os.path.abspath(arguments.text("path", os.fspath(path))))
        count = arguments.whole("steps", steps, 1, TRACE_STEPS_MAX)
        limit = arguments.whole("seconds", seconds, 1, TRACE_SECONDS_MAX)
        self.status()
        _, notes = self._client._program.run_with_notes(
            "trace",
            str(self.id),
            "--steps",
            str(count),
            "--seconds",
            str(limit),
            "-o",
            str(target),
            timeout=limit + TRACE_PATIENCE_S,
        )
        for note in notes:
            warnings.warn(note, stacklevel=2)
        return target

    # ---- its end ----

    def cancel(self) -> Job:
        """Ends it; its current weights are kept. A job that has ended is left as it is."""
        request = cluster_pb2.GetJobRequest(job_id=self.id)
        self._last = self._client._connection.call("CancelJob", request, self._client._timeout)
        return self

    def delete(self) -> None:
        """Deletes an ended job and its weights. Errors: FailedPrecondition: it has not ended."""
        request = cluster_pb2.GetJobRequest(job_id=self.id)
        self._client._connection.call("DeleteJob", request, self._client._timeout)

    @contextlib.contextmanager
    def _scratch(self, argument: str) -> Iterator[Path]:
        """A folder that the workers see, for the time of a call."""
        folder = self._client._folder(argument)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


FORMATS = ("safetensors", "keras", "weights.h5", "onnx")


def _ended(state: str, reason: str) -> str:
    how = "failed" if state == "FAILED" else "was cancelled"
    return f"{how}: {reason}" if reason else how


def _keras_loader() -> Any:
    for name in ("keras", "tensorflow.keras"):
        try:
            module = __import__(f"{name}.models", fromlist=["load_model"])
        except ImportError:
            continue
        return module.load_model
    raise ImportError(
        'job.load_model() needs Keras, which is not installed here; job.export("model.keras") writes what it would load'
    )
