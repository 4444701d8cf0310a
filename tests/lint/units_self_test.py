"""Compiles files with equal names of their own in one unit and alone (cmake/units.py), and compares what both print.

    units_self_test.py ROOT COMPILER
"""

import os
import re
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(sys.argv[1], "cmake"))
import units  # noqa: E402

TALK = """#pragma once
#include <string>
namespace lib {
inline std::string Name() { return "the library's"; }
struct Text { std::string kind = "text"; };
constexpr int kEnd = 9;
}
std::string First();
std::string Second();
inline std::string Say(double x) { return std::to_string(x); }
"""
MORE = "#pragma once\n#include <string>\nstd::string Say(int x);\n"
COUNT = "#pragma once\ninline int Count() { return 40; }\n"

FIRST = """#include "talk.h"
#include <cstdlib>
namespace {
constexpr int kStart = 1;
struct Item { int value = 10; };
int Twice(int x) { return 2 * x; }
std::string Title() { return "the first's"; }
}  // namespace
std::string First() { return std::to_string(kStart + Item().value + Twice(100)) + Title() + "kStart"; }
"""
SECOND = """#include "talk.h"

#include "count.h"

namespace {
using lib::Name;
std::string Title() { return Name(); }
constexpr int kStart = 2;
struct Item { int value = 20; };
long Twice(long x) { return x + Count(); }
}  // namespace
std::string Second() { return std::to_string(kStart + Item().value + Twice(100)) + Title(); }
"""
MAIN = """#include "talk.h"
#include <iostream>
static int Count() { return 7; }
int main() { std::cout << First() << Second() << Count() << std::endl; }
"""

# Each is apart from FIRST: the reason.
APART = {
    "a member has the name": FIRST.replace("First", "Third")
    + "namespace {\nint value = 3;\n}  // namespace\nint Value() { return value; }\n",
    "a second value has the name": FIRST.replace("First", "Third").replace(
        "constexpr int kStart = 1;", "constexpr int kStop = 3,\n              kStart = 1;\nusing lib::kStart;"
    ),
    "it defines the macro": FIRST.replace("First", "Third").replace("constexpr int kStart = 1;", "#define kStart 5"),
    "a header after the code": FIRST.replace("First", "Third") + '#include "count.h"\n',
    "a condition": FIRST.replace("First", "Third").replace(
        "#include <cstdlib>", "#ifdef X\n#include <cstdlib>\n#endif"
    ),
}


def build(folder, compiler, sources, name):
    program = os.path.join(folder, name)
    subprocess.run([compiler, "-std=c++20", "-Wall", "-Werror", "-Wno-unused", f"-I{folder}", "-o", program, *sources],
                   check=True)  # fmt: skip
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def write(folder, files):
    for name, text in files.items():
        with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
            f.write(text)


def group(folder, names):
    headers = units.Headers(folder)
    return units.group([units.File(folder, name, headers) for name in names], headers)


def main():
    root, compiler = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        write(
            folder,
            {"talk.h": TALK, "count.h": COUNT, "more.h": MORE, "first.cc": FIRST, "second.cc": SECOND, "main.cc": MAIN},
        )
        names = ["first.cc", "second.cc", "main.cc"]
        alone = build(folder, compiler, [os.path.join(folder, name) for name in names], "alone")
        assert alone == "211the first'skStart162the library's7\n", alone
        script = os.path.join(root, "cmake", "units.py")
        out = os.path.join(folder, "out")
        made = subprocess.run([sys.executable, script, folder, out, *names], check=True, capture_output=True, text=True)
        sources = made.stdout.split(";")
        assert len(sources) == 1, sources
        assert build(folder, compiler, sources, "together") == alone
        with open(sources[0], encoding="utf-8") as f:
            text = f.read()
        assert "#define Title Title_of_first\n" in text and "#undef Title\n" in text, text
        assert re.search(r"#define Count Count_of_main\n", text), text  # count.h stands before it
        for reason, planted in APART.items():
            write(folder, {"third.cc": planted})
            found = group(folder, ["first.cc", "third.cc"])
            assert len(found) == 2, f"in one unit, though {reason}"
        calls = '#include "talk.h"\nstd::string Third() { return Say(1); }\n'
        write(folder, {"third.cc": calls, "fourth.cc": '#include "more.h"\nstd::string Fourth() { return ""; }\n'})
        assert len(group(folder, ["third.cc", "fourth.cc"])) == 2, "more.h has an overload of what third.cc calls"
        same = "namespace {\nint Pick(%s x) { return 1; }\n}  // namespace\nint %s() { return Pick(1); }\n"
        for name, kind in (("x", "int"), ("y", "double")):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
            write(folder, {f"{name}/e.cc": same % (kind, name)})
        (unit,) = group(folder, ["x/e.cc", "y/e.cc"])
        assert "Pick_of_x_e" in unit.text() and "Pick_of_y_e" in unit.text(), unit.text()
    print(f"one program, and {len(APART)} files that stay apart")


if __name__ == "__main__":
    main()
