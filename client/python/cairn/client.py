"""Client: a cluster, as seen by a user."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from cairn import arguments, local
from cairn.connection import Connection, Tls, parse_addresses
from cairn.errors import AlreadyExists, DeadlineExceeded, Unavailable
from cairn.job import Job
from cairn.programs import Program
from cairn.v1 import cluster_pb2, observe_pb2

if TYPE_CHECKING:
    from cairn.fit import FitOptions

SUBMIT_TIMEOUT_S = 60.0  # workers look at the data
SUBMIT_TIMEOUT_MIN_S = 0.1  # where less is left
SUBMIT_ATTEMPTS = 3
NUMBERED_NAMES_MAX = 100  # NAME, NAME-2 .. NAME-100


class Client:
    """A cluster. Without an address, and without $CAIRN_COORDINATOR, a local one: a coordinator, a ps and a worker as
    child processes in a temporary directory. They are gone with this process, or with the last such client that is
    closed.

    address: "HOST:PORT" of the coordinator; of several: separated by commas.
    ca, cert, key: files of a cluster that speaks TLS, all three; else ca.crt, tls.crt and tls.key of $CAIRN_TLS_DIR.
    token: of `cairn token create`, says who you are; else that of $CAIRN_TOKEN. With it ca alone is enough for TLS.
    timeout: of a call in seconds.

    Thread-safe. In a child that was forked it raises RuntimeError: gRPC does not work there. Errors: cairn.Error with
    the coordinator's sentence; TypeError and ValueError where an argument is wrong.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        ca: str | os.PathLike[str] | None = None,
        cert: str | os.PathLike[str] | None = None,
        key: str | os.PathLike[str] | None = None,
        token: str | None = None,
        timeout: float = 10.0,
    ):
        self._timeout = arguments.seconds("timeout", timeout) or SUBMIT_TIMEOUT_S
        name = "address"
        if address is None and os.environ.get("CAIRN_COORDINATOR"):
            name, address = "$CAIRN_COORDINATOR", os.environ["CAIRN_COORDINATOR"]
        if address is None and token is not None:
            raise ValueError("token: a local cluster takes none; give an address, or leave it out")
        if address is None and (ca or cert or key):
            raise ValueError("ca, cert, key: a local cluster speaks plain gRPC; give an address, or leave them out")
        addresses = None if address is None else parse_addresses(name, arguments.text(name, address))
        secret = None if addresses is None else _token(token)
        tls = None if addresses is None else _tls(ca, cert, key, bool(secret))
        self._tls_links: tempfile.TemporaryDirectory[str] | None = None
        self._local = local.acquire() if addresses is None else None
        if self._local is not None:
            addresses = [self._local.address]
        assert addresses is not None
        self._connection = Connection(addresses, tls, secret)
        self._program = Program(self._connection.text(), self._tls_dir(tls), secret)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<cairn.Client {self.address}{' (local)' if self.local else ''}>"

    def close(self) -> None:
        """Ends the connection, and a local cluster that no other client uses. Jobs of other clusters go on."""
        self._connection.close()
        if self._local is not None:
            local.release(self._local)
            self._local = None
        if self._tls_links is not None:
            self._tls_links.cleanup()
            self._tls_links = None

    @property
    def address(self) -> str:
        """Of the coordinator, or of several with commas between them."""
        return self._connection.text()

    @property
    def local(self) -> bool:
        """Whether the cluster is one of this process' own."""
        return self._local is not None

    # ---- jobs ----

    def submit(self, job: Any, *, set: Mapping[str, Any] | None = None) -> Job:
        """Submits a job.

        job: the path of a job file; its text (a str with a line break or a brace); a dict of its fields; a JobSpec.
        set: fields to change, as {"epochs": 5, "optimizer": "adam", "optimizer.learning_rate": 0.01,
        "data.path": "/data", "model.layers[2].dense.units": 64}.

        Errors: InvalidArgument names the field or layer that cannot work and what to do.
        """
        return self._submit(self._read(job, set))

    def check(self, job: Any, *, set: Mapping[str, Any] | None = None) -> Any:
        """Checks a job, its data and the paths that it writes to, as submit does, and submits nothing.

        job, set: as of submit. Returns a cairn.v1 JobStatus without a number: spec has all defaults, total_steps and
        partitions what it would be, reason why it would wait (empty: for nothing but jobs
        that wait already), probe how long a step took that a worker measured, or why none was.
        Errors: as of submit.
        """
        answer = self._connection.call(
            "CheckJob", cluster_pb2.SubmitRequest(spec=self._read(job, set)), SUBMIT_TIMEOUT_S
        )
        for warning in answer.warnings:
            warnings.warn(warning, stacklevel=2)
        return answer.job

    @staticmethod
    def _read(job: Any, set: Mapping[str, Any] | None) -> Any:
        from cairn import settings, spec

        read = spec.read(job)
        settings.apply(read, {} if set is None else set)
        spec.make_paths_absolute(read)
        return read

    def fit(self, model: Any, data: Any = None, y: Any = None, **options: Unpack[FitOptions]) -> Job:
        """Trains a compiled model of Keras, and returns at once: job.wait() waits, job.load_model() gives it back.

        model: its to_json(), weights, compiled loss, optimizer and metrics are read.
        data: a path as the workers see it, a dict of the job's `data`, or arrays: x with y, (x, y) or (x, y, weights).
        x and y are arrays, or dicts of arrays by the names of inputs and outputs. Arrays need a local cluster.
        options: FitOptions, those of Keras' fit and of a job: epochs, batch_size, validation_data, validation_split,
        callbacks, class_weight, sample_weight, shuffle, steps_per_epoch, strategy, replicas, seed, name, weights, set.
        name: the model's, if it is not given; NAME-2 and so on where an unfinished job of the user has that.

        A cairn.torch.Run is started in this process, in the background; it has its data and options already.

        Errors: TypeError and ValueError name what has no counterpart; InvalidArgument as of submit.
        """
        if getattr(model, "is_cairn_run", False):
            for name in [*(n for n, v in (("data", data), ("y", y)) if v is not None), *options]:
                raise TypeError(f"fit: {name} goes with a model of Keras; a Run has its own")
            return model.start(self)
        from cairn import fit, spec

        read = fit.job_of(model, data, y, options, self._folder)
        spec.make_paths_absolute(read)
        return self._submit(read) if options.get("name") is not None else self._submit_numbered(read)

    def _submit_numbered(self, spec: Any) -> Job:
        """Under its name, or NAME-2 and so on if an unfinished job of the user has that."""
        name = spec.name
        for number in range(2, NUMBERED_NAMES_MAX + 1):
            try:
                return self._submit(spec)
            except AlreadyExists:
                spec.name = f"{name[:56]}-{number}"
        return self._submit(spec)

    def _submit(self, spec: Any, key: str | None = None, end: float | None = None) -> Job:
        """key: of two submissions with the same one the second gives the first one's job. end: by time.monotonic()."""
        request = cluster_pb2.SubmitRequest(spec=spec, request_key=key or secrets.token_hex(16))
        for attempt in range(1, SUBMIT_ATTEMPTS + 1):
            try:
                left = SUBMIT_TIMEOUT_S if end is None else min(SUBMIT_TIMEOUT_S, end - time.monotonic())
                answer = self._connection.call("Submit", request, max(left, SUBMIT_TIMEOUT_MIN_S))
                break
            except DeadlineExceeded as error:
                if end is None or time.monotonic() < end:
                    raise
                raise TimeoutError(f"timeout: {error}") from None
            except Unavailable:  # the same key: at most one job
                if attempt == SUBMIT_ATTEMPTS:
                    raise
                time.sleep(0.1 * attempt)
        for warning in answer.warnings:
            warnings.warn(warning, stacklevel=3)
        return Job(self, answer.job)

    def jobs(self) -> list[Job]:
        """All jobs that the cluster knows, newest first."""
        answer = self._connection.call("ListJobs", cluster_pb2.ListJobsRequest(), self._timeout)
        return [Job(self, status) for status in answer.jobs]

    def job(self, name_or_id: str | int) -> Job:
        """A job by its number, or the newest one of a name. Errors: NotFound."""
        return Job(self, self._connection.call("GetJob", job_request(name_or_id), self._timeout))

    def trace(
        self, job: Job | str | int, *, steps: int = 20, path: str | os.PathLike[str] = "trace.json", seconds: int = 60
    ) -> Path:
        """The time line of some steps of a running job over all of its nodes, in a file of this machine: as Job.trace.
        job: a Job, or its number, or the newest one of a name. Errors: also NotFound."""
        traced = job if isinstance(job, Job) else self.job(job)
        return traced.trace(path, steps=steps, seconds=seconds)

    # ---- nodes ----

    def nodes(self) -> list[Any]:
        """The cluster's nodes: cairn.v1 NodeStatus messages, with name, role, alive, slots, partitions and so on."""
        answer = self._connection.call("ListNodes", cluster_pb2.ListNodesRequest(), self._timeout)
        return list(answer.nodes)

    def drain(self, node: str, *, undo: bool = False) -> Any:
        """Moves all work off a node while training goes on, or (undo) lets it have work again. Returns its NodeStatus.
        Errors: NotFound, FailedPrecondition."""
        request = cluster_pb2.DrainNodeRequest(name=arguments.text("node", node), undo=arguments.boolean("undo", undo))
        return self._connection.call("DrainNode", request, self._timeout)

    # ---- what happened ----

    def events(
        self, *, job: str | int | None = None, node: str | None = None, warnings_only: bool = False
    ) -> list[Any]:
        """What happened in the cluster, the oldest first: cairn.v1 ClusterEvent messages, with unix_ms, warning,
        job_id, node and text. They are kept in the coordinator's memory, from when it began to lead; a bounded number.
        job, node: of these only. Errors: NotFound."""
        request = observe_pb2.ListEventsRequest(
            node="" if node is None else arguments.text("node", node),
            warnings_only=arguments.boolean("warnings_only", warnings_only),
        )
        if job is not None:
            request.job_id = self.job(job).id
        return list(self._connection.call("ListEvents", request, self._timeout).events)

    def logs(self, node: str | None = None, *, job: str | int | None = None, tail: int = 1000) -> list[Any]:
        """The newest lines of a node's log, the oldest first, or (no node) of the coordinator's: cairn.v1 LoggedLine
        messages, with number, unix_ms, severity and text. job: only lines of this job.
        Errors: NotFound, Unavailable: the node is not connected, PermissionDenied: only admins read whole logs."""
        request = observe_pb2.ReadLogRequest(
            node="" if node is None else arguments.text("node", node), limit=arguments.whole("tail", tail, 1, 10000)
        )
        if job is not None:
            request.job_id = self.job(job).id
        return list(self._connection.call("ReadLog", request, self._timeout).lines)

    # ---- files ----

    def _folder(self, argument: str) -> Path:
        """A new folder that the workers see too."""
        if self._local is None:
            kind = "the model's weights are" if argument == "weights" else "arrays are"
            cure = (
                "give weights=False to start from new ones, or the path of a file that the workers see"
                if argument == "weights"
                else "save them where the workers see them, and give the path"
            )
            raise ValueError(
                f"{argument}: {kind} of this process, and the workers of {self.address} read files; {cure}"
            )
        return Path(tempfile.mkdtemp(prefix=f"{argument}-", dir=self._local.data))

    def _tls_dir(self, tls: Tls | None) -> Path | None:
        """The three files under the names that `cairn --tls-dir` looks for."""
        if tls is None:
            return None
        files = {"ca.crt": tls.ca, "tls.crt": tls.cert, "tls.key": tls.key}
        names = {name: path for name, path in files.items() if path is not None}
        if len({path.parent for path in names.values()}) == 1 and all(p.name == n for n, p in names.items()):
            return tls.ca.parent
        self._tls_links = tempfile.TemporaryDirectory(prefix="cairn-tls-")
        for name, path in names.items():
            (Path(self._tls_links.name) / name).symlink_to(path)
        return Path(self._tls_links.name)


def job_request(name_or_id: str | int) -> Any:
    """Digits are a number, any other text is a name."""
    if isinstance(name_or_id, str) and not re.fullmatch(r"\d+", name_or_id):
        return cluster_pb2.GetJobRequest(name=arguments.text("job", name_or_id))
    if not isinstance(name_or_id, (str, int)) or isinstance(name_or_id, bool):
        raise TypeError(f"job: is {arguments.type_name(name_or_id)}; give a job's number or name")
    number = int(name_or_id)
    if not 1 <= number < 2**64:
        raise ValueError(f"job: {number} is not a job's number; they count from 1")
    return cluster_pb2.GetJobRequest(job_id=number)


def _token(token: Any) -> str | None:
    """Never part of an error: it may be a secret with a typing error."""
    name = "token"
    if token is None:
        name, token = "$CAIRN_TOKEN", os.environ.get("CAIRN_TOKEN") or None
    if token is None:
        return None
    if not isinstance(token, str):
        raise TypeError(f"token: is {arguments.type_name(token)}; give the text that `cairn token create` printed")
    token = token.strip()
    if not re.fullmatch(r"cairn-[0-9a-f]{16}-[0-9a-f]{64}", token):
        raise ValueError(f"{name}: is no token; give the text that `cairn token create` printed")
    return token


def _tls(ca: Any, cert: Any, key: Any, with_token: bool) -> Tls | None:
    given = {"ca": ca, "cert": cert, "key": key}
    names = [name for name, path in given.items() if path is not None]
    folder = os.environ.get("CAIRN_TLS_DIR")
    if not names and folder:
        given = {"ca": f"{folder}/ca.crt", "cert": f"{folder}/tls.crt", "key": f"{folder}/tls.key"}
        if with_token and not os.path.lexists(given["cert"]) and not os.path.lexists(given["key"]):
            given["cert"] = given["key"] = None
    elif not names:
        return None
    for name, path in given.items():
        if path is None and with_token and given["cert"] is None and given["key"] is None:
            continue
        if path is None:
            raise ValueError(f"{name}: is missing; TLS takes ca, cert and key")
        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"{name}: is {arguments.type_name(path)}; give the path of a file")
        if not os.access(path, os.R_OK):
            raise ValueError(f"{name}: {os.fspath(path)} cannot be read")
    return Tls(*(None if path is None else Path(os.path.abspath(path)) for path in given.values()))
