"""The local cluster of this process: one coordinator, one ps and one worker in a temporary directory.

There is at most one in a process; all clients without an address share it. It is stopped when the last of them is
closed, and at exit. `supervisor.py` stops it where the process is killed. A child that was forked
never stops the cluster of its parent.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from cairn import programs
from cairn.errors import LocalClusterError

READY = re.compile(r"^cluster ready in .*: coordinator ([^ ,]+),")  # what `cairn up` prints when all daemons are up
START_TIMEOUT_S = 40.0
STOP_TIMEOUT_S = 15.0
LOG_LINES_SHOWN = 12
SUPERVISOR = Path(__file__).with_name("supervisor.py")

_lock = threading.Lock()
_cluster: LocalCluster | None = None


def acquire() -> LocalCluster:
    """The cluster of this process, started where there is none. Errors: LocalClusterError, ProgramError."""
    global _cluster
    with _lock:
        if _cluster is None or not _cluster.running():
            _cluster = LocalCluster()
        _cluster.users += 1
        return _cluster


def release(cluster: LocalCluster) -> None:
    """One client less. The last one stops the cluster."""
    global _cluster
    with _lock:
        cluster.users -= 1
        if cluster.users > 0 or cluster.forked:
            return
        cluster.stop()
        if _cluster is cluster:
            _cluster = None


class LocalCluster:
    def __init__(self) -> None:
        cairn = programs.find()
        self.users = 0
        self.forked = False  # this process is a child of the one that started it
        self.folder = Path(tempfile.mkdtemp(prefix="cairn-local-"))
        self.data = self.folder / "data"  # files for the workers
        self.data.mkdir()
        up = ["up", "--ps", "1", "--workers", "1", "--port", "0", "--no-http", "--dir", str(self.folder / "cluster")]
        supervisor = [sys.executable, "-I", "-S", str(SUPERVISOR), str(os.getpid()), str(self.folder), str(cairn), *up]
        # The daemons speak plain gRPC with each other, on the loopback interface.
        environment = {k: v for k, v in os.environ.items() if k not in ("CAIRN_TLS_DIR", "CAIRN_COORDINATOR")}
        self._process = subprocess.Popen(
            supervisor,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            start_new_session=True,  # Ctrl-C is for this process alone
        )
        try:
            self.address = self._wait_until_ready()
        except BaseException:
            self.stop()
            raise

    def running(self) -> bool:
        return self.forked or self._process.poll() is None

    def _wait_until_ready(self) -> str:
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        end = time.monotonic() + START_TIMEOUT_S
        text = ""
        while time.monotonic() < end:
            readable, _, _ = select.select([out], [], [], max(0.0, end - time.monotonic()))
            part = os.read(out, 65536) if readable else b""
            if readable and not part:
                break
            text += part.decode(errors="replace")
            for line in text.splitlines():
                if ready := READY.match(line):
                    return ready.group(1)
        raise LocalClusterError(f"the local cluster did not start:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        try:
            text = (self.folder / "up.log").read_text(errors="replace")
        except OSError as error:
            return str(error)
        return "\n".join(text.splitlines()[-LOG_LINES_SHOWN:]) or "its log is empty; is the disk full?"

    def stop(self) -> None:
        """Returns when no daemon is left."""
        if self.forked:
            return
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def forget(self) -> None:
        """In a child that was forked: the parent's end of the pipe alone keeps the cluster."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self.forked = True
        for end in (self._process.stdin, self._process.stdout):
            if not end.closed:
                end.close()


def _stop_at_exit() -> None:
    global _cluster
    with _lock:
        if _cluster is not None:
            _cluster.stop()
            _cluster = None


def _after_fork_in_child() -> None:
    global _lock
    _lock = threading.Lock()
    if _cluster is not None:
        _cluster.forget()


atexit.register(_stop_at_exit)
os.register_at_fork(after_in_child=_after_fork_in_child)
