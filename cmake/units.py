"""Groups C++ files into units that are compiled as one, and writes the units.

    units.py ROOT OUT FILE...    prints what is to be compiled, by `;`: units below OUT and files that stay alone

A unit includes the headers of its files, then the files by their paths below ROOT, so that the headers that they share
are read once. A name that a file defines for itself alone (unnamed namespaces, static functions, aliases) and that
another file or a header of the unit mentions is another name in the unit: a macro gives it the file's path as a suffix.
Two files are not in one unit where such a name cannot be replaced: members have it too, it is a macro, or a test is
named by it; nor where one mentions a function of its headers that a header of the other overloads. Each name then means
what it means where its file is compiled by itself.
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
STRING = re.compile(r"""R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL)
ATTRIBUTE = re.compile(r"\[\[[^\]]*\]\]\s*|__attribute__\(\(.*?\)\)\s*")
ANGLES = re.compile(r"<[^<>]*>")
VALUE = re.compile(r"^[^(=]*[\w\]]\s*=[^=]")  # a variable with its value, not a function with a default argument
MORE = re.compile(r",\s*\*?(\w+)\s*=")
# A function that a header declares, outside of classes.
DECLARED = re.compile(r"^(?!using\b|namespace\b|class\b|struct\b|enum\b|friend\b|return\b)[\w:&*\s]+?[\s&*](\w+)\(")
DIRECTIVE = re.compile(r"^\s*#\s*(?!include\b)(\w+)", re.MULTILINE)
CONDITION = re.compile(r"^\s*#\s*if", re.MULTILINE)
ANY_INCLUDE = re.compile(r'^#include (?:"[\w./+-]+"|<[\w./+-]+>)', re.MULTILINE)
# Names that a macro must not replace: members, what another namespace has, and what gives tests their names.
MEMBER = re.compile(r"(?:\.|->|::)\s*([A-Za-z_]\w*)")
OF_GTEST = {"AssertionResult", "Message", "Test", "TestInfo", "TestPartResult", "internal"}  # its macros have them
BARE = re.compile(r"(?<![\w.:>])(?<!->)[A-Za-z_]\w*|(?<=[^-]>)[A-Za-z_]\w*|(?<=[^:]:)[A-Za-z_]\w*")
USING = re.compile(r"^using [\w:]+;", re.MULTILINE)
OF_TESTS = re.compile(r"^(?:TYPED_|INSTANTIATE_)?(?:TYPED_)?TEST(?:_\w+)?\(([^)]*)", re.MULTILINE)
TEST = re.compile(r"^(?:TYPED_)?TEST(?:_[FP])?\((\w+), (\w+)\)")
DEFINED = re.compile(r"^\s*#\s*define\s+(\w+)")
# GCC warns of its members of unnamed namespaces, as if the file were a header.
NESTED = re.compile(r"^(?:class|struct) \w+::\w+", re.MULTILINE)
WORD = re.compile(r"[A-Za-z_]\w*")


def without_strings(text):
    """What strings, characters and attributes hold does not count as code."""
    return ATTRIBUTE.sub("", STRING.sub('""', text))


def without_angles(line):
    """`template <typename T> std::map<A, B> F(` becomes `std::map F(`."""
    before = None
    while line != before:
        before, line = line, ANGLES.sub("", line)
    return re.sub(r"^template\b\s*", "", line)


def own_names(text):
    """Names that a file defines for itself alone."""
    names, inside = set(), False
    lines = iter(without_strings(text).split("\n"))
    for line in lines:
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
            simple = without_angles(COMMENT.sub("", line).rstrip())
            match = TYPE.match(line) or NAME.match(simple)
            if match:
                names.add(match[1])
            while VALUE.match(simple) and simple.endswith(","):
                simple += " " + COMMENT.sub("", next(lines)).strip()
            if VALUE.match(simple):  # constexpr int kFirst = 1, kSecond = 2;
                names.update(MORE.findall(simple))
            if line.startswith("enum ") and not line.startswith("enum class"):
                while "}" not in simple:
                    simple += " " + COMMENT.sub("", next(lines)).strip()
                names.update(WORD.findall(simple.partition("{")[2]))
    return names - {"operator", "TEST", "TEST_F", "TEST_P", "INSTANTIATE_TEST_SUITE_P", "static_assert"}


class Headers:
    """The project's headers: what they include and which words they have."""

    def __init__(self, root):
        self.root = root
        self.read = {}  # path -> (its includes, its words, the functions that it declares)

    def look_at(self, path):
        if path not in self.read:
            try:
                with open(os.path.join(self.root, path), encoding="utf-8") as f:
                    text = COMMENT.sub("", f.read())
            except FileNotFoundError:  # generated, or a library's
                text = ""
            declared = (DECLARED.match(without_angles(line)) for line in text.split("\n") if line[:1].isalpha())
            functions = frozenset(match[1] for match in declared if match)
            self.read[path] = (INCLUDE.findall(text), frozenset(WORD.findall(text)), functions)
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

    def functions(self, paths):
        return set().union(*(self.look_at(path)[2] for path in paths))


class File:
    def __init__(self, root, path, headers):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            text = f.read()
        self.path = path
        self.lines = text.count("\n")
        self.nested = NESTED.search(text) is not None
        self.own = own_names(text)
        self.includes = ANY_INCLUDE.findall(text)
        self.headers = headers.closure(INCLUDE.findall(text))
        lines = COMMENT.sub("", text)
        code = without_strings(ANY_INCLUDE.sub("", lines))
        self.using = {line.rstrip(";").split("::")[-1]: line for line in USING.findall(code)}
        self.words = set(BARE.findall(code)) | self.own
        self.calls = self.words & headers.functions(self.headers)
        fixed = set(MEMBER.findall(code)) | OF_GTEST
        for line in code.split("\n"):
            fixed.update(DEFINED.findall(line))
        for names in OF_TESTS.findall(code):
            fixed.update(WORD.findall(names))
        fixed.update(name for name in self.own if name.endswith("_Test"))
        # Headers are read before the files, so they must not depend on what stands before them.
        end = first_code(lines)
        self.plain = not (
            CONDITION.search(code) or ANY_INCLUDE.search(lines, end) or DIRECTIVE.search(lines[:end].rstrip())
        )
        # A name that its headers have too may be both: a function and a type, or overloads.
        self.renamable = self.own - fixed - headers.words(self.headers) if self.plain else set()


def first_code(code):
    """Where the first line stands that is neither empty nor begins with `#`."""
    at = 0
    for line in code.split("\n"):
        if line and line[0] != "#":
            return at
        at += len(line) + 1
    return at


class Unit:
    def __init__(self, headers):
        self.all_headers = headers
        self.files, self.lines = [], 0

    def clashes(self, file, files):
        """The names of a file's own that others of these files mention, or headers that it does not include."""
        clashes = set()
        for other in files:
            if other is not file:
                clashes |= {n for n in file.own & other.words if other.using.get(n, "") != file.using.get(n)}
                clashes |= file.own & self.all_headers.words(other.headers - file.headers)
        return clashes

    def fits(self, file):
        if len(self.files) >= FILES_MAX or self.lines + file.lines > LINES_MAX:
            return False
        files = [*self.files, file]
        return all(f.plain and self.clashes(f, files) <= f.renamable and not self.overloaded(f, files) for f in files)

    def overloaded(self, file, files):
        """Functions of its headers that the file mentions and that other headers of the unit declare too."""
        others = set().union(*(other.headers for other in files if other is not file)) - file.headers
        return file.calls & self.all_headers.functions(others)

    def add(self, file):
        self.files.append(file)
        self.lines += file.lines

    def text(self):
        lines = []
        if any(file.nested for file in self.files):
            lines.append('#pragma GCC diagnostic ignored "-Wsubobject-linkage"')
        lines += dict.fromkeys(include for file in self.files for include in file.includes)
        for file in self.files:
            suffix = re.sub(r"\W", "_", os.path.splitext(file.path)[0])
            names = sorted(self.clashes(file, self.files))
            lines += [f"#define {name} {name}_of_{suffix}" for name in names]
            lines.append(f'#include "{file.path}"')
            lines += [f"#undef {name}" for name in names]
        return "\n".join(lines) + "\n"


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
        write(path, unit.text())
        compiled.append(path)
    print(";".join(compiled), end="")


if __name__ == "__main__":
    main()
