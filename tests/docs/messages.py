"""What docs/operating/runbook.md quotes of the programs stands in the sources.

    messages.py SOURCE

A quotation is inline code, or a line of a fence, of several words. It is cut where a program fills something in (names
in quotes, numbers, "..."); each piece of at least MIN_WORDS words must stand in the sources' string literals.
"""

import os
import re
import sys

PAGES = ("docs/operating/runbook.md",)
MIN_WORDS = 3
TOPS = ("client", "common", "coordinator", "replay", "server", "worker")
LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.M | re.S)
CODE = re.compile(r"`([^`]+)`")
FILLED = re.compile(
    r'"[^"]*"|\.\.\.|\([^)]*\)|/[\w./-]+|\b\d[\d,.:-]*s?\b|\b(?:worker|ps)-\d+\b|[=<>|]|\s{2,}|\bGPU\b|; |: | - '
)


def words(text):
    return re.findall(r"[\w']+", text)


def sources_text(root):
    """All literals, with % conversions as gaps, and neighbours joined as the compiler joins them."""
    parts = []
    for top in TOPS:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith((".cc", ".h")):
                    with open(os.path.join(folder, name), encoding="utf-8") as f:
                        text = re.sub(r'"\s*\n\s*"', "", f.read())
                    parts += [" ".join(words(each)) for each in LITERAL.findall(text)]
    return "\n".join(parts)


def pieces(page):
    text = FENCE.sub("", page)
    quotations = [q for q in CODE.findall(" ".join(text.split()))]
    quotations += [line for fence in FENCE.findall(page) for line in fence.splitlines()]
    for quotation in quotations:
        if re.match(r"(cairn|kill|--|etcdctl|callbacks)\b", quotation) or "{" in quotation:
            continue  # a command, a metric or a part of a job
        for piece in FILLED.split(quotation):
            if len(words(piece)) >= MIN_WORDS:
                yield quotation, " ".join(words(piece))


def stands(piece, said):
    """As one literal, or as two that the program puts together."""
    parts = piece.split()
    halves = [(" ".join(parts[:i]), " ".join(parts[i:])) for i in range(2, len(parts) - 1)]
    return piece in said or any(first in said and second in said for first, second in halves)


def main():
    root = sys.argv[1]
    said = sources_text(root)
    wrong, checked = [], 0
    for path in PAGES:
        with open(os.path.join(root, path), encoding="utf-8") as f:
            for quotation, piece in pieces(f.read()):
                checked += 1
                if not stands(piece, said):
                    wrong.append(f'{path}: "{piece}" (of: {quotation}) is in no message of a program')
    if checked < 20:
        wrong.append(f"only {checked} pieces of messages were found: look at what this test reads")
    print("\n".join(wrong) or f"{checked} pieces of messages are as the programs write them")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
