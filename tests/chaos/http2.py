"""Frames of HTTP/2 (RFC 9113) and headers (RFC 7541, without compression), written by hand: a client that may break
every rule."""

import os
import re
import socket
import ssl
import struct
import time

DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_BYTES_MAX = 16384
SECONDS_MAX = 2  # until a connection is made, or takes more bytes
WINDOW_MORE = 1 << 30
LITERAL = b"\0\x01\0\0\0\0"  # SETTINGS: the server keeps no headers, and writes each whole
WIDE = b"\0\x04\x40\0\0\0"  # SETTINGS: answers of 1 GiB may come
GRPC_STATUS = re.compile(rb"grpc-status.(\d+)", re.S)


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def integer(value, prefix_bits, first=0):
    most = (1 << prefix_bits) - 1
    if value < most:
        return bytes([first | value])
    out, value = [first | most], value - most
    while value >= 128:
        out.append(value % 128 + 128)
        value //= 128
    return bytes([*out, value])


def text(value):
    value = value if isinstance(value, bytes) else value.encode()
    return integer(len(value), 7) + value


def header(name, value, indexed=False):
    """A literal header; `indexed`: the server must keep it in its table."""
    return (b"\x40" if indexed else b"\x00") + text(name) + text(value)


def request_headers(path, *more, authority="localhost"):
    named = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", authority)]
    named += [("te", "trailers"), ("content-type", "application/grpc")]
    return b"".join(header(name, value) for name, value in [*named, *more])


def message(payload, announced=None):
    """A message of gRPC: a length and that many bytes, or fewer than announced."""
    return struct.pack(">BI", 0, len(payload) if announced is None else announced) + payload


def tls_context(tls_dir, alpn="h2"):
    """tls_dir: a folder with ca.crt, and tls.crt and tls.key if the client has a certificate."""
    context = ssl.create_default_context(cafile=os.path.join(tls_dir, "ca.crt"))
    context.check_hostname = False
    context.set_alpn_protocols([alpn])
    if os.path.exists(os.path.join(tls_dir, "tls.crt")):
        context.load_cert_chain(os.path.join(tls_dir, "tls.crt"), os.path.join(tls_dir, "tls.key"))
    return context


def dial(address, source="127.0.0.1", timeout=SECONDS_MAX):
    """A TCP connection. source: the loopback address that it comes from, as if of another machine."""
    host, port = address.split(",")[0].split(":")
    return socket.create_connection((host, int(port)), timeout=timeout, source_address=(source, 0))


class Client:
    """A connection that speaks HTTP/2 as far as it is told to."""

    def __init__(self, address, source="127.0.0.1", tls_dir=None, settings=b""):
        self.socket = dial(address, source)
        if tls_dir is not None:
            try:
                self.socket = tls_context(tls_dir).wrap_socket(self.socket)
            except OSError:
                self.socket.close()
                raise
        self.next_stream = 1
        self.held = b""
        self.send(PREFACE + frame(SETTINGS, payload=LITERAL + WIDE + settings))
        self.send(frame(SETTINGS, ACK) + frame(WINDOW_UPDATE, payload=struct.pack(">I", WINDOW_MORE)))

    def send(self, data):
        self.socket.sendall(data)

    def open(self, path, body=b"", flags=0, more=()):
        """Sends a call's headers, and `body` in frames; flags: END_STREAM ends the call's requests."""
        stream = self.next_stream
        self.next_stream += 2
        parts = [body[i : i + FRAME_BYTES_MAX] for i in range(0, len(body), FRAME_BYTES_MAX)] or [b""]
        frames = [frame(DATA, flags if part is parts[-1] else 0, stream, part) for part in parts]
        self.send(frame(HEADERS, END_HEADERS, stream, request_headers(path, *more)) + b"".join(frames))
        return stream

    def received(self, seconds=0.0):
        """What the server has sent as a list of (kind, flags, stream, payload), after waiting for it at most so long.
        Its pings are answered. None: the server closed the connection."""
        self.socket.settimeout(seconds)
        try:
            got = self.socket.recv(1 << 18)
        except (BlockingIOError, TimeoutError, ssl.SSLWantReadError):
            return []
        except OSError:
            return None
        finally:
            self.socket.settimeout(SECONDS_MAX)
        if not got:
            return None
        self.held += got
        frames = []
        while len(self.held) >= 9 and len(self.held) >= 9 + int.from_bytes(self.held[:3], "big"):
            end = 9 + int.from_bytes(self.held[:3], "big")
            frames.append((*struct.unpack(">BBI", self.held[3:9]), self.held[9:end]))
            self.held = self.held[end:]
        pings = [payload for kind, flags, _, payload in frames if kind == PING and not flags & ACK]
        try:
            self.send(b"".join(frame(PING, ACK, payload=payload) for payload in pings))
        except OSError:
            return None
        return frames

    def answered(self, seconds=5.0):
        """How the first call that ends was answered: "status 8", "reset", "goaway", "closed" or "nothing"."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            frames = self.received(left)
            if frames is None:
                return "closed"
            for kind, flags, _, payload in frames:
                if found := kind == HEADERS and GRPC_STATUS.search(payload):
                    return f"status {found.group(1).decode()}"
                if kind in (RST_STREAM, GOAWAY) or (kind == HEADERS and flags & END_STREAM):
                    return {RST_STREAM: "reset", GOAWAY: "goaway", HEADERS: "ended"}[kind]
        return "nothing"

    def close(self):
        self.socket.close()
