"""Checks that clang-tidy-14 finds nothing in the product's C++ (.clang-tidy).

    tidy.py [--jobs N] ROOT BUILD           prints what is found; exit 1 if anything is, 77 if clang-tidy-14 is not
                                            installed. BUILD holds compile_commands.json and the generated headers
    tidy.py [--jobs N] ROOT BUILD PATH...   of these folders alone

Neighbouring files are looked at as one translation unit, so that the headers that they share are read once: these are
most of the time. A unit is made of copies of the files, in which a name that a file defines for itself alone has the
file's number behind it where another one has the name too. What was found clean is not looked at again while no file
of the project that it reads has changed (~/.cache/cairn-tidy).
"""

import argparse
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

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "cmake"))
import units  # noqa: E402

NOT_INSTALLED = 77  # the exit code; ctest skips the test
PRODUCT = ("client", "common", "coordinator", "replay", "server", "worker")
# In a unit a .cc is included, on purpose.
NOT_OF_UNITS = ("bugprone-suspicious-include",)
# The compiler's own, which cost nothing: bugprone-reserved-identifier looks at each name of all libraries.
WARNINGS = ("-Wno-everything", "-Wshadow", "-Wreserved-identifier", "-Wreserved-macro-identifier")
# Larger units cost less in all; smaller ones are sooner done again after a change, and share the processors better.
LINES_A_UNIT = 18000
CACHE = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "cairn-tidy")
ALIAS = re.compile(r"^(?:using (?!namespace)|namespace \w+ =)")
USING = re.compile(r"^using ([\w:]+::(\w+));")
BASES = re.compile(r"^((?:class|struct) \w+)(?: final| :).*", re.MULTILINE)


def program(name):
    found = shutil.which(name)
    if found is None:
        print(f"{name} is not installed: deploy/install_deps.sh test", file=sys.stderr)
        sys.exit(NOT_INSTALLED)
    return found


def flags_of(command):
    """What the compiler is told of includes, macros and the language."""
    words, flags = shlex.split(command), []
    for i, word in enumerate(words):
        if word == "-isystem":
            flags.append(("-isystem", words[i + 1]))
        elif word.startswith(("-I", "-D", "-std=", "-fopenmp")):
            flags.append((word,))
    return flags


class Source:
    """One file: its text, and what it defines for itself alone."""

    def __init__(self, root, path):
        with open(os.path.join(root, path), encoding="utf-8") as f:
            self.text = f.read()
        self.path = path  # below ROOT
        self.lines = self.text.count("\n")
        lines = self.text.split("\n")
        # Several files may have an alias, if it is of the same thing.
        self.aliases = {name: line for line in lines if ALIAS.match(line) for name in units.own_names(line)}
        self.words = set(re.findall(r"\w+", self.text))
        self.own = units.own_names(BASES.sub(r"\1 {", self.text)) - {"static_assert"} - set(self.aliases)
        self.own |= {"main"} & self.words
        self.namespaces = set(
            re.findall(r"\w+", " ".join(re.findall(r"^namespace ([\w:]+) \{", self.text, re.MULTILINE)))
        )

    def unused_aliases(self):
        """clang-tidy looks for these in the main file of a unit alone."""
        words = re.findall(r"\w+", re.sub(r"//.*|^#include.*", "", self.text, flags=re.MULTILINE))
        return [f"{self.path}: warning: {n} is not used [unused-alias]" for n in self.aliases if words.count(n) == 1]

    def renamed(self, names, number):
        """The text with a number behind these names, but in includes and where they are of something else."""
        if not names:
            return self.text
        unqualified = r"(?<![\w.>:\"])(?!\w+\([^()]*\) (?:const )?override)"
        qualified = "".join(rf"|(?<=\b{name}::)" for name in sorted(self.namespaces))
        pattern = re.compile(r"(?:%s%s)(%s)\b" % (unqualified, qualified, "|".join(sorted(names))))
        lines = [USING.sub(r"using \2 = \1;", x) if names & units.own_names(x) else x for x in self.text.split("\n")]
        return "\n".join(x if x.startswith("#include") else pattern.sub(rf"\1_{number}", x) for x in lines)


class Unit:
    """Files that are looked at together."""

    def __init__(self, sources, flags):
        self.sources = sources
        self.flags = flags  # words

    def clashing(self, source):
        """Names that it defines for itself alone and that other files of the unit define or use."""
        others = [other for other in self.sources if other is not source]
        own = {name for name in source.own if any(name in other.words for other in others)}
        aliases = {
            name
            for name, line in source.aliases.items()
            if any(name in other.words and other.aliases.get(name) != line for other in others)
        }
        return own | aliases

    def write(self, folder):
        """Copies of the files, and the unit that includes them; returns its path."""
        for number, source in enumerate(self.sources):
            path = os.path.join(folder, source.path)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as f:
                f.write(source.renamed(self.clashing(source), number))
        unit = os.path.join(folder, "unit.cc")
        with open(unit, "w", encoding="utf-8") as f:
            f.writelines(f'#include "{os.path.join(folder, source.path)}"\n' for source in self.sources)
        return unit

    def parts(self, broken):
        """Two units in its place: the files that did not compile together are apart from the others."""
        one = [source for source in self.sources if source.path in broken]
        if len(one) in (0, len(self.sources)):
            one = self.sources[: len(self.sources) // 2]
        return [Unit(one, self.flags), Unit([s for s in self.sources if s not in one], self.flags)]


def compiled(root, build):
    """{file: flags} of all that is compiled, the files of the build's own units (cmake/units.py) one by one."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        entries = json.load(f)
    flags = {}
    for entry in entries:
        files = [entry["file"]]
        if files[0].startswith(os.path.join(build, "units", "")):
            with open(files[0], encoding="utf-8") as f:
                files = [
                    os.path.join(root, path) for path in re.findall(r'^#include "(.*\.cc)"$', f.read(), re.MULTILINE)
                ]
        flags.update((os.path.relpath(file, root), flags_of(entry["command"])) for file in files)
    return flags


def units_of(root, build, folders):
    """Neighbours are in one unit, with the flags of all files."""
    flags = compiled(root, build)
    wanted = tuple(f"{folder}/" for folder in folders)
    paths = [path for path in sorted(flags) if path.endswith(".cc") and path.startswith(wanted)]
    words = [word for flag in dict.fromkeys(flag for path in paths for flag in flags[path]) for word in flag]
    found, lines = [], LINES_A_UNIT
    for source in (Source(root, path) for path in paths):
        if lines + source.lines > LINES_A_UNIT:
            found.append(Unit([], words))
            lines = 0
        found[-1].sources.append(source)
        lines += source.lines
    return found


class Tidy:
    def __init__(self, root):
        self.root = root
        self.tidy, self.clang = program("clang-tidy-14"), program("clang++-14")
        with open(os.path.join(root, ".clang-tidy"), encoding="utf-8") as f:
            self.config = f.read()

    def look_at(self, unit):
        """Lines of what is found."""
        with tempfile.TemporaryDirectory() as folder:
            source = unit.write(folder)
            marker = os.path.join(CACHE, self.key(source, unit))
            if os.path.exists(marker):
                os.utime(marker)
                return []
            found, broken = self.run(source, unit)
        broken &= {source.path for source in unit.sources}  # a header that does not compile does not do so apart either
        if broken and len(unit.sources) > 1:  # names that clash in a way that is not seen without compiling
            return [line for part in unit.parts(broken) for line in self.look_at(part)]
        if not found:
            os.makedirs(CACHE, exist_ok=True)
            with open(marker, "w", encoding="utf-8"):
                pass
        return found

    def key(self, source, unit):
        """Of the contents of all files of the project that the unit reads."""
        done = subprocess.run(
            [self.clang, "-MM", "-w", *unit.flags, source], cwd=self.root, capture_output=True, text=True, check=False
        )
        folder = os.path.dirname(source)
        digest = hashlib.sha256(f"{self.config}\0{WARNINGS}\0{unit.flags}\0".encode())
        read = set(done.stdout.replace("\\\n", " ").split()[1:]) - {source}
        for name, path in sorted((path.replace(folder, "").replace(self.root, ""), path) for path in read):
            with open(path, "rb") as f:
                digest.update(f"{name}\0{hashlib.sha256(f.read()).hexdigest()}\0".encode())
        return digest.hexdigest()

    def run(self, source, unit):
        """(what is found, files that do not compile)"""
        checks = ",".join(f"-{check}" for check in NOT_OF_UNITS)
        done = subprocess.run(
            [
                self.tidy,
                "--quiet",
                f"--config={self.config}",
                f"--checks={checks}",
                source,
                "--",
                *WARNINGS,
                *unit.flags,
            ],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line for line in done.stdout.splitlines() if re.search(r": (warning|error): .*\[[\w.,-]+\]$", line)]
        if done.returncode != 0 and not lines:
            lines = [f"clang-tidy-14: {done.stderr.strip()}"]
        lines = [line.replace(os.path.dirname(source) + "/", "").replace(self.root + "/", "") for line in lines]
        broken = {line.split(":")[0] for line in lines if ": error: " in line and "clang-diagnostic" in line}
        return sorted(set(lines)), broken


def check_tree(root, build, folders=PRODUCT, jobs=None):
    """(how many files were looked at, what is found)"""
    todo = units_of(root, build, folders)
    tidy = Tidy(root)
    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        found = [line for lines in pool.map(tidy.look_at, todo) for line in lines]
    found += [line for unit in todo for source in unit.sources for line in source.unused_aliases()]
    return sum(len(unit.sources) for unit in todo), sorted(set(found))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, help="units that are looked at at once; as many as processors if not given")
    parser.add_argument("root")
    parser.add_argument("build")
    parser.add_argument("folders", nargs="*")
    a = parser.parse_args()
    folders = tuple(path.rstrip("/") for path in a.folders) or PRODUCT
    looked_at, found = check_tree(os.path.abspath(a.root), os.path.abspath(a.build), folders, a.jobs)
    for line in found:
        print(line)
    print(f"{looked_at} files, {len(found)} problems")
    return 1 if found or not looked_at else 0


if __name__ == "__main__":
    sys.exit(main())
