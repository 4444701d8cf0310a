"""Turns the characters of text files into examples for a language model. Each line of the CSV file has 32 characters as
numbers, then the same text shifted by one character. 0 is the end of a line, 1 .. 95 are ASCII from the space on; other
characters become '?'.

    make_characters.py CSV TEXT...
"""

import sys

STEPS = 32


def number(character):
    if character == "\n":
        return 0
    return ord(character) - 31 if " " <= character <= "~" else ord("?") - 31


def main():
    with open(sys.argv[1], "w") as out:
        for path in sys.argv[2:]:
            with open(path, encoding="utf-8") as f:
                numbers = [number(c) for c in f.read()]
            for begin in range(0, len(numbers) - STEPS, STEPS // 2):
                part = numbers[begin : begin + STEPS + 1]
                out.write(",".join(str(n) for n in part[:-1] + part[1:]) + "\n")


main()
