"""Checks what a compiler does not: that includes go downwards (docs/architecture.md#the-house), that enums of the
protos have an UNSPECIFIED zero, that no class has too many members (class_sizes.py), and that no file contains a path
of the machine on which it was written.

    lint.py ROOT        prints problems, one per line; exit code 1 if there are any

Only files that git would carry are checked: everything except build folders and hidden folders.
"""

import os
import re
import sys

from class_sizes import check_classes

# What a folder's files may include besides their own folder: folders ("common/*": everything below common), single
# headers, "proto" (generated messages), "grpc" (the services' stubs and gRPC itself). The longest entry that is a
# prefix of a file's path applies.
FOLDERS = {
    # ---- ground ----
    "common/base": [],
    "common/tensor": ["common/base", "proto"],
    "common/model": ["common/base", "common/tensor", "proto"],
    "common/model/keras": ["common/base", "common/tensor", "common/model", "proto"],
    "common/model/onnx": ["common/base", "common/tensor", "common/model", "proto"],
    "common/model/layers": [
        "common/base",
        "common/tensor",
        "common/model",
        "common/model/keras",
        "common/model/onnx",
        "proto",
    ],
    # ---- infrastructure ----
    "common/storage": ["common/base", "common/tensor", "proto"],
    "common/data": ["common/base", "common/tensor", "common/model", "proto"],
    "common/formats": ["common/base", "common/tensor", "common/model", "common/model/*", "proto"],
    "common/report": ["common/base", "common/model", "proto"],
    "common/shared_memory": ["common/base"],
    "common/rpc": ["common/base", "common/shared_memory", "common/tensor", "proto", "grpc"],
    "common/s3": ["common/base", "common/data/remote_data.h", "common/rpc/backoff.h"],
    "common/http": ["common/base", "common/report", "common/rpc"],
    "client": ["common/*", "proto", "grpc"],
    # ---- the daemons: nodes, services, mains ----
    "server": ["common/*", "server/*", "proto", "grpc"],
    "server/core": ["common/base", "common/tensor", "common/model", "proto"],
    "server/storage": ["common/base", "common/tensor", "common/model", "common/storage", "server/core", "proto"],
    "server/node": ["common/*", "client", "server/*", "proto", "grpc"],
    "coordinator": ["common/*", "coordinator/*", "proto", "grpc"],
    "coordinator/core": ["common/base", "common/tensor", "common/model", "proto"],
    "coordinator/store": ["common/*", "coordinator/core", "proto", "grpc"],
    "coordinator/node": ["common/*", "client", "coordinator/*", "proto", "grpc"],
    "coordinator/dashboard": [
        "common/*",
        "coordinator/core",
        "coordinator/node/awaited_answer.h",
        "coordinator/node/cluster_driver.h",
        "coordinator/node/core_questions.h",
        "coordinator/node/user_calls.h",
        "proto",
        "grpc",
    ],
    "worker": ["common/*", "client", "worker/*", "proto", "grpc"],
    "worker/backend": ["common/base", "common/tensor", "common/model", "proto"],
    "worker/core": [
        "common/base",
        "common/tensor",
        "common/model",
        "worker/backend/backend.h",
        "worker/limits.h",
        "proto",
    ],
    "worker/checkpoint": ["common/base", "common/tensor", "common/model", "common/formats", "worker/limits.h", "proto"],
    "worker/train": [
        "common/*",
        "client",
        "worker/core",
        "worker/checkpoint",
        "worker/backend",
        "worker/limits.h",
        "proto",
        "grpc",
    ],
    "worker/reports": ["common/*", "client", "worker/checkpoint", "worker/limits.h", "proto", "grpc"],
    "worker/node": ["common/*", "client", "worker/*", "proto", "grpc"],
    "worker/python": ["common/*", "worker/*", "proto"],
    # ---- what the daemons are made of, in one process ----
    "replay": ["common/*", "server/core", "worker/*", "proto"],
    # ---- mains ----
    "client/cli": ["client", "client/bench", "client/cli/*", "common/*", "replay", "proto", "grpc"],
    "client/cli/sweep": ["client", "client/cli", "common/*", "proto"],
    "tests": ["*"],
}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]', re.M)
SOURCE = (".h", ".cc", ".cu")
TEXT = SOURCE + (".proto", ".py", ".sh", ".txt", ".cmake", ".md", ".json", ".yml", ".textproto", "Dockerfile", "run")
# Paths on a particular machine, unlike directories that every Debian system has.
MACHINE_PATH = re.compile(r"(?<![\w.$}/-])/(?:home|root|Users|work|workspace|mnt)/[\w.-]+")


def files(root):
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f != "build" and not f.startswith("."))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if name.endswith(TEXT):
                yield path


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as f:
        return f.read()


def folder_of(path):
    parts = path.split("/")
    for n in range(len(parts) - 1, 0, -1):
        if "/".join(parts[:n]) in FOLDERS:
            return "/".join(parts[:n])
    return None


def includes(text):
    """(included, kind): kind is a path of the tree, "proto", "grpc", or None for a library's header."""
    for quote, included in INCLUDE.findall(text):
        if included.startswith("cairn/v1/"):
            yield included, "grpc" if included.endswith(".grpc.pb.h") else "proto"
        elif included.startswith(("grpcpp/", "grpc/")):
            yield included, "grpc"
        else:
            yield included, included if quote == '"' and folder_of(included) else None


def covers(may, target):
    """target: a header's path, "proto" or "grpc"."""
    return any(m in ("*", target, folder_of(target)) or (m.endswith("/*") and target.startswith(m[:-1])) for m in may)


def check_includes(path, text):
    if not path.endswith(SOURCE):
        return
    folder = folder_of(path)
    if folder is None:
        todo = "add its folder to FOLDERS in tests/lint/lint.py with what it may include"
        yield f"{path}: stands in no folder of the layout; {todo}"
        return
    may = FOLDERS[folder]
    for included, target in includes(text):
        if included.startswith((".", "/")):
            yield f'{path}: includes "{included}"; write the path from the root of the tree'
        elif target is not None and folder_of(target) != folder and not covers(may, target):
            yield f'{path}: includes "{included}", but {folder} may use only {", ".join(may) or "nothing of ours"}'


LIMIT = re.compile(r"^[ \t]*(?:inline |static )*constexpr [^=;(]*\b(k[A-Za-z0-9]*Max)\b *(?:=|,)", re.M)


def check_limits(path, text):
    """Each subsystem has its limits in one header."""
    if not path.endswith(SOURCE) or path.startswith("tests/") or os.path.basename(path) == "limits.h":
        return
    for name in LIMIT.findall(text):
        yield f"{path}: defines {name}; a limit stands in the limits.h of its subsystem, with its reason"


ENUM = re.compile(r"\benum\s+(\w+)\s*\{([^}]*)\}", re.S)


def check_enums(path, text):
    if not path.endswith(".proto"):
        return
    plain = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    for name, body in ENUM.findall(plain):
        values = re.findall(r"^\s*(\w+)\s*=\s*(-?\d+|0x[0-9a-fA-F]+)", body, re.M) or re.findall(
            r"(\w+)\s*=\s*(-?\d+)", body
        )
        first, number = values[0] if values else ("", "")
        if number != "0" or not (first.endswith("UNSPECIFIED") or re.fullmatch(r"(\w+_)?AUTO", first)):
            todo = "begin with ..._UNSPECIFIED = 0 (or AUTO = 0, ..._AUTO = 0)"
            yield f"{path}: enum {name} begins with {first} = {number}; {todo}"


def check_paths(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        for found in MACHINE_PATH.findall(line):
            yield f"{path}:{number}: {found} is a path of one machine; take it from a flag, the environment or the tree"


COLUMNS_MAX = 120
LINES_MAX = 400
SIZED = SOURCE + (".proto", ".py", ".sh")
RAW_STRING = re.compile(r'(?<!\w)(?:u8|u|U|L)?R"(\w*)\(|\)(\w*)"')  # its beginning, or its possible end


def check_size(path, text):
    """Lines are at most COLUMNS_MAX wide, except data in raw strings of C++. A file contains one thing and has at most
    LINES_MAX lines."""
    if not path.endswith(SIZED):
        return
    lines = text.splitlines()
    end = None  # the end of the raw string in which the line begins
    for number, line in enumerate(lines, 1):
        raw = end is not None
        for mark in RAW_STRING.finditer(line) if path.endswith(SOURCE) else ():
            if end is None and mark.group(1) is not None:
                end = mark.group(1)
                raw = True
            elif end is not None and mark.group(2) == end:
                end = None
        if len(line) > COLUMNS_MAX and not raw:
            yield f"{path}:{number}: {len(line)} columns, at most {COLUMNS_MAX}"
    if len(lines) > LINES_MAX:
        yield f"{path}: {len(lines)} lines, at most {LINES_MAX}; cut it where one thing ends and another begins"


def check_states(path, text):
    """A job's state changes in one function, which knows the valid transitions."""
    if (
        path.startswith("coordinator/")
        and path.endswith(".cc")
        and path != "coordinator/core/job_table.cc"
        and "set_state(" in text
    ):
        yield f"{path}: sets a job's state; call JobTable::Transition (coordinator/core/job_state.h)"


def check_tree(root):
    problems = []
    for path in files(root):
        text = read(root, path)
        problems += check_includes(path, text)
        problems += check_enums(path, text)
        problems += check_limits(path, text)
        problems += check_paths(path, text)
        problems += check_size(path, text)
        problems += check_states(path, text)
        problems += check_classes(path, text)
    return problems


def main():
    problems = check_tree(sys.argv[1])
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
