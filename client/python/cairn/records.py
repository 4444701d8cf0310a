"""Arrays as TFRecord files of tf.train.Example, which is what workers read.

    Example  := (1: Features)          Features := (1: Entry)*      Entry := 1: name, 2: Feature
    Feature  := 1: BytesList | 2: FloatList | 3: Int64List           List := 1: value, numbers packed
    record   := length u64, crc u32, Example, crc u32                crc  := crc32c, rotated (masked)

All records of a file have the same length: a whole number takes the same count of bytes in each. So a record is a row
of a matrix, and nothing is done example by example.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy

CHUNK_BYTES = 32 << 20
CRC_POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected
MASK_DELTA = 0xA282EAD8
Bytes = numpy.ndarray  # of uint8

BYTES_LIST, FLOAT_LIST, INT64_LIST = 1, 2, 3


@dataclass(frozen=True)
class Feature:
    """A column of the examples: `rows` is [examples, ...] of uint8, float32 or int64."""

    name: str
    kind: int
    rows: numpy.ndarray

    def encoded(self, width: int) -> Bytes:
        """[examples, bytes]: the list's values as they lie in the record. width: of a varint."""
        rows = self.rows.reshape(len(self.rows), -1)
        if self.kind == INT64_LIST:
            return varints(rows, width)
        rows = numpy.ascontiguousarray(rows, dtype="<f4" if self.kind == FLOAT_LIST else rows.dtype)
        return rows.view(numpy.uint8).reshape(len(rows), -1)


def varint_width(rows: numpy.ndarray) -> int:
    """Bytes of the longest one."""
    longest = int(rows.astype(numpy.int64).view(numpy.uint64).max())
    return max(1, (longest.bit_length() + 6) // 7)


def varints(rows: numpy.ndarray, width: int) -> Bytes:
    """int64 [examples, n] as varints of `width` bytes: those that need fewer are filled up with continuation bits."""
    values = rows.astype(numpy.int64).view(numpy.uint64)
    parts = [(values >> numpy.uint64(7 * i)) & numpy.uint64(0x7F) for i in range(width)]
    packed = numpy.stack(parts, axis=-1).astype(numpy.uint8)
    packed[..., :-1] |= 0x80
    return packed.reshape(len(rows), -1)


def write(path: Path, features: list[Feature]) -> None:
    """One file. The features have as many rows each, at least one."""
    features = sorted(features, key=lambda feature: feature.name)
    examples = len(features[0].rows)
    widths = _widths(features)
    sample = _record([Feature(f.name, f.kind, f.rows[:1]) for f in features], widths)
    step = max(1, CHUNK_BYTES // sample.shape[1])
    with open(path, "wb") as file:
        for begin in range(0, examples, step):
            part = [Feature(f.name, f.kind, f.rows[begin : begin + step]) for f in features]
            file.write(_framed(_record(part, widths)).tobytes())


def _widths(features: list[Feature]) -> dict[str, int]:
    """Bytes of a varint by feature, of all examples."""
    return {f.name: varint_width(f.rows) for f in features if f.kind == INT64_LIST}


def _message(number: int, length: int) -> bytes:
    """The tag and the length of a field of so many bytes."""
    head, size = bytes([number << 3 | 2]), length
    while size >= 0x80:
        head += bytes([size & 0x7F | 0x80])
        size >>= 7
    return head + bytes([size])


def _record(features: list[Feature], widths: dict[str, int]) -> Bytes:
    """[examples, bytes]: an Example a row."""
    count = len(features[0].rows)
    columns: list[Bytes | bytes] = []
    total = 0
    for feature in features:
        values = feature.encoded(widths.get(feature.name, 0))
        heads = b"".join(_heads(feature, values.shape[1]))
        columns += [heads, values]
        total += len(heads) + values.shape[1]
    columns.insert(0, _message(1, total))
    record = numpy.empty((count, total + len(columns[0])), numpy.uint8)
    at = 0
    for column in columns:
        if isinstance(column, bytes):
            width = len(column)
            record[:, at : at + width] = numpy.frombuffer(column, numpy.uint8)
        else:
            width = column.shape[1]
            record[:, at : at + width] = column
        at += width
    return record


def _heads(feature: Feature, size: int) -> list[bytes]:
    """What stands before the values of an entry, from the outside in."""
    name = feature.name.encode()
    heads = [_message(1, size)]  # the values in their list
    heads.insert(0, _message(feature.kind, size + len(heads[0])))  # the list in the Feature
    inner = size + sum(map(len, heads))
    heads.insert(0, _message(1, len(name)) + name + _message(2, inner))  # the Feature in the Entry
    return [_message(1, size + sum(map(len, heads))), *heads]


def _framed(record: Bytes) -> Bytes:
    count, length = record.shape
    framed = numpy.empty((count, 12 + length + 4), numpy.uint8)
    head = numpy.frombuffer(length.to_bytes(8, "little"), numpy.uint8)
    framed[:, :8] = head
    framed[:, 8:12] = _masked(crc32c(head[None])).view(numpy.uint8)
    framed[:, 12 : 12 + length] = record
    framed[:, 12 + length :] = _masked(crc32c(record))[:, None].view(numpy.uint8)
    return framed


def _masked(crc: numpy.ndarray) -> numpy.ndarray:
    rotated = (crc >> numpy.uint32(15)) | (crc << numpy.uint32(17))
    return (rotated + numpy.uint32(MASK_DELTA)).astype("<u4")


# ---- crc32c of the rows of a matrix ----


def _table(bits: int) -> numpy.ndarray:
    """What so many bits, with a state of 0 before them, make of the state."""
    state = numpy.arange(1 << bits, dtype=numpy.uint32)
    for _ in range(bits):
        state = (state >> numpy.uint32(1)) ^ numpy.where(state & 1, numpy.uint32(CRC_POLYNOMIAL), numpy.uint32(0))
    return state


BYTE_TABLE, WORD_TABLE = _table(8), _table(16)


def _raw(words: numpy.ndarray) -> numpy.ndarray:
    """The states after the columns of [words, n] of uint16, from 0."""
    state = numpy.zeros(words.shape[1], numpy.uint32)
    for word in words:
        state = (state >> numpy.uint32(16)) ^ WORD_TABLE[(state ^ word) & numpy.uint32(0xFFFF)]
    return state


def _after_zeros(count: int) -> numpy.ndarray:
    """[4, 256]: what `count` bytes of 0 make of each byte of a state. The map is linear over XOR."""
    columns = numpy.uint32(1) << numpy.arange(32, dtype=numpy.uint32)  # the identity
    square = (columns >> numpy.uint32(8)) ^ BYTE_TABLE[columns & numpy.uint32(0xFF)]  # one byte
    while count:
        if count & 1:
            columns = _apply_columns(square, columns)
        square = _apply_columns(square, square)
        count >>= 1
    bytes_of = numpy.arange(256, dtype=numpy.uint32)
    return numpy.stack([_apply_columns(columns, bytes_of << numpy.uint32(8 * i)) for i in range(4)])


def _apply_columns(matrix: numpy.ndarray, states: numpy.ndarray) -> numpy.ndarray:
    result = numpy.zeros_like(states)
    for bit in range(32):
        result ^= numpy.where((states >> numpy.uint32(bit)) & 1, matrix[bit], numpy.uint32(0))
    return result


def crc32c(rows: Bytes) -> numpy.ndarray:
    """uint32 [examples] of uint8 [examples, length]. A row is cut into blocks, so that few long rows are as quick as
    many short ones: the states of all blocks are computed side by side, then joined."""
    count, length = rows.shape
    block = max(2, int((2 * length) ** 0.5) & ~1)
    blocks, first = divmod(length, block)
    state = numpy.full(count, 0xFFFFFFFF, numpy.uint32)
    for at in range(first):
        state = (state >> numpy.uint32(8)) ^ BYTE_TABLE[(state ^ rows[:, at]) & numpy.uint32(0xFF)]
    if blocks:
        words = numpy.ascontiguousarray(rows[:, first:]).reshape(count * blocks, block).view("<u2")
        raw = _raw(numpy.ascontiguousarray(words.T)).reshape(count, blocks)
        zeros = _after_zeros(block)
        for i in range(blocks):
            moved = zeros[0][state & numpy.uint32(0xFF)]
            for j in range(1, 4):
                moved = moved ^ zeros[j][(state >> numpy.uint32(8 * j)) & numpy.uint32(0xFF)]
            state = moved ^ raw[:, i]
    return state ^ numpy.uint32(0xFFFFFFFF)
