"""Follows a job: its status now, then every change, until it has ended."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from cairn.connection import Connection
from cairn.errors import DeadlineExceeded, ResourceExhausted, Unavailable
from cairn.v1 import cluster_pb2, job_status_pb2

FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "ENDED_WITH_ERRORS")
STREAM_S = 30.0  # a stream is opened again after this long, so that a peer that vanished silently is noticed
RECONNECT_S = 60.0  # how long the coordinator may be away; the job goes on without it
BACKOFF_S = 0.2


def state_of(status: Any) -> str:
    return job_status_pb2.JobState.Name(status.state)


def watch(connection: Connection, job: int, end: float | None) -> Iterator[Any]:
    """Statuses, the last one final, unless time.monotonic() passes `end` before.

    Errors: NotFound; Unavailable where the coordinator stays away, ResourceExhausted where it has no place.
    """
    request = cluster_pb2.GetJobRequest(job_id=job)
    heard = time.monotonic()
    while end is None or time.monotonic() < end:
        left = STREAM_S if end is None else min(STREAM_S, end - time.monotonic())
        try:
            for status in connection.stream("WatchJob", request, max(left, 0.001)):
                heard = time.monotonic()
                yield status
                if state_of(status) in FINAL:
                    return
        except DeadlineExceeded:
            continue  # our own deadline
        except (Unavailable, ResourceExhausted):  # also where the coordinator has no place for the watch: others end
            if time.monotonic() - heard > RECONNECT_S:
                raise
        time.sleep(BACKOFF_S)
