"""Checks that programs are built as docs/security.md says: position-independent, read-only tables of functions once
they are loaded, no executable stack, stacks guarded, and the C library's checks of lengths.

    hardening.py PROGRAM...     exit 1: names each program and what it lacks
    hardening.py --self-test    a program that is built without each of these is refused
"""

import re
import subprocess
import sys
import tempfile


def read(*args):
    return subprocess.run(["readelf", "-W", *args], check=True, capture_output=True, text=True).stdout


def lacks(path):
    head, segments, dynamic, symbols = read("-h", path), read("-l", path), read("-d", path), read("--dyn-syms", path)
    stack = re.search(r"GNU_STACK.*?\s(R[W ][E ])\s+0x", segments)
    wanted = {
        "position independence (-pie)": re.search(r"Type:\s+DYN", head),
        "read-only relocations (-z relro)": "GNU_RELRO" in segments,
        "functions resolved when it is loaded (-z now)": re.search(r"\bBIND_NOW\b|Flags:.*\bNOW\b", dynamic),
        "a stack that is not executable (-z noexecstack)": stack and "E" not in stack.group(1),
        "guarded stacks (-fstack-protector-strong)": "__stack_chk_fail" in symbols,
        "checked lengths (-D_FORTIFY_SOURCE=2)": re.search(r"__\w+_chk\b", symbols),
        "checked indices (-D_GLIBCXX_ASSERTIONS)": "__glibcxx_assert_fail" in symbols,
    }
    return [name for name, there in wanted.items() if not there]


SOURCE = """
#include <cstdio>
#include <cstring>
#include <vector>
int main(int count, char** values) {
  char text[16];
  std::vector<int> some(static_cast<size_t>(count), 1);
  strcpy(text, values[0]);
  return printf("%s %d", text, some[static_cast<size_t>(count)]) < 0;
}
"""
ALL = ["-fstack-protector-strong", "-D_FORTIFY_SOURCE=2", "-D_GLIBCXX_ASSERTIONS", "-fPIE"]
ALL += ["-pie", "-Wl,-z,relro,-z,now,-z,noexecstack"]
OTHERS = [  # each in place of one of the above
    ("-fno-stack-protector", "guarded stacks"),
    ("-U_FORTIFY_SOURCE", "checked lengths"),
    ("-U_GLIBCXX_ASSERTIONS", "checked indices"),
    ("-no-pie", "position independence"),
    ("-Wl,-z,norelro", "read-only relocations"),
    ("-Wl,-z,lazy", "functions resolved"),
    ("-Wl,-z,execstack", "a stack that is not executable"),
]


def self_test():
    with tempfile.TemporaryDirectory() as folder:

        def build(*more):
            program = folder + "/program"
            done = subprocess.run(
                ["c++", "-O2", "-w", *ALL, *more, "-x", "c++", "-", "-o", program], input=SOURCE, text=True, check=False
            )
            assert done.returncode == 0, more
            return lacks(program)

        assert build() == [], build()
        for flag, what in OTHERS:
            found = build(flag)
            assert len(found) >= 1 and any(name.startswith(what) for name in found), (flag, found)


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    found = [f"{path}: lacks {what}" for path in sys.argv[1:] for what in lacks(path)]
    print("\n".join(found))
    return sys.exit(1 if found or not sys.argv[1:] else 0)


main()
