"""The exceptions of this package. What a daemon refuses carries the daemon's own sentence.

Arguments that are wrong by themselves raise Python's TypeError or ValueError, which name the argument, before anything
is sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cairn.job import Job


class Error(Exception):
    """What a cluster refused, or could not do. Its text says what was wrong, where, and what to do."""

    code = "UNKNOWN"  # gRPC's name of the kind of error


class Cancelled(Error):
    code = "CANCELLED"


class Unknown(Error):
    code = "UNKNOWN"


class InvalidArgument(Error, ValueError):
    """The job, or what was asked, cannot work: the text names the field or layer."""

    code = "INVALID_ARGUMENT"


class DeadlineExceeded(Error, TimeoutError):
    """The coordinator did not answer in time."""

    code = "DEADLINE_EXCEEDED"


class NotFound(Error, LookupError):
    """There is no such job or node."""

    code = "NOT_FOUND"


class AlreadyExists(Error):
    code = "ALREADY_EXISTS"


class PermissionDenied(Error):
    code = "PERMISSION_DENIED"


class ResourceExhausted(Error):
    code = "RESOURCE_EXHAUSTED"


class FailedPrecondition(Error):
    """Not now: the job has not ended, has no weights yet, or the like."""

    code = "FAILED_PRECONDITION"


class Aborted(Error):
    code = "ABORTED"


class OutOfRange(Error):
    code = "OUT_OF_RANGE"


class Unimplemented(Error):
    """What listens there is no coordinator, or one of another version."""

    code = "UNIMPLEMENTED"


class Internal(Error):
    code = "INTERNAL"


class Unavailable(Error):
    """The cluster, or the part of it that is needed, cannot be reached now."""

    code = "UNAVAILABLE"


class Unreachable(Unavailable):
    """No coordinator answers at that address: it is not started, is started again at the moment, or is elsewhere."""


class DataLoss(Error):
    """Files or data that are damaged."""

    code = "DATA_LOSS"


class Unauthenticated(Error):
    code = "UNAUTHENTICATED"


class ProgramError(Error):
    """The program `cairn` is missing, or ended with an error. The text is what it printed."""


class LocalClusterError(Error):
    """The local cluster could not be started. The text has the end of the log."""


class JobFailed(Error):
    """The job that was waited for failed or was cancelled. The text is the reason that the cluster gives."""

    def __init__(self, text: str, job: Job, state: str):
        super().__init__(text)
        self.job = job
        self.state = state  # "FAILED" or "CANCELLED"


_KINDS = (
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
)
_BY_CODE = {kind.code: kind for kind in _KINDS}


def error_of(code: str, text: str) -> Error:
    """The exception of gRPC's code, such as "NOT_FOUND"."""
    return _BY_CODE.get(code, Unknown)(text)
