"""Cairn's messages, and the calls that tests make directly, from the .proto files: a client in a language other than
that of the daemons."""

import glob
import os
import pathlib
import subprocess
import sys
import tempfile

import grpc

SOURCE = os.environ.get(
    "CAIRN_SOURCE", os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
)

with tempfile.TemporaryDirectory(prefix="cairn-wire-") as generated:
    proto = os.path.join(SOURCE, "proto")
    subprocess.run(
        ["protoc", f"-I{proto}", f"--python_out={generated}"] + sorted(glob.glob(f"{proto}/cairn/v1/*.proto")),
        check=True,
    )
    sys.path.insert(0, generated)
    from cairn.v1 import (
        cluster_pb2,
        data_pb2,
        job_pb2,
        job_status_pb2,
        observe_pb2,
        parameter_pb2,
        types_pb2,
    )  # noqa: E402

    sys.path.remove(generated)

Frame = parameter_pb2.ExchangeFrame
CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", 1000),
    ("grpc.keepalive_timeout_ms", 2000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
]


def open_channel(address):
    """address: as in Hello; only the part before the comma is used. Uses $CAIRN_TLS_DIR as the daemons do."""
    target = address.split(",")[0]
    directory = os.environ.get("CAIRN_TLS_DIR")
    if not directory:
        return grpc.insecure_channel(target, options=CHANNEL_OPTIONS)
    read = [pathlib.Path(directory, name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt")]
    return grpc.secure_channel(target, grpc.ssl_channel_credentials(*read), options=CHANNEL_OPTIONS)


def exchange(channel, requests, timeout=None):
    """An Exchange stream; iterating over it yields the answers."""
    return channel.stream_stream(
        "/cairn.v1.ParameterServer/Exchange",
        request_serializer=Frame.SerializeToString,
        response_deserializer=Frame.FromString,
    )(requests, timeout=timeout)


def session(channel, messages):
    return channel.stream_stream(
        "/cairn.v1.Coordinator/Session",
        request_serializer=cluster_pb2.NodeMessage.SerializeToString,
        response_deserializer=cluster_pb2.CoordinatorMessage.FromString,
    )(messages)


def pull(channel, job_id, partition, replica=0, timeout=20):
    """Pulls a partition that fits into one frame: returns (version, the replica's last applied sequence number, the
    payload)."""
    request = Frame(
        kind=Frame.PULL,
        request_id=1,
        job_id=job_id,
        partition=partition,
        replica_first=replica,
        replica_count=1,
        reply_dtype=types_pb2.FLOAT32,
    )
    reply = next(exchange(channel, iter([request]), timeout))
    if reply.kind != Frame.VALUES:
        raise RuntimeError(f"partition {partition}: {reply.status_message}")
    return reply.version, reply.sequence, reply.payload


def final_counts(status):
    """Takes a job's status as JSON. Returns for each partition (number, version, [last sequence number of each
    replica]), as reported by its primary. With local_sync, groups push as one, and a ps knows only groups."""
    channels = {}
    pushing = range(status["spec"]["replicas"] // (status["spec"].get("local_sync") or 1))
    try:
        for placement in status["partitions"]:
            address = placement["primary_address"]
            channel = channels.setdefault(address, open_channel(address))
            answers = [pull(channel, int(status["job_id"]), placement["partition"], r) for r in pushing]
            yield placement["partition"], answers[-1][0], [a[1] for a in answers]
    finally:
        for channel in channels.values():
            channel.close()
