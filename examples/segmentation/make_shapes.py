#!/usr/bin/python3
"""Draws pictures of a disc and a square on a noisy background, and the corresponding masks.

make_shapes.py DIR [COUNT]: DIR/pictures/{train,validation,test}/all/N.png and DIR/masks/... with the same names.
"""

import os
import random
import struct
import sys
import zlib

SIDE = 32


def write_png(path, rows):
    """rows: the bytes of each row, 8-bit grey."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + bytes(row) for row in rows))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b""))


def draw(rng):
    radius, half = rng.uniform(3, 7), rng.uniform(3, 6)
    disc_x, disc_y = rng.uniform(6, SIDE - 6), rng.uniform(6, SIDE - 6)
    square_x, square_y = rng.uniform(6, SIDE - 6), rng.uniform(6, SIDE - 6)
    picture, mask = [], []
    for y in range(SIDE):
        row, classes = [], []
        for x in range(SIDE):
            label = 0
            if max(abs(x - square_x), abs(y - square_y)) <= half:
                label = 2
            if (x - disc_x) ** 2 + (y - disc_y) ** 2 <= radius**2:
                label = 1
            level = (60, 200, 130)[label] + rng.gauss(0, 12)
            row.append(min(255, max(0, round(level))))
            classes.append(label)
        picture.append(row)
        mask.append(classes)
    return picture, mask


def main():
    folder = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    rng = random.Random(1)
    for split, share in (("train", count), ("validation", count // 10), ("test", count // 10)):
        for i in range(share):
            picture, mask = draw(rng)
            write_png(os.path.join(folder, "pictures", split, "all", f"{i:05}.png"), picture)
            write_png(os.path.join(folder, "masks", split, "all", f"{i:05}.png"), mask)


if __name__ == "__main__":
    main()
