"""A worker of the cluster in this process, for programs of one's own (docs/programs.md).

    worker = cairn.worker.Worker([Program()], coordinator="host:7070")
    worker.wait()                       # until stop() or Ctrl-C

A program is any object with `name`, `version` and `open(job)`; what `open` gives has `train(step)`, `evaluate(step)`
and `predict(step)`. cairn.torch.Program is one for PyTorch models.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Sequence
from typing import Any

from cairn import _cairn

_live: weakref.WeakSet[Worker] = weakref.WeakSet()


class Worker:
    """Joins the cluster at once, and computes for its jobs until `stop`, the end of a `with` block, or the exit of the
    process. It is of the process that made it: after a fork the child has none, and starts its own.

    coordinator: "host:port", several with commas between them. Default: $CAIRN_COORDINATOR.
    slots: batches that are computed at the same time, each by an opened program of its own.
    tls_dir, log_level, log_file: as the flags of cairn-worker; the same for all workers of a process.
    gpu: whether the programs compute on a GPU, for jobs that ask for a device.
    fingerprint: what decides the programs' bits; jobs say where workers differ.
    Errors: ValueError names what is wrong; a coordinator that cannot be reached is tried again until it can.
    """

    def __init__(
        self,
        programs: Sequence[Any],
        coordinator: str | None = None,
        *,
        name: str = "",
        slots: int = 1,
        host: str = "",
        decode_threads: int = 1,
        device: str = "cpu",
        gpu: bool = False,
        fingerprint: str = "",
        tls_dir: str = "",
        log_level: str = "warning",
        log_file: str = "",
        evaluator: bool = False,
    ):
        if coordinator is None:
            coordinator = os.environ.get("CAIRN_COORDINATOR", "")
        if not tls_dir:
            tls_dir = os.environ.get("CAIRN_TLS_DIR", "")
        self._stopped = threading.Event()
        self._owner = os.getpid()
        self._worker = _cairn.Worker(
            coordinator,
            list(programs),
            name=name,
            slots=slots,
            host=host,
            decode_threads=decode_threads,
            device=device,
            gpu=gpu,
            fingerprint=fingerprint,
            tls_dir=tls_dir,
            log_level=log_level,
            log_file=log_file,
            evaluator=evaluator,
        )
        _live.add(self)

    @property
    def name(self) -> str:
        return self._worker.name

    @property
    def running(self) -> bool:
        return self._worker.running

    def stop(self) -> None:
        """Leaves the cluster: its replicas go to other workers, or wait for one. Waits for the step under way."""
        self._worker.stop()
        self._stopped.set()

    def wait(self, timeout: float | None = None) -> bool:
        """Until another thread stops the worker, or for `timeout` seconds. Whether it is stopped. Ctrl-C interrupts."""
        return self._stopped.wait(timeout)

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@atexit.register
def _stop_all() -> None:
    # Slots that want the interpreter's lock after it is gone would hang.
    for worker in list(_live):
        if worker._owner == os.getpid():
            worker.stop()
