"""Goal: tidy.py finds violations of .clang-tidy in a planted file, and nothing in a clean one. Files whose own names
clash are checked separately, even if only compiling shows the clash. A clean unit is checked again when a header that
it reads changes.

    tidy_self_test.py ROOT      uses the .clang-tidy of ROOT
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

# These clash with each other, on lines that own_names does not read.
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
]


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
        assert found_in(config, {**CLEAN, **CLASH}) == (4, []), "names that clash"
        for path, text, check in VIOLATIONS:
            _, found = found_in(config, {**CLEAN, path: text})
            assert any(line.startswith(path) and check in line for line in found), (check, found)
        with tempfile.TemporaryDirectory() as root:  # the same tree is modified step by step
            shutil.copy(config, os.path.join(root, ".clang-tidy"))
            plant(root, CLEAN)
            assert tidy.check_tree(root, os.path.join(root, "build"))[1] == []
            write(root, *VIOLATIONS[2][:2])
            assert tidy.check_tree(root, os.path.join(root, "build"))[1], "a header that changed is not looked at"
        broken = {**CLEAN, "common/c.cc": "int Broken( { return 1; }\n"}
        assert found_in(config, broken)[1], "a file that does not compile is not clean"
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
