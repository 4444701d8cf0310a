"""Checks that clang-format-14 would leave every C++ file as it is (.clang-format).

    format.py ROOT      prints the files that it would change; exit 1 if there are any, 77 if the program is not here
    format.py --write ROOT   formats them
"""

import concurrent.futures
import os
import shutil
import subprocess
import sys

from lint import SOURCE, files

PROGRAM = "clang-format-14"
FILES_A_CALL = 40


def formatted(root, paths, write):
    """Those of `paths` that are not as clang-format writes them."""
    options = ["-i"] if write else ["--dry-run"]
    done = subprocess.run([PROGRAM, *options, *paths], cwd=root, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{PROGRAM}: {done.stderr}")
    return sorted({line.split(":", 1)[0] for line in done.stderr.splitlines() if "[-Wclang-format-violations]" in line})


def main():
    arguments = [a for a in sys.argv[1:] if a != "--write"]
    root = os.path.abspath(arguments[0])
    if shutil.which(PROGRAM) is None:
        print(f"skipped: {PROGRAM} is not installed (deploy/install_deps.sh test)")
        return 77
    paths = [path for path in files(root) if path.endswith(SOURCE)]
    parts = [paths[i:i + FILES_A_CALL] for i in range(0, len(paths), FILES_A_CALL)]
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        wrong = sum(pool.map(lambda part: formatted(root, part, "--write" in sys.argv), parts), [])
    for path in wrong:
        print(f"{path}: is not formatted; tests/lint/format.py --write . does it")
    print(f"{len(paths)} files, {len(wrong)} problems")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
