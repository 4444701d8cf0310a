"""The program `cairn`: where it is, and what it is asked for.

Formulas of metrics, files of models and the daemons of a local cluster are C++ code. The program has all of it, so that
nothing is written twice.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from cairn.errors import ProgramError

BEGIN = "cairn: "  # of what the program says
IN_PACKAGE = Path(__file__).absolute().parent / "bin"  # of a wheel (deploy/wheel.py)


def find(name: str = "cairn") -> Path:
    """The program, in $CAIRN_BIN, in this package as a wheel has it, beside it as a build has it, or in PATH.
    Errors: ProgramError."""
    folder = os.environ.get("CAIRN_BIN")
    if folder:
        path = Path(folder).absolute() / name
        if os.access(path, os.X_OK):
            return path
        raise ProgramError(f"$CAIRN_BIN is {folder}, and there is no program {name} in it")
    in_build = Path(__file__).absolute().parents[2] / "bin"  # BUILD/python/cairn/programs.py
    for path in (IN_PACKAGE / name, in_build / name):
        if os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    if found:
        return Path(found).absolute()
    raise ProgramError(
        f"the program {name} is neither in this package, nor beside it, nor in PATH; build Cairn and set CAIRN_BIN to "
        "the folder of its programs, build/release/bin"
    )


def version() -> str:
    """Of the programs, and so of Cairn: "0.1.0". Errors: ProgramError."""
    path = find()
    done = subprocess.run([str(path), "--version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ProgramError(f"`{path} --version` ended with {done.returncode}: {done.stderr.strip()}")
    return done.stdout.split()[-1]


class Program:
    """`cairn` for one cluster."""

    def __init__(self, address: str, tls_dir: Path | None, token: str | None = None):
        self.address = address
        self.tls_dir = tls_dir
        self._token = token

    def run(self, *args: str, timeout: float) -> str:
        """What it prints. Errors: ProgramError with what it says of the failure."""
        return self.run_with_notes(*args, timeout=timeout)[0]

    def run_with_notes(self, *args: str, timeout: float) -> tuple[str, list[str]]:
        """The same, and what it says beside it, line by line."""
        of_clusters = ("CAIRN_TLS_DIR", "CAIRN_COORDINATOR", "CAIRN_TOKEN")
        environment = {k: v for k, v in os.environ.items() if k not in of_clusters}
        if self._token is not None:
            environment["CAIRN_TOKEN"] = self._token
        if self.tls_dir is not None:
            environment["CAIRN_TLS_DIR"] = str(self.tls_dir)
        command = [str(find()), "--coordinator", self.address, *args]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired:
            raise ProgramError(f"`cairn {args[0]}` did not end within {timeout:g} s") from None
        text = done.stderr.decode(errors="replace").strip()
        if done.returncode == 0:
            notes = [line.removeprefix(BEGIN) for line in text.splitlines()]
            return done.stdout.decode(errors="replace"), notes
        raise ProgramError(text.removeprefix(BEGIN) or f"`cairn {args[0]}` ended with {done.returncode}")

    def ask(self, *args: str, timeout: float) -> Any:
        """Its answer in JSON."""
        return json.loads(self.run("--json", *args, timeout=timeout))
