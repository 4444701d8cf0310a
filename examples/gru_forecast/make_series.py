"""Makes a series of 4000 numbers that is easy to generate and hard to guess: two waves with incommensurable periods,
the amplitude of the second modulated by the first, and noise with standard deviation 0.05. Each line of the CSV file
has 24 numbers and the next one, the label.

    make_series.py FILE
"""

import math
import random
import sys

STEPS = 24


def series(count):
    rng = random.Random(7)
    for t in range(count):
        slow = math.sin(2 * math.pi * t / 37)
        yield slow + (0.5 + 0.3 * slow) * math.sin(2 * math.pi * t / 11.3) + rng.gauss(0, 0.05)


def main():
    numbers = list(series(4000))
    with open(sys.argv[1], "w") as f:
        for begin in range(len(numbers) - STEPS):
            f.write(",".join(f"{x:.6f}" for x in numbers[begin : begin + STEPS + 1]) + "\n")


main()
