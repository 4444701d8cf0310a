"""An independent reader of TensorBoard's files: the records' frames (tfrecords.py), the fields of the protobuf
messages."""

import glob
import os
import struct

from cluster import check
from tfrecords import read_varint, records


def fields(data):
    """number -> list of values: ints, or bytes."""
    found, at = {}, 0
    while at < len(data):
        key, at = read_varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = read_varint(data, at)
        elif wire == 2:
            length, at = read_varint(data, at)
            value, at = data[at : at + length], at + length
        else:
            size = {1: 8, 5: 4}[wire]
            value, at = data[at : at + size], at + size
        found.setdefault(number, []).append(value)
    return found


def events(folder):
    """(tag or "version" or "graph", step, value) of all files below the folder, in the order of their names."""
    result = []
    for path in sorted(glob.glob(os.path.join(folder, "events.out.tfevents.*"))):
        for i, record in enumerate(records(path)):
            event = fields(record)
            step = event.get(2, [0])[0]
            check(struct.unpack("<d", event[1][0])[0] > 1.6e9, "the time of an event")
            if 3 in event:
                check(i == 0 and event[3][0] == b"brain.Event:2", f"{path}: {event}")
                result.append(("version", step, path))
            if 4 in event:
                names = [fields(node)[1][0].decode() for node in fields(event[4][0])[1]]
                result.append(("graph", step, names))
            for value in fields(event[5][0]).get(1, []) if 5 in event else []:
                value = fields(value)
                tensor, plugin = fields(value[8][0]), fields(fields(value[9][0])[1][0])[1][0].decode()
                if plugin == "scalars":
                    number = struct.unpack("<f", tensor[5][0])[0]
                else:
                    sides = [fields(d)[1][0] for d in fields(tensor[2][0])[2]]
                    rows = struct.unpack(f"<{sides[0] * sides[1]}d", tensor[4][0])
                    number = [rows[j : j + 3] for j in range(0, len(rows), 3)]
                result.append((value[1][0].decode(), step, number))
    return result


def scalar(found, tag):
    return sorted(((step, value) for name, step, value in found if name == tag), key=lambda point: point[0])
