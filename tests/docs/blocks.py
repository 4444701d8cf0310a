"""Marked blocks of documents: shell commands that a test runs, and what they print.

    <!-- run: NAME -->              the next fence (```sh) is run by commands_test.py, with those before it on the page
    <!-- run: NAME; needs: PROGRAM -->      only where PROGRAM is on this machine, else the rest of the page is skipped
    <!-- not run: WHY -->           the next fence is shown only
    <!-- output: NAME -->           the lines of the next fence are among those that block NAME printed, in this order;
                                    numbers, times and digests may differ; a line "..." stands for anything
    <!-- output: NAME in FILE -->   likewise, of a file that the block has written

Every ```sh fence has one of the first three. Used by commands_test.py and blocks_self_test.py.
"""

import re

MARK = re.compile(r"<!-- *(not run|run|output): *(.*?) *-->\s*$")
FENCE = re.compile(r"(```|~~~)(\w*)\s*$")


class Block:
    def __init__(self, page, line, kind, argument, text):
        self.page, self.line, self.kind, self.text = page, line, kind, text
        self.needs, self.file = None, None
        self.name = argument
        if kind == "run":
            self.name, _, needs = argument.partition("; needs: ")
            self.needs = needs or None
        elif kind == "output":
            self.name, _, file = argument.partition(" in ")
            self.file = file or None


def parse(page, text):
    """Blocks in order, and what is wrong with the marks."""
    blocks, problems = [], []
    mark, open_fence, body = None, None, []
    for number, line in enumerate(text.splitlines(), 1):
        if open_fence is not None:
            if line.strip() == open_fence[0]:
                kind, argument = mark or (None, "")
                if open_fence[1] in ("sh", "bash", "console") and kind not in ("run", "not run"):
                    problems.append(
                        f"{page}:{open_fence[2]}: commands without <!-- run: NAME --> or <!-- not run: WHY -->"
                    )
                if open_fence[1] == "" and any(re.match(r"\$? ?cairn[ -]", each) for each in body):
                    problems.append(f"{page}:{open_fence[2]}: commands in a fence that does not say ```sh")
                if kind is not None:
                    blocks.append(Block(page, open_fence[2], kind, argument, "\n".join(body) + "\n"))
                mark, open_fence, body = None, None, []
            else:
                body.append(line)
            continue
        fence, marked = FENCE.match(line.strip()), MARK.match(line.strip())
        if fence:
            open_fence = (fence[1], fence[2], number)
        elif marked:
            if mark:
                problems.append(f"{page}:{number}: a mark follows a mark")
            mark = (marked[1], marked[2])
        elif line.strip() and mark:
            problems.append(f"{page}:{number}: a mark without a fence after it")
            mark = None
    names = [b.name for b in blocks if b.kind == "run"]
    problems += [f"{page}: two blocks are called {n}" for n in sorted(set(names)) if names.count(n) > 1]
    known = set()
    for block in blocks:
        if block.kind == "run":
            known.add(block.name)
        elif block.kind == "output" and block.name not in known:
            problems.append(f"{page}:{block.line}: output of {block.name}, which is not run before it")
        elif block.kind == "not run" and not block.name:
            problems.append(f"{page}:{block.line}: not run, without a reason")
    return blocks, problems


def normal(line):
    """Without what differs from run to run: digests, addresses, numbers, times, width of columns."""
    line = re.sub(r"\b[0-9a-f]{32}\b", "DIGEST", line)
    line = re.sub(r"\d+(?:[.,:]\d+)*(?:e[+-]?\d+)?", "N", line)
    line = re.sub(r"\b(?:Nm ?)?N(?:ms|s)\b", "TIME", line)
    line = re.sub(r"(?<=[ =(])/[\w./-]+/", "", line)
    return " ".join(line.split())


def missing(expected, printed):
    """The first expected line that is not among those printed, in order; None: all are."""
    lines = iter([normal(line) for line in printed.splitlines()])
    for line in expected.splitlines():
        if line.strip() in ("", "..."):
            continue
        if not any(normal(line) == each for each in lines):
            return line
    return None
