"""TFRecord files and protobuf's varints, implemented from their definitions: CRC-32C bit by bit. Uses nothing of Cairn.
"""

import struct

from cluster import check


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def frame(data):
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked(length)) + data + struct.pack("<I", masked(data))


def records(path):
    """Yields the records of a file in order; each is checked when it is requested."""
    with open(path, "rb") as f:
        data = f.read()
    at = 0
    while at < len(data):
        length, crc = struct.unpack_from("<QI", data, at)
        check(crc == masked(data[at : at + 8]), f"{path}: the checksum of a length at {at}")
        body = data[at + 12 : at + 12 + length]
        check(len(body) == length, f"{path}: a torn record at {at}")
        (crc,) = struct.unpack_from("<I", data, at + 12 + length)
        check(crc == masked(body), f"{path}: the checksum of a record at {at}")
        yield body
        at += 16 + length


def read_varint(data, at):
    """Returns (value, index after it)."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at
