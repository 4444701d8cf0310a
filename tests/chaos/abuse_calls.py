"""Hostile calls and messages of Cairn's own services; see abuse.py. With TLS they need a certificate: without one each
is "no connection"."""

import collections
import dataclasses
import itertools
import random

import wire
from google.protobuf import text_format
from http2 import FRAME_BYTES_MAX, Client, frame, message
from wire import Frame, cluster_pb2, types_pb2

COORDINATOR, PS = ("coordinator",), ("ps-0",)
DATA, END_STREAM = 0, 1
SESSION = "/cairn.v1.Coordinator/Session"
EXCHANGE = "/cairn.v1.ParameterServer/Exchange"
JOBS = "/cairn.v1.JobService/"
BURST = 50  # calls at once
CONNECTIONS = 20  # that a kind holds
PARTS = 10  # unfinished requests on each
LAYERS = 4000  # of a large job


@dataclasses.dataclass
class Attack:
    kind: str
    address: str  # of the daemon: the coordinator's or a ps'
    pages: str  # of the coordinator
    job: int  # that runs
    job_text: str  # a small job
    source: str  # the loopback address that the client has
    tls_dir: str | None = None


def connected(attack, use):
    """use(client) yields answers until the connection ends, and then for a new one."""
    while True:
        try:
            client = Client(attack.address, attack.source, attack.tls_dir)
        except OSError as error:
            yield f"no connection: {type(error).__name__}"
            continue
        try:
            yield from use(client)
        except OSError as error:
            yield type(error).__name__
        finally:
            client.close()


def calls(path, requests):
    """One call after the other, each on the same connection."""

    def kind(attack):
        made = requests(attack)

        def use(client):
            for request in made:
                client.open(path, message(request), END_STREAM)
                answer = client.answered()
                yield answer
                if answer in ("closed", "goaway"):
                    return

        yield from connected(attack, use)

    return kind


def held_clients(attack, start):
    """Connections on which start(client) began something. The oldest one makes room for a new one."""
    held = collections.deque()
    try:
        while True:
            try:
                if len(held) >= CONNECTIONS:
                    held.popleft().close()
                held.append(Client(attack.address, attack.source, attack.tls_dir))
                start(held[-1])
                for client in held:
                    client.received()
                yield held[-1].answered(0.05)
            except OSError as error:
                yield f"no connection: {type(error).__name__}"
    finally:
        for client in held:
            client.close()


# ---- messages in parts ----


def too_large(attack):
    """Messages of 16 MiB, where 4 are allowed, but for the last byte."""

    def use(client):
        client.open(JOBS + "Submit", message(bytes((16 << 20) - 1), 16 << 20))
        yield client.answered(0.1)

    yield from connected(attack, use)


def claims(attack):
    """Length prefixes of 4 GiB, and nothing behind them."""

    def use(client):
        for _ in range(BURST):
            client.open(JOBS + "Submit", message(b"", (1 << 32) - 1))
        yield client.answered(0.1)

    yield from connected(attack, use)


def unfinished_submits(attack):
    """All but the last byte of the largest messages that are allowed."""
    yield from held_clients(
        attack,
        lambda client: [client.open(JOBS + "Submit", message(bytes((4 << 20) - 64), 4 << 20)) for _ in range(PARTS)],
    )


def push(job, **fields):
    return Frame(
        kind=Frame.PUSH, request_id=1, job_id=job, generation=1, replica_count=1, sequence=1, examples=1, **fields
    )


def unfinished_pushes(attack):
    """The first MiB of gradients of 64 MiB: it reserves memory."""
    first = push(
        attack.job, dtype=types_pb2.FLOAT32, payload_total=64 << 20, payload=bytes(1 << 20)
    ).SerializeToString()
    yield from held_clients(attack, lambda client: [client.open(EXCHANGE, message(first)) for _ in range(PARTS)])


def trickle(attack):
    """A gradient of 64 MiB, a byte at a time."""

    def use(client):
        stream = client.open(EXCHANGE)
        for offset in range(1 << 20):
            part = push(
                attack.job, dtype=types_pb2.FLOAT32, payload_total=64 << 20, payload_offset=offset, payload=b"x"
            )
            client.send(frame(DATA, 0, stream, message(part.SerializeToString())))
            if offset % BURST == 0:
                answer = client.answered(0.01)
                yield answer
                if answer != "nothing":
                    return

    yield from connected(attack, use)


# ---- nodes ----


def hello(**fields):
    return cluster_pb2.NodeMessage(hello=cluster_pb2.Hello(**fields)).SerializeToString()


def sessions(attack):
    """Workers with invented names, thousands of them, all on a few connections. They say that they can do nothing: who
    may join as a worker gets work."""
    numbers = itertools.count()

    def start(client):
        for _ in range(BURST):
            made = hello(name=f"invented-{next(numbers)}", role=types_pb2.WORKER, host="h", slots=1, fault="none")
            client.open(SESSION, message(made))

    yield from held_clients(attack, start)


def odd_hellos(attack):
    """Hellos with names, numbers and texts that no node has, and bytes that are none."""
    random_bytes = random.Random(1)
    made = itertools.cycle(
        [
            hello(),
            hello(name="x" * 100_000, role=types_pb2.PS),
            hello(name="worker-0", role=types_pb2.WORKER, slots=1, incarnation=1),
            hello(name="\x00\n", role=types_pb2.PS, address="nowhere"),
            hello(name="odd", role=types_pb2.WORKER, slots=-1),
            hello(name="odd", role=types_pb2.WORKER, slots=(1 << 31) - 1),
            hello(name="odd", role=types_pb2.PS, address="127.0.0.1:1", fault="f" * 1_000_000),
            hello(name="odd", role=99),
            hello(name="odd", role=types_pb2.PS, interface=1 << 31, cluster_id=1),
            cluster_pb2.NodeMessage(heartbeat=cluster_pb2.Heartbeat(memory_bytes=1)).SerializeToString(),
            random_bytes.randbytes(500),
        ]
    )

    def use(client):
        while True:
            client.open(SESSION, message(next(made)), END_STREAM)
            answer = client.answered()
            yield answer
            if answer in ("closed", "goaway"):
                return

    yield from connected(attack, use)


# ---- a ps ----


def odd_frames_of_ps(attack):
    """Frames of jobs and partitions that do not exist, of the future, and bytes that are none."""
    numbers = random.Random(1)

    def bodies():
        while True:
            yield push(1 << 63, partition=7, payload=b"1234", payload_total=4).SerializeToString()
            yield push(attack.job, partition=(1 << 32) - 1).SerializeToString()
            late = push(attack.job, dtype=types_pb2.FLOAT32, payload=bytes(64), payload_total=64)
            late.generation = (1 << 64) - 1
            yield late.SerializeToString()
            yield Frame(
                kind=Frame.PULL, job_id=attack.job, want_version=(1 << 64) - 1, replica_count=1
            ).SerializeToString()
            yield Frame(kind=Frame.IMAGE, job_id=attack.job, tensors=1 << 31, image=bytes(30_000)).SerializeToString()
            yield Frame(
                kind=Frame.REPLICATE, job_id=attack.job, version=1 << 62, payload_total=1 << 62
            ).SerializeToString()
            yield Frame(kind=Frame.SNAPSHOT, job_id=attack.job, want_version=1 << 62).SerializeToString()
            yield numbers.randbytes(numbers.randrange(300))

    made = bodies()

    def use(client):
        while True:
            stream = client.open(EXCHANGE, message(next(made)))
            for _ in range(7):
                client.send(frame(DATA, 0, stream, message(next(made))))
            client.send(frame(DATA, END_STREAM, stream))
            answer = client.answered(2)
            yield answer
            if answer in ("closed", "goaway"):
                return

    yield from connected(attack, use)


def unread_pulls(attack):
    """Pulls whose answers are never read."""
    pull = Frame(kind=Frame.PULL, job_id=attack.job, replica_count=1, reply_dtype=types_pb2.FLOAT32)

    def start(client):
        stream = client.open(EXCHANGE)
        for request in range(2000):
            pull.request_id = request
            client.send(frame(DATA, 0, stream, message(pull.SerializeToString())))

    yield from held_silently(attack, start)


# ---- users ----


def held_silently(attack, start):
    """As held_clients, but nothing is read, and the windows stay as small as they are."""
    held = collections.deque()
    try:
        while True:
            try:
                if len(held) >= CONNECTIONS:
                    held.popleft().close()
                held.append(Client(attack.address, attack.source, attack.tls_dir, settings=b"\0\x04\0\0\0\0"))
                start(held[-1])
                yield "held"
            except OSError as error:
                yield f"no connection: {type(error).__name__}"
    finally:
        for client in held:
            client.close()


def unread_watches(attack):
    request = cluster_pb2.GetJobRequest(job_id=attack.job).SerializeToString()

    def start(client):
        for _ in range(BURST):
            client.open(JOBS + "WatchJob", message(request), END_STREAM)

    yield from held_silently(attack, start)


def large_jobs(attack):
    """Jobs with as many layers as there may be."""
    request = cluster_pb2.SubmitRequest()
    text_format.Parse(attack.job_text, request.spec)
    layers = list(request.spec.model.layers)
    del request.spec.model.layers[:]
    request.spec.model.layers.extend([layers[0], *[layers[1]] * LAYERS, *layers[1:]])
    for number in itertools.count():
        request.spec.name = f"large-{number}"
        yield request.SerializeToString()


def malformed_jobs(_attack):
    numbers = random.Random(1)
    for kind in itertools.cycle(range(3)):
        if kind == 0:
            yield numbers.randbytes(200)
        elif kind == 1:
            yield b"\x0a\xff\xff\xff\xff\x0f" + bytes(100)  # a field of 4 GiB
        else:
            yield b"\x0a\x06\x12\x04\x0a\x02" * 1000 + b"\x0a\x00"  # models in models


def about_the_job(make):
    def requests(attack):
        while True:
            yield make(cluster_pb2.GetJobRequest(job_id=attack.job)).SerializeToString()

    return requests


def events(_job):
    return wire.observe_pb2.ListEventsRequest()


def log(_job):
    return wire.observe_pb2.ReadLogRequest(node="worker-0")


def trace(job):
    return wire.observe_pb2.StartTraceRequest(job_id=job.job_id, steps=1, seconds=1)


def evaluations(job):
    return cluster_pb2.EvaluateRequest(job=job, split=types_pb2.TEST)


# kind -> (function, steps of a short run, whom it attacks)
KINDS = {
    "too-large": (too_large, 3, COORDINATOR),
    "claims": (claims, 15, COORDINATOR),
    "unfinished-submits": (unfinished_submits, 12, COORDINATOR),
    "unfinished-pushes": (unfinished_pushes, 8, PS),
    "trickle": (trickle, 20, PS),
    "sessions": (sessions, 20, COORDINATOR),
    "odd-hellos": (odd_hellos, 60, COORDINATOR),
    "odd-exchange": (odd_frames_of_ps, 60, PS),
    "unread-pulls": (unread_pulls, 15, PS),
    "unread-watches": (unread_watches, 15, COORDINATOR),
    "large-jobs": (calls(JOBS + "Submit", large_jobs), 6, COORDINATOR),
    "malformed-jobs": (calls(JOBS + "Submit", malformed_jobs), 90, COORDINATOR),
    "list-events": (calls(JOBS + "ListEvents", about_the_job(events)), 60, COORDINATOR),
    "read-log": (calls(JOBS + "ReadLog", about_the_job(log)), 30, COORDINATOR),
    "start-trace": (calls(JOBS + "StartTrace", about_the_job(trace)), 30, COORDINATOR),
    "evaluate": (calls(JOBS + "Evaluate", about_the_job(evaluations)), 3, COORDINATOR),
}
