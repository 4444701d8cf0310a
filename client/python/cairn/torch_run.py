"""Run: a PyTorch model's training from one script, on as many machines as run it.

Every process that calls `train` computes. The first one submits the job, the others find it by its name; a process that
was killed and is started again goes on with it. Invariants:
  1. Processes of one run have the same job: its fields' digest is in model.external.config.
  2. At most one job is submitted at a time: the key of a submission is a function of the digest and the newest job of
     that name.
  3. A job's starting weights are those of one process. Another one with other weights, as of a model that was drawn
     without a seed, computes only after the job has begun.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from cairn import arguments, settings, torch_optimizer, torch_sampler, torch_state
from cairn.client import Client
from cairn.errors import NotFound, ProgramError, Unreachable
from cairn.fit import put_strategy
from cairn.job import Job
from cairn.keras_callbacks import put_rates
from cairn.torch_program import Program, worker
from cairn.torch_sampler import Order
from cairn.v1 import job_pb2
from cairn.watch import FINAL, state_of, watch
from cairn.worker import Worker

CONFIG = "cairn.torch.Run"  # begins model.external.config
# A coordinator that is started again is away for a moment. A process of a run that needs it then asks again.
COORDINATOR_PATIENCE_S, ASK_AGAIN_S = 30.0, 0.5

_T = TypeVar("_T")


class Run:
    """A model's training. Arguments beside Program's:

    optimizer: of torch.optim over the model's parameters (SGD, Adam, AdamW), of Cairn (cairn.RMSprop(0.001)), or a dict
    of the job's `optimizer`.
    scheduler: of torch.optim.lr_scheduler over that optimizer, one that steps once an epoch.
    batch_size: examples of a step, over all replicas.
    replicas: logical workers; the result depends on their number, and not on the number of processes. Default 1.
    sampler: of torch.utils.data, for the training examples; its length is the epoch's. shuffle: without one.
    weights: True: the model's own; False: drawn by Cairn; a state_dict; or the path of a file that the workers see.
    set: any other field of the job, as in Client.submit: {"checkpoints.dir": "/shared/lenet"}.

    Errors: TypeError and ValueError name the argument.
    """

    is_cairn_run = True  # for Client.fit, which does not load PyTorch

    def __init__(
        self,
        name: str,
        model: torch.nn.Module,
        loss_fn: Callable[[Any, Any], torch.Tensor],
        dataset: Any,
        *,
        optimizer: Any,
        scheduler: Any = None,
        batch_size: int = 32,
        epochs: int = 1,
        replicas: int = 1,
        sampler: Any = None,
        shuffle: bool | None = None,
        seed: int = 0,
        strategy: str | None = None,
        weights: Any = True,
        set: Mapping[str, Any] | None = None,
        program: type[Program] = Program,
        **of_program: Any,
    ):
        self.program = program(arguments.text("name", name), model, loss_fn, dataset, **of_program)
        self.model = model
        self.job: Job | None = None
        self._weights = _checked_weights(weights)
        self._worker: Worker | None = None
        self._own_client: Client | None = None
        self._spec = job_pb2.JobSpec(name=name)
        self._spec.batch_size = arguments.whole("batch_size", batch_size, 1)
        self._spec.epochs = arguments.whole("epochs", epochs, 1)
        self._spec.replicas = arguments.whole("replicas", replicas, 1)
        self._spec.seed = arguments.whole("seed", seed, 0, 2**64 - 1)
        if strategy is not None:
            put_strategy(self._spec, strategy)
        self._put_shuffle(sampler, shuffle)
        settings.apply(self._spec, {"model.external": self.program.external()}, "model")
        self._put_optimizer(optimizer, scheduler)
        settings.apply(self._spec, {} if set is None else set)
        self._put_order(sampler)
        settings.apply(self._spec, {"data.external": self.program.data()}, "data")
        text = self._spec.SerializeToString(deterministic=True)
        self.program.config = f"{CONFIG} {hashlib.sha256(text).hexdigest()[:32]}"
        self._spec.model.external.config = self.program.config

    def _put_shuffle(self, sampler: Any, shuffle: bool | None) -> None:
        if sampler is None:
            self._spec.data.shuffle = True if shuffle is None else arguments.boolean("shuffle", shuffle)
            return
        torch_sampler.check(sampler)
        if shuffle is not None:
            raise ValueError("shuffle: goes without a sampler, which has an order of its own; leave one of the two out")
        self._spec.data.shuffle = False

    def _put_order(self, sampler: Any) -> None:
        if sampler is None:
            return
        for field, message in (("steps_per_epoch", self._spec), ("accumulate_steps", self._spec)):
            if message.HasField(field):
                raise ValueError(f"set: {field} does not go with a sampler; leave one of the two out")
        if self._spec.data.shuffle:
            raise ValueError("set: data.shuffle does not go with a sampler; leave one of the two out")
        batch, length = self._spec.batch_size, len(sampler)
        steps = length // batch if self._spec.data.drop_remainder else -(-length // batch)
        self.program.order = Order(sampler, max(1, steps))

    def _put_optimizer(self, optimizer: Any, scheduler: Any) -> None:
        if isinstance(optimizer, torch.optim.Optimizer):
            torch_optimizer.put(self._spec, optimizer, self.model)
        else:
            settings.put_message(self._spec.optimizer, optimizer, "optimizer")
        if scheduler is not None:
            put_rates(self._spec, torch_optimizer.rates(scheduler, optimizer, self._spec.epochs))

    def spec(self) -> Any:
        """The job, a JobSpec, but for its starting weights."""
        copy = job_pb2.JobSpec()
        copy.CopyFrom(self._spec)
        return copy

    # ---- training ----

    def train(
        self,
        coordinator: str | Client | None = None,
        *,
        timeout: float | None = None,
        progress: bool = True,
        **of_worker: Any,
    ) -> Job:
        """Computes for the run until it has ended. Then the model has its weights.

        coordinator: "HOST:PORT", or a Client. Default: $CAIRN_COORDINATOR, else a local cluster of this process.
        of_worker: as of cairn.worker.Worker, such as name and log_level.
        A run that has ended is not computed again; one that failed or was cancelled is submitted anew. Ctrl-C ends this
        process' part, and the run goes on where others compute it.
        Errors: ValueError: a job of that name with other fields goes on. JobFailed with the program's traceback.
        Unreachable: no coordinator answered for half a minute.
        TimeoutError: `timeout` seconds are over, those of the job's submission among them. The run goes on, without
        this process.
        """
        seconds = arguments.seconds("timeout", timeout)
        end = None if seconds is None else time.monotonic() + seconds
        job = self._start(coordinator, end, of_worker)
        try:
            job.wait(None if end is None else max(end - time.monotonic(), 1e-3), progress)
            _patiently(lambda: torch_state.load(self.model, job))
        finally:
            self.stop()
        self._remove_weights(job)
        return job

    def start(self, coordinator: str | Client | None = None, **of_worker: Any) -> Job:
        """The run's job, which this process computes in the background, until `stop` or its end."""
        return self._start(coordinator, None, of_worker)

    def _start(self, coordinator: str | Client | None, end: float | None, of_worker: dict[str, Any]) -> Job:
        """end: by time.monotonic(). Errors: TimeoutError."""
        self.stop()
        client = self._client(coordinator)
        weights = functools.cache(lambda: self._weights_file(client))  # written once, however often it is asked for
        self.job = job = _patiently(lambda: self._find_or_submit(client, weights, end), end)
        if state_of(job._last) in FINAL:
            return job
        self._wait_for_weights(job, end)
        of_worker.setdefault("tls_dir", str(client._program.tls_dir or ""))
        self._worker = worker(self.program, client.address, **of_worker)
        return job

    def stop(self) -> None:
        """Ends this process' part of the run."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    def _client(self, coordinator: str | Client | None) -> Client:
        if isinstance(coordinator, Client):
            return coordinator
        if self._own_client is None or coordinator not in (None, self._own_client.address):
            self._own_client = Client(coordinator)
        return self._own_client

    def _find_or_submit(self, client: Client, weights: Callable[[], str], end: float | None) -> Job:
        try:
            newest = client.job(self._spec.name)
        except NotFound:
            newest = None
        if newest is not None:
            status, state = newest._last, state_of(newest._last)
            if _config_of(status.spec) == self.program.config:
                if state not in ("FAILED", "CANCELLED"):
                    return newest
            elif state not in FINAL:
                raise ValueError(
                    f'name: job {newest.id} "{newest.name}" goes on and is another one: '
                    f"{_difference(self._spec, status)}; give the run another name, or cancel that job"
                )
        spec = self.spec()
        spec.initial_weights = weights()
        key = f"{self.program.config} after {newest.id if newest is not None else 0}"
        return client._submit(spec, key, end)

    # ---- starting weights ----

    def _weights_file(self, client: Client) -> str:
        """The path of the starting weights, as the workers of this run see it; "": Cairn draws them.

        A file's name has the digest of what is in it: where processes begin with the same weights, each has the file.
        """
        if isinstance(self._weights, str):
            return self._weights
        if client.local:
            return self._write_weights(client._folder("weights") / "start.safetensors")
        folder = _weights_folder()
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(f"{folder}: belongs to another user; set TMPDIR to a folder of yours")
        number, path = tempfile.mkstemp(dir=folder, suffix=".part")
        os.close(number)
        self._write_weights(Path(path))
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:32]
        target = folder / f"{self._spec.name}-{digest}.safetensors"
        os.replace(path, target)
        return str(target)

    def _write_weights(self, path: Path) -> str:
        if self._weights is None:
            self.program.save_weights(path)
        else:
            torch_state.save(self._weights, path)
        return str(path)

    def _remove_weights(self, job: Job) -> None:
        path = Path(job._last.spec.initial_weights)
        if path.parent == _weights_folder():
            path.unlink(missing_ok=True)

    def _wait_for_weights(self, job: Job, end: float | None) -> None:
        given = job._last.spec.initial_weights
        if not given or isinstance(self._weights, str) or job._client.local:
            return
        own = self._weights_file(job._client)
        if own == given:
            return
        os.unlink(own)
        warnings.warn(
            f"model: its starting weights are not those that job {job.id} was submitted with, and are not used; "
            "torch.manual_seed before the model is made gives all processes the same",
            stacklevel=4,
        )
        if os.path.exists(given) or job._last.step > 0:
            return
        for status in watch(job._client._connection, job.id, end):
            job._last = status
            if status.step > 0 or state_of(status) in FINAL:
                return
        raise TimeoutError(
            f'timeout: job {job.id} "{job.name}" has not begun, and its starting weights are those of another process; '
            "it goes on"
        )


def _patiently(ask: Callable[[], _T], end: float | None = None) -> _T:
    """Errors: TimeoutError where time.monotonic() passes `end` and no coordinator has answered; before that those of
    `ask`."""
    patience = time.monotonic() + COORDINATOR_PATIENCE_S
    told = False
    while True:
        try:
            return ask()
        except (Unreachable, ProgramError) as error:  # the program exports the weights
            now = time.monotonic()
            if now > patience or "cannot reach" not in str(error):
                raise
            if end is not None and now + ASK_AGAIN_S > end:
                raise TimeoutError(f"timeout: {error}") from None
            if not told:
                left = (patience if end is None else min(patience, end)) - now
                warnings.warn(f"{error}; it is asked again for {left:.0f} s", stacklevel=4)
            told = True
        time.sleep(ASK_AGAIN_S)


def _weights_folder() -> Path:
    return Path(tempfile.gettempdir()) / f"cairn-weights-{os.getuid()}"


def _checked_weights(weights: Any) -> Any:
    """None: the model's own; "": Cairn's; a path; or a state_dict."""
    if weights is True:
        return None
    if weights is False:
        return ""
    if isinstance(weights, Mapping):
        return dict(weights)
    if isinstance(weights, (str, os.PathLike)):
        return os.path.abspath(arguments.text("weights", os.fspath(weights)))
    kind = arguments.type_name(weights)
    raise TypeError(f"weights: is {kind}; give True, False, a state_dict, or the path of a file that the workers see")


def _config_of(spec: Any) -> str:
    for layer in spec.model.layers:
        if layer.HasField("external"):
            return layer.external.config
    return spec.model.external.config


def _difference(mine: Any, status: Any) -> str:
    """The first field of ours that the other job has not, or has with another value."""
    found = _first_difference(mine, status.spec, "")
    return found or "its model, or fields that this one has not"


def _first_difference(mine: Any, theirs: Any, path: str) -> str:
    for field, value in mine.ListFields():
        name, other = f"{path}{field.name}", getattr(theirs, field.name)
        if name in ("model", "initial_weights"):
            continue
        if field.message_type is not None and field.label != field.LABEL_REPEATED:
            if found := _first_difference(value, other, f"{name}."):
                return found
        elif value != other:
            if field.label == field.LABEL_REPEATED or field.type == field.TYPE_ENUM:
                return f"its {name} are others" if field.label == field.LABEL_REPEATED else f"its {name} is another"
            return f"its {name} is {other}, and {value} here"
    return ""
