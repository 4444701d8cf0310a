"""Goal: job_paths.py finds each way around the roots, and lets through what is none."""

import os
import tempfile

from job_paths import check

BAD = [
    "const int fd = ::open(path.c_str(), O_RDONLY);",
    'FILE* f = std::fopen(path.c_str(), "r");',
    "std::ifstream in(path);",
    "if (std::filesystem::exists(path, ignored)) return;",
    "for (fs::directory_iterator it(dir, error), end; it != end; ++it) {",
    "::unlink(path.c_str());",
    "if (::stat(path.c_str(), &found) == 0) return;",
    "gzFile f = gzopen(path.c_str(), mode);",
    "fs::create_directories(path, error);",
]
GOOD = [
    "const FileDescriptor file = OpenPath(path, O_RDONLY);",
    "if (::fstat(file.get(), &info) != 0) return;",
    "FileDescriptor next(::openat(at.get(), name.c_str(), O_RDONLY));",
    "::unlinkat(directory.get(), name.c_str(), 0);",
    "// a comment that names std::ifstream and open(path)",
    "const fs::path folder = fs::path(path).parent_path();",
    "reader.open(1);",
    "MakeFolders(path);",
]


def problems(line):
    with tempfile.TemporaryDirectory() as root:
        os.makedirs(f"{root}/worker/reports")
        with open(f"{root}/worker/reports/a.cc", "w") as f:
            f.write(line + "\n")
        return list(check(root))


def main():
    for line in BAD:
        assert len(problems(line)) == 1, line
    for line in GOOD:
        assert not problems(line), line


if __name__ == "__main__":
    main()
