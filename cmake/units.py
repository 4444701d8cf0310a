"""Groups C++ files into units that are compiled as one, and writes the units.

    units.py ROOT OUT FILE...    prints what is to be compiled, by `;`: units below OUT and files that stay alone

A unit includes its files by their paths below ROOT. The headers that they share are read once, so that a whole build
takes a third of the time. Two files are in one unit only where neither mentions a name that the other one defines for
itself alone (unnamed namespaces, static functions, aliases, macros): each then means what it means by itself.
"""

import os
import re
import sys

FILES_MAX = 12
LINES_MAX = 2400
# What a file may define for itself alone: at the start of a line, in an unnamed namespace or static.
NAME = re.compile(
    r"^(?:(?:static|constexpr|inline|const|class|struct|enum|union|using|template <[^>]*>)\s+)*"
    r"(?:[\w:<>,&*\s]+?[\s&*])?(\w+)\s*(?:[=({;\[]|:(?!:)|final\b|$)"
)
TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+), (\w+)\)")
DEFINED = re.compile(r"^\s*#\s*define\s+(\w+)")
# GCC warns of its members of unnamed namespaces, as if the file were a header.
NESTED = re.compile(r"^(?:class|struct) \w+::\w+", re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")


def own_names(text):
    """Names that a file defines for itself alone."""
    names, inside = set(), False
    for line in text.split("\n"):
        test = TEST.match(line)
        macro = DEFINED.match(line)
        if test:
            names.add(f"{test[1]}_{test[2]}_Test")
        elif macro:
            names.add(macro[1])
        elif line == "namespace {":
            inside = True
        elif line == "}  // namespace":
            inside = False
        elif line.startswith("namespace ") and "=" in line:
            names.add(line.split()[1])
        elif line.startswith("using ") and not line.startswith("using namespace"):
            names.add(line.split()[1] if "=" in line else line.rstrip(";").split("::")[-1])
        elif line.startswith("static ") or (inside and line and line[0] not in " }/#"):
            match = NAME.match(line)
            if match:
                names.add(match[1])
    return names - {"TEST", "TEST_F", "TEST_P", "INSTANTIATE_TEST_SUITE_P"}


class File:
    def __init__(self, root, path):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            text = f.read()
        self.path = path
        self.lines = text.count("\n")
        self.nested = NESTED.search(text) is not None
        self.own = own_names(text)
        self.words = set(WORD.findall(text)) | self.own


class Unit:
    def __init__(self):
        self.files, self.lines, self.own, self.words = [], 0, set(), set()

    def fits(self, file):
        return (
            len(self.files) < FILES_MAX
            and self.lines + file.lines <= LINES_MAX
            and not self.own & file.words
            and not self.words & file.own
        )

    def add(self, file):
        self.files.append(file)
        self.lines += file.lines
        self.own |= file.own
        self.words |= file.words


def group(files):
    units = []
    for file in files:
        unit = next((u for u in units if u.fits(file)), None)
        if unit is None:
            unit = Unit()
            units.append(unit)
        unit.add(file)
    return units


def write(path, text):
    """Leaves a file alone that holds the text already, so that it is not compiled again."""
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            if f.read() == text:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)


def main():
    root, out, *paths = sys.argv[1:]
    compiled = []
    for unit in group([File(root, path) for path in paths]):
        if len(unit.files) == 1:
            compiled.append(os.path.join(root, unit.files[0].path))
            continue
        path = os.path.join(out, f"{len(compiled)}.cc")
        text = "".join(f'#include "{file.path}"\n' for file in unit.files)
        if any(file.nested for file in unit.files):
            text = '#pragma GCC diagnostic ignored "-Wsubobject-linkage"\n' + text
        write(path, text)
        compiled.append(path)
    print(";".join(compiled), end="")


if __name__ == "__main__":
    main()
