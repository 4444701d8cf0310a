"""Checks that clang-format-14 would not change any C++ file (.clang-format), nor black any Python file
(pyproject.toml). It is a failure if a program is missing or has another version.

    format.py ROOT           prints the files that would change; exit code 1 if there are any
    format.py --write ROOT   formats them
"""

import concurrent.futures
import os
import shutil
import subprocess
import sys
import tempfile

from lint import SOURCE, files

FOLDERS = "/usr/bin" + os.pathsep + os.environ.get("PATH", "")  # Debian's first: others that are installed are newer
FILES_A_CALL = 40


def program(name):
    found = shutil.which(name, path=FOLDERS)
    if found is None:
        sys.exit(f"{name} is not installed: deploy/install_deps.sh test")
    return found


def clang_format(root, paths, write):
    """The files in `paths` that clang-format would change."""
    command = [program("clang-format-14"), *(["-i"] if write else ["--dry-run"])]

    def run(part):
        done = subprocess.run([*command, *part], cwd=root, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"clang-format-14: {done.stderr}")
        return {line.split(":", 1)[0] for line in done.stderr.splitlines() if "[-Wclang-format-violations]" in line}

    parts = [paths[i : i + FILES_A_CALL] for i in range(0, len(paths), FILES_A_CALL)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return set().union(*pool.map(run, parts))


def black(root, paths, write):
    """The files in `paths` that black would change."""
    command = [program("black"), "--config", "pyproject.toml", "--workers", "2", *([] if write else ["--check"])]
    if not paths:
        return set()
    with tempfile.TemporaryDirectory() as cache:  # an empty cache, so that the result depends only on the files
        environment = {**os.environ, "BLACK_CACHE_DIR": cache}
        done = subprocess.run(
            [*command, *paths], cwd=root, env=environment, capture_output=True, text=True, check=False
        )
    begin = "would reformat "
    wrong = {line[len(begin) :] for line in done.stderr.splitlines() if line.startswith(begin)}
    if done.returncode != (1 if wrong else 0):
        sys.exit(f"black: {done.stderr}")
    return wrong


def check_tree(root, write=False):
    """(number of checked files, those that are not formatted)"""
    paths = list(files(root))
    cpp = [path for path in paths if path.endswith(SOURCE)]
    python = [path for path in paths if path.endswith(".py")]
    return len(cpp) + len(python), sorted(clang_format(root, cpp, write) | black(root, python, write))


def main():
    (root,) = (a for a in sys.argv[1:] if a != "--write")
    looked_at, wrong = check_tree(root, "--write" in sys.argv)
    for path in wrong:
        print(f"{path}: is not formatted; tests/lint/format.py --write . does it")
    print(f"{looked_at} files, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
