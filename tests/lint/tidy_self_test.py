"""Goal: tidy.py finds what .clang-tidy asks for in a planted file, and nothing in a clean one; files whose own names
clash are looked at together, and apart where that cannot be seen without compiling; files of the build's units are
looked at; what was clean is looked at again when a header that it reads changes.

    tidy_self_test.py ROOT      whose .clang-tidy is tried
"""

import json
import os
import shutil
import sys
import tempfile

import tidy
from lint_self_test import write

CLEAN = {
    "common/a.h": "#pragma once\n#include <string>\nstd::string Twice(const std::string& text);\n",
    "common/a.cc": '#include "common/a.h"\n\nnamespace {\n\nint Count() { return 2; }\n\n}  // namespace\n\n'
    "std::string Twice(const std::string& text) { return Count() == 2 ? text + text : text; }\n",
    "common/b.cc": '#include "common/a.h"\n\nnamespace {\n\nint Count() { return 3; }\n\n}  // namespace\n\n'
    "int Three() { return Count(); }\n",
}

# Own names that clash with one another, with a member and a function of a header and with a method of the file's own
# class; aliases of the same and of different things; two programs.
MEMBERS = """#pragma once
struct M {
  int Five() const { return 4; }
  virtual int Six() const { return 6; }
};
namespace m {
int Five();
using Word = int;
}
namespace n {
using Word = long;
}
"""
OWN_NAMES = """#include "common/m.h"

#include <string>

namespace cairn {

using Text = std::string;
using Number = NUMBER;
using WORD::Word;

namespace {

struct Base : M {
  int Six() const override;
};

struct Derived final : Base {};

int Five() { return 5; }
int Six() { return 6; }
int Base::Six() const { return cairn::Six(); }

}  // namespace

Number NAME(const M& m) { return Five() + m.Five() + m::Five() + Text(1, 'a').size() + Word{} + Derived().Six(); }

}  // namespace cairn

int main() { return cairn::Five(); }
"""
TOGETHER = {
    "common/m.h": MEMBERS,
    "common/g.cc": OWN_NAMES.replace("NUMBER", "int").replace("WORD", "m").replace("NAME", "G"),
    "common/h.cc": OWN_NAMES.replace("NUMBER", "long").replace("WORD", "n").replace("NAME", "H"),
}

# Clash on lines that own_names does not read.
CLASH = {
    f"common/{name}.cc": '#include "common/a.h"\n\nnamespace { int Five() { return 5; } }\n\n'
    f"int {name.upper()}() {{ return Five(); }}\n"
    for name in "de"
}

# Planted file, its text, the check that finds it.
VIOLATIONS = [
    (
        "common/c.cc",
        "#include <string>\n#include <utility>\nvoid Take(std::string);\n"
        "int After(std::string s) {\n  Take(std::move(s));\n  return static_cast<int>(s.size());\n}\n",
        "bugprone-use-after-move",
    ),
    (
        "common/c.cc",
        "#include <string>\n#include <vector>\nsize_t Sum(const std::vector<std::string>& all) {\n  size_t n = 0;\n"
        "  for (std::string each : all) n += each.size();\n  return n;\n}\n",
        "performance-for-range-copy",
    ),
    (
        "common/a.h",
        "#pragma once\n#include <string>\nstd::string Twice(const std::string& text);\n"
        "struct A {\n  virtual ~A() = default;\n  virtual void F();\n};\n"
        "struct B : A {\n  virtual void F();\n};\n",
        "modernize-use-override",
    ),
    (
        "common/c.cc",
        "#include <string>\n\nnamespace {\n\nint Count(std::string& s) {\n  std::string t = std::move(s);\n"
        "  return s.size() + t.size();\n}\n\n}  // namespace\n\nint Both(std::string& s) { return Count(s); }\n",
        "bugprone-use-after-move",
    ),
    ("common/c.cc", "#include <string>\n\nusing std::string;\n\nint Six() { return 6; }\n", "unused-alias"),
    (
        "common/c.cc",
        "int Seven(int a) {\n  if (int b = a; b > 0) {\n    int a = b;\n    return a;\n  }\n  return 7;\n}\n",
        "clang-diagnostic-shadow",
    ),
    ("common/c.cc", "int __Seven() { return 7; }\n", "reserved-identifier"),
    ("common/c.cc", "#define _SEVEN 7\nint Seven() { return _SEVEN; }\n", "reserved-macro-identifier"),
    ("common/c.cc", "namespace a {}\n\nnamespace b = a;\n\nint Six() { return 6; }  // b\n", "unused-alias"),
    (
        "common/c.cc",
        "namespace {\n\nint Count(int a, int b) { return a; }\n\n}  // namespace\n\n"
        "int Seven() { return Count(7, 8); }\n",
        "misc-unused-parameters",
    ),
]


class Counting(tidy.Tidy):
    """Remembers how many files were in what it looked at."""

    looked_at = []

    def run(self, source, unit):
        self.looked_at.append(len(unit.sources))
        return super().run(source, unit)


def plant(root, planted):
    for path, text in planted.items():
        write(root, path, text)
    commands = [
        {"directory": root, "file": os.path.join(root, path), "command": f"c++ -std=c++20 -I{root} -c {path}"}
        for path in sorted(planted)
        if path.endswith(".cc")
    ]
    write(root, "build/compile_commands.json", json.dumps(commands))


def found_in(config, planted):
    with tempfile.TemporaryDirectory() as root:
        shutil.copy(config, os.path.join(root, ".clang-tidy"))
        plant(root, planted)
        return tidy.check_tree(root, os.path.join(root, "build"))


def main():
    config = os.path.join(os.path.abspath(sys.argv[1]), ".clang-tidy")
    with tempfile.TemporaryDirectory() as cache:
        tidy.CACHE = cache
        assert found_in(config, CLEAN) == (2, []), "a clean tree"
        assert os.listdir(cache), "what is clean is remembered"
        tidy.Tidy = Counting
        assert found_in(config, {**CLEAN, **TOGETHER}) == (4, []), "own names that clash"
        assert Counting.looked_at == [4], "own names that clash are looked at together"
        assert found_in(config, {**CLEAN, **CLASH}) == (4, []), "names that clash"
        assert Counting.looked_at[1:] == [4, 1, 3], ("names that clash are looked at apart", Counting.looked_at)
        for path, text, check in VIOLATIONS:
            _, found = found_in(config, {**CLEAN, path: text})
            assert any(line.startswith(path) and check in line for line in found), (check, found)
        with tempfile.TemporaryDirectory() as root:  # one tree that changes
            shutil.copy(config, os.path.join(root, ".clang-tidy"))
            plant(root, CLEAN)
            assert tidy.check_tree(root, os.path.join(root, "build"))[1] == []
            write(root, *VIOLATIONS[2][:2])
            assert tidy.check_tree(root, os.path.join(root, "build"))[1], "a header that changed is not looked at"
        with tempfile.TemporaryDirectory() as root:  # that is compiled by units
            shutil.copy(config, os.path.join(root, ".clang-tidy"))
            plant(root, {**CLEAN, VIOLATIONS[0][0]: VIOLATIONS[0][1]})
            unit = '#include "common/a.h"\n#include "common/a.cc"\n#define A B\n#include "common/c.cc"\n#undef A\n'
            write(root, "build/units/common/0.cc", unit)
            command = {"file": os.path.join(root, "build/units/common/0.cc"), "command": f"c++ -std=c++20 -I{root}"}
            write(root, "build/compile_commands.json", json.dumps([command]))
            looked_at, found = tidy.check_tree(root, os.path.join(root, "build"))
            assert looked_at == 2 and any(VIOLATIONS[0][2] in line for line in found), (looked_at, found)
        broken = {**CLEAN, "common/c.cc": "int Broken( { return 1; }\n"}
        assert found_in(config, broken)[1], "a file that does not compile is not clean"
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
