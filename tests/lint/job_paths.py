"""Checks that the code which reads and writes what a job names opens files through common/base/files.h and roots.h
alone: any other way would leave the worker's roots (docs/security.md).

    job_paths.py ROOT        prints problems, one per line; exit code 1 if there are any
"""

import os
import re
import sys

# What a job names is opened here.
FOLDERS = ("common/data", "common/formats", "worker/checkpoint", "worker/reports", "worker/node", "worker/train")

# Other ways to reach a file by its path. Functions on open descriptors (openat of a name that is checked, fstat, ...)
# are not among them.
OTHER_WAYS = re.compile(
    r"(?<![\w.>])(?:::)?(?:open|open64|creat|stat|lstat|access|opendir|unlink|rmdir|rename|mkdir|link|symlink|truncate|"
    r"chmod|readlink|realpath|mkstemp|mkostemp|fopen|freopen|gzopen|zip_open|H5Fopen)\s*\("
    r"|std::[io]?fstream\b|(?:fs|filesystem)::(?:directory_iterator|recursive_directory_iterator|exists|is_\w+|status|"
    r"file_size|create_\w+|copy\w*|remove\w*|rename|resize_file|read_symlink|canonical|last_write_time)\b"
)

# (file, what stands in the line): not a path of a job.
ALLOWED = {
    ("common/data/convert.cc", "fs::"): "cairn convert: a person's own files",
    ("common/data/gzip_file.cc", "gzopen("): "cairn convert",
    ("common/data/generated.cc", ""): "data sets that a person generates",
    ("common/data/glyphs.cc", ""): "data sets that a person generates",
    ("common/formats/apart.cc", "/proc/self/statm"): "this process' memory",
    ("common/formats/zip_file.cc", "zip_open(beside"): "in WriteFileWhole",
    ("common/formats/zip_file.cc", "chmod(beside"): "in WriteFileWhole",
    ("common/formats/keras_archive.cc", "unlink(weights"): "in WriteFileWhole",
    ("worker/node/backend_select.cc", ""): "the backends' libraries",
    ("common/formats/hdf5_file.cc", "Hdf5Handle access("): "a variable",
    ("common/formats/keras_call.cc", "std::vector<size_t> open("): "a variable",
    ("common/formats/open_shape.cc", "Shape open("): "a variable",
    ("worker/train/compute_pool.cc", "open("): "a lambda, of slots",
    ("worker/train/step_probe.cc", "/proc/meminfo"): "this machine's memory",
}


def allowed(path, line):
    return any(path == file and text in line for file, text in ALLOWED)


def check(root):
    for folder in FOLDERS:
        for at, _, names in os.walk(os.path.join(root, folder)):
            for name in sorted(names):
                path = os.path.relpath(os.path.join(at, name), root)
                if not name.endswith((".cc", ".h")):
                    continue
                with open(os.path.join(root, path), encoding="utf-8") as f:
                    for number, line in enumerate(f, 1):
                        code = line.split("//")[0]
                        found = OTHER_WAYS.search(code)
                        if found and not allowed(path, line):
                            yield (
                                f"{path}:{number}: {found.group(0).strip()}: opens by itself what a job may name; "
                                f"use common/base/files.h, or say in tests/lint/job_paths.py why it is no job's"
                            )


def main():
    problems = list(check(sys.argv[1]))
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
