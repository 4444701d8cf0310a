"""The programs of an installed wheel as commands: pip makes one of each function here, which becomes that program."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from cairn import programs


def _become(name: str) -> NoReturn:
    os.execv(programs.IN_PACKAGE / name, [name, *sys.argv[1:]])


def cairn() -> NoReturn:
    _become("cairn")


def cairn_coordinator() -> NoReturn:
    _become("cairn-coordinator")


def cairn_ps() -> NoReturn:
    _become("cairn-ps")


def cairn_worker() -> NoReturn:
    _become("cairn-worker")
