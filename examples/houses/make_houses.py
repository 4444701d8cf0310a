"""Makes a table of fictitious houses: their features, their price in millions and their kind.

make_houses.py DIRECTORY [EXAMPLES [SEED]]
"""

import os
import random
import sys

COLUMNS = ("area", "rooms", "age", "distance", "noise", "note", "price", "kind")


def house(rng):
    area, age, distance = rng.uniform(0.3, 3), rng.uniform(0, 1), rng.uniform(0, 2)  # 100 m2, 100 years, 10 km
    rooms = round(area * 3 + rng.uniform(0, 1))
    noise = rng.uniform(0, 1)
    price = 0.4 * area + 0.05 * rooms - 0.3 * age - 0.2 * distance - 0.1 * noise + rng.gauss(0, 0.02)
    kind = "flat" if area - distance < 0.3 else "house" if area < 2.2 else "villa"
    return area, rooms, age, distance, noise, "no number", price, kind


def write(path, count, rng):
    with open(path, "w") as f:
        f.write(",".join(COLUMNS) + "\n")
        for _ in range(count):
            f.write(",".join(v if isinstance(v, str) else f"{v:.6g}" for v in house(rng)) + "\n")


def main():
    directory = sys.argv[1]
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    os.makedirs(directory, exist_ok=True)
    for split, share in (("train", 1), ("validation", 8), ("test", 8)):
        write(os.path.join(directory, f"{split}.csv"), count // share, rng)


if __name__ == "__main__":
    main()
