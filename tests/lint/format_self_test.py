"""Goal: format.py finds unformatted C++ and Python, and nothing in a formatted tree; --write fixes it; it fails, and
does not skip, if it cannot check. A check that cannot fail is a defect.

    format_self_test.py ROOT      uses the .clang-format and pyproject.toml of ROOT
"""

import os
import shutil
import sys
import tempfile

import format
from lint_self_test import write

CLEAN = {
    "common/a.h": "#pragma once\n\nint Sum(int a, int b);\n",
    "common/a.cc": '#include "common/a.h"\n\nint Sum(int a, int b) { return a + b; }\n',
    "tests/a.py": "def sum_of(a, b):\n    return a + b\n\n\nNAMES = [" + ", ".join(10 * ['"abcdef"']) + "]\n",
}

# Planted file, its text.
VIOLATIONS = [
    ("common/a.cc", "int Sum(int a,int b)\n{\n        return a+b;\n}\n"),
    ("common/b.h", "#pragma once\nint  a;\n"),
    ("common/kernels/b.cu", "int  a;\n"),
    ("tests/b.cc", "int " + 60 * "a" + " = " + 60 * "b" + ";\n"),
    ("tests/a.py", "NAMES = [ 'a','b' ]\n"),
    ("tests/unit/b.py", "def one():\n    return call(\n        1,\n        2,\n    )\n"),  # fits on one line
    ("tests/unit/c.py", "def one():\n  return 1\n"),
]

# Cases that cannot be checked: planted file, its text, the expected message.
FAILURES = [
    ("tests/a.py", "def (:\n", "black: error: cannot format"),
    ("pyproject.toml", '[tool.black]\nrequired-version = "1.2.3"\n', "black: Oh no!"),
    (".clang-format", "NoSuchOption: 1\n", "clang-format-14: "),
]


def plant(root, planted):
    """A tree in a temporary folder."""
    tree = tempfile.TemporaryDirectory()
    for name in (".clang-format", "pyproject.toml"):
        shutil.copy(os.path.join(root, name), tree.name)
    for path, text in {**CLEAN, **planted}.items():
        write(tree.name, path, text)
    return tree


def exit_text(root):
    try:
        return f"no exit: {format.check_tree(root)}"
    except SystemExit as end:
        return str(end)


def main():
    root = sys.argv[1]
    with plant(root, {}) as tree:
        assert format.check_tree(tree) == (3, []), format.check_tree(tree)
    for path, text in VIOLATIONS:
        with plant(root, {path: text}) as tree:
            found = format.check_tree(tree)[1]
            assert found == [path], (path, text, found)
    with plant(root, dict(VIOLATIONS)) as tree:
        found = format.check_tree(tree)[1]
        assert found == sorted(path for path, _ in VIOLATIONS), found
        format.check_tree(tree, write=True)
        assert format.check_tree(tree)[1] == [], "--write mends all"
    for path, text, says in FAILURES:
        with plant(root, {path: text}) as tree:
            assert exit_text(tree).startswith(says), (path, text, exit_text(tree))
    with plant(root, {}) as tree, tempfile.TemporaryDirectory() as bin:
        folders, format.FOLDERS = format.FOLDERS, bin
        assert exit_text(tree) == "clang-format-14 is not installed: deploy/install_deps.sh test", exit_text(tree)
        os.symlink(shutil.which("clang-format-14", path=folders), os.path.join(bin, "clang-format-14"))
        assert exit_text(tree) == "black is not installed: deploy/install_deps.sh test", exit_text(tree)
    print(f"{len(VIOLATIONS)} planted violations and {len(FAILURES) + 2} failures found, none in the clean tree")


if __name__ == "__main__":
    main()
