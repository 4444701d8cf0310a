"""Follows a job: its status now, then every change, until it has ended."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any

from cairn.connection import Connection
from cairn.errors import DeadlineExceeded, ResourceExhausted, Unavailable
from cairn.v1 import cluster_pb2, job_status_pb2

FINAL = ("SUCCEEDED", "FAILED", "CANCELLED", "ENDED_WITH_ERRORS")
STREAM_S = 30.0  # a stream is opened again after this long, so that a peer that vanished silently is noticed
RECONNECT_S = 60.0  # how long the coordinator may be away; the job goes on without it
BACKOFF_S, BACKOFF_MAX_S = 0.2, 2.0


def state_of(status: Any) -> str:
    return job_status_pb2.JobState.Name(status.state)


def watch(connection: Connection, job: int, end: float | None) -> Iterator[Any]:
    """Statuses, the last one final, unless time.monotonic() passes `end` before.

    Errors: NotFound; Unavailable where the coordinator stays away, ResourceExhausted where it has had no place for the
    watch, for RECONNECT_S.
    """
    request = cluster_pb2.GetJobRequest(job_id=job)
    heard, pause = time.monotonic(), BACKOFF_S
    while end is None or time.monotonic() < end:
        left = STREAM_S if end is None else min(STREAM_S, end - time.monotonic())
        said = False
        try:
            for status in connection.stream("WatchJob", request, max(left, 0.001)):
                heard, pause, said = time.monotonic(), BACKOFF_S, True
                yield status
                if state_of(status) in FINAL:
                    return
        except DeadlineExceeded:
            continue  # our own deadline
        except (Unavailable, ResourceExhausted) as error:
            if time.monotonic() - heard > RECONNECT_S or (said and isinstance(error, ResourceExhausted)):
                raise
        time.sleep(pause * random.uniform(0.5, 1))
        pause = min(2 * pause, BACKOFF_MAX_S)
