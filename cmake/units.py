"""Groups C++ files into units that are compiled as one, and writes the units.

    units.py ROOT OUT FILE...    prints what is to be compiled, by `;`: units below OUT and files that stay alone

A unit includes its files by their paths below ROOT, so that the headers that they share are read once. Two files are in
one unit only where neither mentions a name that the other one defines for itself alone (unnamed namespaces, static
functions, aliases, macros), nor a header that the later one adds: each then means what it means by itself.
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
TYPE = re.compile(r"^(?:template <[^>]*>\s*)?(?:class|struct|enum class|enum|union)\s+(?:ABSL_\w+\s+)?(\w+)")
INCLUDE = re.compile(r'^#include "([\w./]+)"', re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*")
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
            match = TYPE.match(line) or NAME.match(line)
            if match:
                names.add(match[1])
    return names - {"TEST", "TEST_F", "TEST_P", "INSTANTIATE_TEST_SUITE_P", "static_assert"}


class Headers:
    """The project's headers: what they include and which words they have."""

    def __init__(self, root):
        self.root = root
        self.read = {}  # path -> (its includes, its words)

    def look_at(self, path):
        if path not in self.read:
            try:
                with open(os.path.join(self.root, path), encoding="utf-8") as f:
                    text = COMMENT.sub("", f.read())
            except FileNotFoundError:  # generated, or a library's
                text = ""
            self.read[path] = (INCLUDE.findall(text), frozenset(WORD.findall(text)))
        return self.read[path]

    def closure(self, includes):
        found, todo = set(), list(includes)
        while todo:
            path = todo.pop()
            if path not in found:
                found.add(path)
                todo += self.look_at(path)[0]
        return found

    def words(self, paths):
        return set().union(*(self.look_at(path)[1] for path in paths))


class File:
    def __init__(self, root, path, headers):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            text = f.read()
        self.path = path
        self.lines = text.count("\n")
        self.nested = NESTED.search(text) is not None
        self.own = own_names(text)
        self.words = set(WORD.findall(text)) | self.own
        self.headers = headers.closure(INCLUDE.findall(text))


class Unit:
    def __init__(self, headers):
        self.all_headers = headers
        self.files, self.lines, self.own, self.words, self.headers = [], 0, set(), set(), set()

    def fits(self, file):
        return (
            len(self.files) < FILES_MAX
            and self.lines + file.lines <= LINES_MAX
            and not self.own & file.words
            and not self.words & file.own
            and not self.own & self.all_headers.words(file.headers - self.headers)
        )

    def add(self, file):
        self.files.append(file)
        self.lines += file.lines
        self.own |= file.own
        self.words |= file.words
        self.headers |= file.headers


def group(files, headers):
    units = []
    for file in files:
        unit = next((u for u in units if u.fits(file)), None)
        if unit is None:
            unit = Unit(headers)
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
    headers = Headers(root)
    for unit in group([File(root, path, headers) for path in paths], headers):
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
