"""Checks that clang-tidy-14 finds nothing in the product's C++ (.clang-tidy). A missing program is a failure.

    tidy.py ROOT BUILD           prints the findings; exit code 1 if there are any. BUILD holds compile_commands.json
    tidy.py ROOT BUILD PATH...   only these folders

The files of a folder are checked as one translation unit, so that the headers that they share are parsed once. Files
whose unnamed namespaces have a name in common are in different units. A clean unit is not checked again until a project
file that it reads changes (~/.cache/cairn-tidy).
"""

import collections
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

PRODUCT = ("client", "common", "coordinator", "server", "worker")
# In a unit of several files, .cc files are included on purpose.
NOT_OF_UNITS = ("bugprone-suspicious-include",)
FILES_A_UNIT = 24
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cairn-tidy")
# What a file may define only for itself: at the start of a line, in an unnamed namespace or static.
NAME = re.compile(
    r"^(?:(?:static|constexpr|inline|const|class|struct|enum|union|using|template <[^>]*>)\s+)*"
    r"(?:[\w:<>,&*\s]+?[\s&*])?(\w+)\s*(?:[=({;\[]|:(?!:)|final\b|$)"
)


def program(name):
    found = shutil.which(name)
    if found is None:
        sys.exit(f"{name} is not installed: deploy/install_deps.sh test")
    return found


def own_names(text):
    """Names that a file defines in its unnamed namespaces."""
    names, inside = set(), False
    for line in text.split("\n"):
        if line == "namespace {":
            inside = True
        elif line == "}  // namespace":
            inside = False
        elif inside and line and line[0] not in " }/#":
            match = NAME.match(line)
            if match:
                names.add(match[1])
        elif line.startswith("using ") and "=" in line:
            names.add(line.split()[1])
    return names


def flags_of(command):
    """The compiler's flags for includes, macros and the language."""
    words, flags = shlex.split(command), []
    for i, word in enumerate(words):
        if word == "-isystem":
            flags.append(("-isystem", words[i + 1]))
        elif word.startswith(("-I", "-D", "-std=")):
            flags.append((word,))
    return flags


class Unit:
    """Files that are checked together."""

    def __init__(self, files, flags):
        self.files = files
        self.flags = flags  # words


def units_of(root, build, folders):
    """Groups files by folder, with the flags of all of them; files whose macros differ are in separate units."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        commands = {entry["file"]: entry for entry in json.load(f)}
    by_folder = collections.defaultdict(list)
    for path in sorted(commands):
        relative = os.path.relpath(path, root)
        folder = os.path.dirname(relative)
        wanted = any(folder == f or folder.startswith(f + "/") for f in folders)
        if wanted and not relative.startswith("..") and path.endswith(".cc"):
            macros = tuple(sorted(f[0] for f in flags_of(commands[path]["command"]) if f[0].startswith("-D")))
            by_folder[folder, macros].append(path)
    units = []
    for paths in by_folder.values():
        flags = dict.fromkeys(flag for path in paths for flag in flags_of(commands[path]["command"]))
        words = [word for flag in flags for word in flag]
        bins = []  # (files, their names)
        for path in paths:
            with open(path, encoding="utf-8") as f:
                names = own_names(f.read())
            room = next((b for b in bins if len(b[0]) < FILES_A_UNIT and not b[1] & names), None)
            if room is None:
                room = ([], set())
                bins.append(room)
            room[0].append(path)
            room[1].update(names)
        units += [Unit(files, words) for files, _ in bins]
    return units


class Tidy:
    def __init__(self, root):
        self.root = root
        self.tidy, self.clang = program("clang-tidy-14"), program("clang++-14")
        with open(os.path.join(root, ".clang-tidy"), encoding="utf-8") as f:
            self.config = f.read()

    def look_at(self, unit):
        """Returns the lines of the findings."""
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "unit.cc")
            with open(source, "w", encoding="utf-8") as f:
                f.writelines(f'#include "{path}"\n' for path in unit.files)
            key = self.key(source, unit)
            marker = os.path.join(CACHE, key)
            if os.path.exists(marker):
                os.utime(marker)
                return []
            found, broken = self.run(source, unit)
        if broken and len(unit.files) > 1:  # names clash in a way that own_names does not detect
            middle = len(unit.files) // 2
            halves = [Unit(unit.files[:middle], unit.flags), Unit(unit.files[middle:], unit.flags)]
            return [line for half in halves for line in self.look_at(half)]
        if not found:
            os.makedirs(CACHE, exist_ok=True)
            with open(marker, "w", encoding="utf-8"):
                pass
        return found

    def key(self, source, unit):
        """A hash of the contents of all project files that the unit reads."""
        done = subprocess.run(
            [self.clang, "-MM", "-w", *unit.flags, source], cwd=self.root, capture_output=True, text=True, check=False
        )
        digest = hashlib.sha256(f"{self.config}\0{unit.flags}\0".encode())
        for path in sorted(set(done.stdout.replace("\\\n", " ").split()[1:]) - {source}):
            with open(path, "rb") as f:
                digest.update(hashlib.sha256(f.read()).digest())
        return digest.hexdigest()

    def run(self, source, unit):
        """(findings, whether the unit does not compile)"""
        checks = ",".join(f"-{check}" for check in NOT_OF_UNITS)
        done = subprocess.run(
            [self.tidy, "--quiet", f"--config={self.config}", f"--checks={checks}", source, "--", "-w", *unit.flags],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        errors = [line for line in done.stdout.splitlines() if ": error: " in line and "clang-diagnostic" in line]
        lines = [line for line in done.stdout.splitlines() if re.search(r": (warning|error): .*\[[\w.,-]+\]$", line)]
        if done.returncode != 0 and not lines:
            lines = [f"clang-tidy-14: {done.stderr.strip()}"]
        return sorted({line.replace(self.root + "/", "") for line in lines}), bool(errors)


def check_tree(root, build, folders=PRODUCT):
    """(number of checked files, findings)"""
    units = units_of(root, build, folders)
    tidy = Tidy(root)
    units.sort(key=lambda unit: -len(unit.files))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = [line for lines in pool.map(tidy.look_at, units) for line in lines]
    return sum(len(unit.files) for unit in units), sorted(set(found))


def main():
    root, build, *folders = sys.argv[1:]
    looked_at, found = check_tree(os.path.abspath(root), os.path.abspath(build), tuple(folders) or PRODUCT)
    for line in found:
        print(line)
    print(f"{looked_at} files, {len(found)} problems")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
