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


def find(name: str = "cairn") -> Path:
    """The program, in $CAIRN_BIN, beside this package as a build has it, or in PATH. Errors: ProgramError."""
    folder = os.environ.get("CAIRN_BIN")
    if folder:
        path = Path(folder).absolute() / name
        if os.access(path, os.X_OK):
            return path
        raise ProgramError(f"$CAIRN_BIN is {folder}, and there is no program {name} in it")
    beside = Path(__file__).absolute().parents[2] / "bin" / name  # BUILD/python/cairn/programs.py
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which(name)
    if found:
        return Path(found).absolute()
    raise ProgramError(
        f"the program {name} is neither beside this package nor in PATH; build Cairn and set CAIRN_BIN to the folder "
        "of its programs, build/release/bin"
    )


class Program:
    """`cairn` for one cluster."""

    def __init__(self, address: str, tls_dir: Path | None, token: str | None = None):
        self.address = address
        self.tls_dir = tls_dir
        self._token = token

    def run(self, *args: str, timeout: float) -> str:
        """What it prints. Errors: ProgramError with what it says of the failure."""
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
        if done.returncode == 0:
            return done.stdout.decode(errors="replace")
        text = done.stderr.decode(errors="replace").strip()
        raise ProgramError(text.removeprefix(BEGIN) or f"`cairn {args[0]}` ended with {done.returncode}")

    def ask(self, *args: str, timeout: float) -> Any:
        """Its answer in JSON."""
        return json.loads(self.run("--json", *args, timeout=timeout))
