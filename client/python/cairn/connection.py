"""The way to the coordinator that leads: calls with deadlines, and errors that say what to do.

Thread-safe. gRPC does not work in a child that was forked after its first use: such a child gets an error at its first
call rather than one that never ends. Calls are safe to repeat (proto/cairn/v1/cluster.proto): of several coordinators
one after the other is asked, and a standby's word of who leads is followed.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# gRPC 1.51 for Python stops its threads before each fork, and now and then waits for ever for one that waits for the
# fork: a program that forks (multiprocessing, a loader of data) would stand still. A forked child does not use gRPC.
# What the user has set counts.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc  # noqa: E402

from cairn.errors import Error, Unreachable, error_of  # noqa: E402
from cairn.v1 import cluster_pb2_grpc  # noqa: E402

LEADER_METADATA = "cairn-leader"
# Of several coordinators one is elected within the lease of the one that died, 3 s by default.
ELECTION_PATIENCE_S = 15.0
BACKOFF_MIN_S, BACKOFF_MAX_S = 0.1, 2.0
COORDINATORS_MAX = 16
ANSWER_BYTES_MAX = 64 << 20  # room for a list of jobs with their models

OPTIONS = [
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    ("grpc.max_send_message_length", ANSWER_BYTES_MAX),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", 5000),
    ("grpc.keepalive_timeout_ms", 5000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
]


@dataclass(frozen=True)
class Tls:
    """Files of mutual TLS, as `cairn --tls-dir` has them in one folder. With a token ca is enough."""

    ca: Path
    cert: Path | None
    key: Path | None

    def credentials(self) -> grpc.ChannelCredentials:
        if self.key is None or self.cert is None:
            return grpc.ssl_channel_credentials(self.ca.read_bytes())
        return grpc.ssl_channel_credentials(self.ca.read_bytes(), self.key.read_bytes(), self.cert.read_bytes())


def parse_addresses(name: str, text: str) -> list[str]:
    """ "host:port", or several separated by commas."""
    addresses = text.split(",")
    if len(addresses) > COORDINATORS_MAX:
        raise ValueError(f"{name}: {len(addresses)} addresses, at most {COORDINATORS_MAX}")
    for address in addresses:
        host, colon, port = address.rpartition(":")
        if not colon or not host:
            raise ValueError(f'{name}: "{address}" is not HOST:PORT')
        if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
            raise ValueError(f'{name}: "{address}": the port is "{port}"; give 1 to 65535')
    return addresses


def is_loopback(address: str) -> bool:
    """Whether nobody is on the way to "host:port"."""
    host = address.rpartition(":")[0]
    return host in ("localhost", "[::1]") or re.fullmatch(r"127(\.\d{1,3}){3}", host) is not None


_grpc_process: int | None = None  # the process that has used gRPC first


def _use_grpc() -> None:
    global _grpc_process
    if _grpc_process is None:
        _grpc_process = os.getpid()
    if _grpc_process != os.getpid():
        raise RuntimeError(
            f"process {os.getpid()} was forked from {_grpc_process}, which has used a cairn.Client, and gRPC does not "
            "work after that; fork before the first client, or start processes by spawn: "
            "multiprocessing.get_context('spawn')"
        )


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    # The end of a channel whose threads are the parent's would wait for them: it is never ended here.
    for connection in list(_connections):
        connection._leave_to_parent()


class Connection:
    def __init__(self, addresses: list[str], tls: Tls | None, token: str | None = None):
        self.addresses = addresses
        self.tls = tls
        self._metadata = [("authorization", f"Bearer {token}")] if token else []
        self._lock = threading.Lock()
        self._channel: grpc.Channel | None = None
        self._stub: Any = None
        self._current = addresses[0]
        self._next = 0
        self._not_serving = ""  # the address that was not reached last
        self._closed = False
        _connections.add(self)

    def text(self) -> str:
        return ",".join(self.addresses)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._drop()

    def _drop(self) -> None:
        channel, self._channel, self._stub = self._channel, None, None
        if channel is not None:
            channel.close()

    def _leave_to_parent(self) -> None:
        self._lock = threading.Lock()
        for held in (self._channel, self._stub):
            if held is not None:
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(held))
        self._channel = self._stub = None

    def _link(self) -> tuple[str, Any]:
        """The address that is asked now, and its stub."""
        with self._lock:
            if self._closed:
                raise ValueError("this cairn.Client is closed; make another one")
            _use_grpc()
            if self._metadata and self.tls is None and not is_loopback(self._current):
                raise ValueError(
                    f"token: is not sent to {self._current} without TLS, where anyone on the way could read it; give ca"
                )
            if self._stub is None:
                if self.tls is None:
                    self._channel = grpc.insecure_channel(self._current, OPTIONS)
                else:
                    self._channel = grpc.secure_channel(self._current, self.tls.credentials(), OPTIONS)
                self._stub = cluster_pb2_grpc.JobServiceStub(self._channel)
            return self._current, self._stub

    def _move_on(self, failed: str, named: str) -> bool:
        """Asks elsewhere from now on. True: a leader was named, so that there is no need to wait.

        A standby keeps naming a dead leader until its lease expires: one that did not serve is not asked again at once.
        """
        with self._lock:
            if self._current != failed:
                return True  # another thread did
            self._drop()
            if named and named not in (failed, self._not_serving):
                self._current = named
                return True
            self._not_serving = "" if named else failed
            others = [address for address in self.addresses if address != failed] or [failed]
            self._next = (self._next + 1) % len(others)
            self._current = others[self._next]
            return False

    def call(self, method: str, request: Any, timeout: float) -> Any:
        """The answer of a unary call."""
        return self._asking(method, lambda stub: self._begin(stub, method, request, timeout), timeout)

    def stream(self, method: str, request: Any, timeout: float) -> Iterator[Any]:
        """The answers of a streaming call; a call that broke before its first answer is begun again elsewhere."""

        def begin(stub: Any) -> tuple[Any, Any]:
            answers = self._begin(stub, method, request, timeout)
            return next(answers, None), answers

        first, answers = self._asking(method, begin, timeout)
        try:
            while first is not None:
                yield first
                first = next(answers, None)
        except grpc.RpcError as error:
            raise self._error(error, self._current, timeout) from None
        finally:
            answers.cancel()

    def _begin(self, stub: Any, method: str, request: Any, timeout: float) -> Any:
        return getattr(stub, method)(request, timeout=timeout, metadata=self._metadata)

    def _asking(self, method: str, ask: Any, timeout: float) -> Any:
        begin = time.monotonic()
        backoff = BACKOFF_MIN_S
        unreached: set[str] = set()  # addresses, since a standby answered
        while True:
            address, stub = self._link()
            try:
                return ask(stub)
            except grpc.RpcError as error:
                named = _leader_of(error)
                reached = named is not None
                failure = self._error(error, address, timeout)
                if error.code() != grpc.StatusCode.UNAVAILABLE:
                    raise failure from None
            at_once = self._move_on(address, named or "")
            unreached = set() if reached else unreached | {address}
            out_of_time = time.monotonic() - begin > ELECTION_PATIENCE_S
            if len(self.addresses) == 1 and not at_once or unreached >= set(self.addresses) or out_of_time:
                raise failure from None
            if not at_once:
                time.sleep(backoff)
                backoff = min(2 * backoff, BACKOFF_MAX_S)

    def _error(self, error: grpc.RpcError, address: str, timeout: float) -> Error:
        code, details = error.code().name, error.details() or ""
        if code == "UNAVAILABLE" and _leader_of(error) is None and _is_transport(details):
            tls = self._tls_hint(details)  # of somebody who answered: the likelier cause
            asked = f"{tls} And" if tls else ";"
            return Unreachable(
                f"cannot reach the coordinator at {self.text()} ({_short_reason(details)}){asked} "
                "is it running? Start a cluster with `cairn up`, or make cairn.Client() without an address"
            )
        if code == "DEADLINE_EXCEEDED":
            return error_of(
                code,
                f"the coordinator at {address} did not answer within {timeout:g} s; is that its address, and is it "
                "overloaded or stopped?",
            )
        if code == "UNIMPLEMENTED":
            return error_of(
                code,
                f"what listens at {address} is not a cairn coordinator, or one of another version; give the address "
                "on which cairn-coordinator listens",
            )
        return error_of(code, details)

    def _tls_hint(self, details: str) -> str:
        if any(nobody in details for nobody in ("refused", "unreachable", "No route to host", "name not", "DNS")):
            return ""  # nobody was there to speak anything
        if self.tls is not None:
            return "; does it speak TLS, with a certificate that `ca` accepts and that has this name?"
        return "; does it speak TLS (ca, cert, key)?"


def _leader_of(error: grpc.RpcError) -> str | None:
    """What a standby says of who leads: "" where it does not know. None: it is no standby that answered."""
    for key, value in error.trailing_metadata() or ():
        if key == LEADER_METADATA:
            return value if isinstance(value, str) else value.decode()
    return None


def _is_transport(details: str) -> bool:
    """Whether gRPC says so, and not the coordinator: it was not reached."""
    begins = (
        "failed to connect",
        "Connection reset",
        "recvmsg:",
        "Socket closed",
        "DNS resolution",
        "empty address list",
    )
    return details.startswith(begins) or "connections to all backends failing" in details


def _short_reason(details: str) -> str:
    """The system's reason out of "failed to connect to all addresses; last error: ...: Connection refused"."""
    reason = details.rpartition(": ")[2].removeprefix("recvmsg:")
    return "connection refused" if reason == "Connection refused" else reason


os.register_at_fork(after_in_child=_after_fork_in_child)
