#!/usr/bin/python3
"""Packs a build into one wheel that is a whole Cairn: the Python package with its module, the programs, the GPU plugin
if it was built, and every shared library that they need except glibc, libstdc++, libgcc_s, the NVIDIA driver and
CUDA's (collect.sh). For CPython 3.11 on any x86-64 Linux with glibc 2.36 or newer.

    cmake --preset portable && cmake --build --preset portable
    deploy/wheel.py [BUILD] [FOLDER]        default: build/portable, build
    pip install build/cairn-VERSION-cp311-cp311-manylinux_2_36_x86_64.whl

It prints the wheel's path and SHA-256. The same build gives the same bytes. In the wheel:
    cairn/                  the package; cairn/bin and cairn/lib with programs and libraries
    cairn-V.data/data       share/doc/cairn/examples, below the environment's folder once it is installed
    cairn-V.dist-info       METADATA, WHEEL, entry_points.txt, the libraries' licenses, RECORD with a hash of each file
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
GLIBC_MINOR = 36  # Debian 12's
COMPILER_MINORS = {"GLIBCXX_3.4": 30, "CXXABI_1.3": 13}  # of GCC 12
OF_TARGET = ("libstdc++", "libgcc_s")  # what a Linux of that tag has beside glibc (PEP 600)
PROGRAMS = ("cairn", "cairn-coordinator", "cairn-ps", "cairn-worker")
MODULE = re.compile(r"_cairn\.cpython-3(\d+)-x86_64-linux-gnu\.so")
TIME = (1980, 1, 1, 0, 0, 0)  # of each file: the oldest that a zip has
DOCUMENT = "docs/python.md"
METADATA = """\
Metadata-Version: 2.1
Name: cairn
Version: {version}
Summary: Parameter-server cluster that trains deep networks
Requires-Python: ==3.{minor}.*
Requires-Dist: grpcio>=1.51
Requires-Dist: numpy>=1.24
Requires-Dist: protobuf>=4.21,<6
Provides-Extra: torch
Requires-Dist: torch>=1.13; extra == "torch"
Provides-Extra: tables
Requires-Dist: pandas; extra == "tables"
Requires-Dist: matplotlib; extra == "tables"
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3.{minor}
Description-Content-Type: text/markdown

{description}"""


class Refused(Exception):
    """Why there is no wheel of this build, and what to do."""


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr.strip() or f"{command[0]} ended with {done.returncode}")
    return done.stdout


def module_of(build):
    """(the module's file name, the minor version of its Python)"""
    folder = os.path.join(build, "python/cairn")
    found = [name for name in os.listdir(folder) if MODULE.fullmatch(name)] if os.path.isdir(folder) else []
    if len(found) != 1:
        raise Refused(
            f"{folder}: {len(found)} Python modules, and a wheel has one; build where pybind11 and Python's headers "
            "are (deploy/install_deps.sh build)"
        )
    return found[0], int(MODULE.fullmatch(found[0]).group(1))


def collect(build, to, module):
    """The package with programs and libraries, as folder `to`."""
    made = os.path.join(build, "python/cairn")
    if not os.path.exists(os.path.join(made, "v1/__init__.py")):
        raise Refused(f"{made}/v1: is missing; build the target cairn_package")
    modules = os.path.join(ROOT, "client/python/cairn")
    for folder, source in ((to, modules), (os.path.join(to, "v1"), os.path.join(made, "v1"))):
        os.makedirs(folder)
        for name in os.listdir(source):
            if name.endswith(".py") or name == "py.typed":
                shutil.copyfile(os.path.join(source, name), os.path.join(folder, name))
    output("strip", "--strip-unneeded", "-o", os.path.join(to, module), os.path.join(made, module))
    output(os.path.join(ROOT, "deploy/collect.sh"), build, to, *OF_TARGET)


def check_glibc(objects):
    """Errors: Refused names an object that needs a newer glibc than the wheel's tag says, or a newer libstdc++ or
    libgcc_s than Debian 12 has: those are the machine's own too."""
    name = ""
    for line in output("readelf", "-W", "-V", *objects).splitlines():
        if line.startswith("File: "):
            name = line.removeprefix("File: ")
        for minor in re.findall(r"Name: GLIBC_2\.(\d+)", line):
            if int(minor) > GLIBC_MINOR:
                raise Refused(f"{name} needs glibc 2.{minor}, and the wheel is for 2.{GLIBC_MINOR}; build on Debian 12")
        for symbols, minor in re.findall(r"Name: (GLIBCXX_3\.4|CXXABI_1\.3)\.(\d+)", line):
            if int(minor) > COMPILER_MINORS[symbols]:
                raise Refused(
                    f"{name} needs {symbols}.{minor} of libstdc++, newer than Debian 12's; build on Debian 12"
                )


def files_below(folder):
    for at, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (os.path.join(at, name) for name in sorted(names))


def about(version, minor, tag):
    """Name -> text of the files in dist-info."""
    with open(os.path.join(ROOT, DOCUMENT), encoding="utf-8") as file:
        description = file.read()
    commands = [f"{name} = cairn.commands:{name.replace('-', '_')}" for name in PROGRAMS]
    return {
        "METADATA": METADATA.format(version=version, minor=minor, description=description),
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: cairn deploy/wheel.py\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "entry_points.txt": "\n".join(["[console_scripts]", *commands, ""]),
        "top_level.txt": "cairn\n",
    }


def write(path, stage, record, level):
    """The folder `stage` as a zip, `record` last: the list of the others with their hashes."""
    lines = []
    with zipfile.ZipFile(path, "w") as wheel:

        def add(name, data, mode):
            info = zipfile.ZipInfo(name, TIME)
            info.external_attr = (0o100000 | mode) << 16
            wheel.writestr(info, data, zipfile.ZIP_DEFLATED, level)

        for file in files_below(stage):
            name = os.path.relpath(file, stage)
            with open(file, "rb") as opened:
                data = opened.read()
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data, 0o755 if os.path.basename(os.path.dirname(file)) == "bin" else 0o644)
        add(record, "".join([*lines, f"{record},,\n"]), 0o644)


def make(build, folder, level=9):
    """The wheel's path. level: of the compression; 1 is for tests."""
    module, minor = module_of(build)
    with tempfile.TemporaryDirectory(prefix="cairn-wheel-") as stage:
        package = os.path.join(stage, "cairn")
        collect(build, package, module)
        version = output(os.path.join(package, "bin/cairn"), "--version").split()[-1]
        check_glibc([f for f in files_below(package) if "/bin/" in f or ".so" in os.path.basename(f)])
        examples = os.path.join(stage, f"cairn-{version}.data/data/share/doc/cairn/examples")
        shutil.copytree(os.path.join(ROOT, "examples"), examples)
        info = os.path.join(stage, f"cairn-{version}.dist-info")
        os.mkdir(info)
        os.rename(os.path.join(package, "licenses"), os.path.join(info, "licenses"))
        tag = f"cp3{minor}-cp3{minor}-manylinux_2_{GLIBC_MINOR}_x86_64"
        for name, text in about(version, minor, tag).items():
            with open(os.path.join(info, name), "w", encoding="utf-8") as file:
                file.write(text)
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"cairn-{version}-{tag}.whl")
        number, part = tempfile.mkstemp(dir=folder, suffix=".part")
        os.close(number)
        try:
            write(part, stage, f"{os.path.basename(info)}/RECORD", level)
            os.chmod(part, 0o644)
            os.replace(part, path)
        finally:
            if os.path.exists(part):
                os.unlink(part)
    return path


def main(build=os.path.join(ROOT, "build/portable"), folder=os.path.join(ROOT, "build")):
    path = make(os.path.abspath(build), os.path.abspath(folder))
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    print(f"{path}\nsha256:{digest}, {os.path.getsize(path) / 2**20:.1f} MiB")


if __name__ == "__main__":
    if len(sys.argv) > 3 or any(a.startswith("-") for a in sys.argv[1:]):
        print(f"usage: {sys.argv[0]} [BUILD] [FOLDER]", file=sys.stderr)
        sys.exit(2)
    try:
        main(*sys.argv[1:])
    except (Refused, OSError) as error:
        print(f"wheel.py: {error}", file=sys.stderr)
        sys.exit(1)
