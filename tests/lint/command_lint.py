"""Whether a command of one of Cairn's programs uses flags that the program has, and names services that exist."""

import functools
import os
import re
import subprocess
import sys

PROGRAMS = ("cairn", "cairn-coordinator", "cairn-ps", "cairn-worker")


@functools.cache
def flags_of(binaries, *command):
    """The flags of the program, or of a command of `cairn`: {name: whether it takes a value}."""
    out = subprocess.run([os.path.join(binaries, command[0]), *command[1:], "--help"], capture_output=True, text=True)
    check_ran(out)
    return {flag: bool(value) for flag, value in re.findall(r"^\s+(?:-\w,)?(--[\w-]+)( [A-Z]+)?", out.stdout, re.M)}


@functools.cache
def commands_of_cairn(binaries):
    out = subprocess.run([os.path.join(binaries, "cairn"), "--help"], capture_output=True, text=True)
    check_ran(out)
    return re.findall(r"^  (\w+) ", out.stdout.partition("Subcommands:")[2], re.M)


def check_ran(done):
    if done.returncode != 0:
        sys.exit(f"{done.args}: exit {done.returncode}: {done.stderr}")


def check_command(binaries, command, services):
    if command[0] not in PROGRAMS:
        yield f"{command[0]} is not one of Cairn's programs"
        return
    words, given, flags = iter(command[1:]), [], flags_of(binaries, command[0])
    for word in words:
        word, equals, stated = word.partition("=") if word.startswith("--") else (word, "", "")
        if not word.startswith("-"):
            if command[0] == "cairn" and not given:
                if word not in commands_of_cairn(binaries):
                    yield f"`cairn {word}` is not a command"
                    return
                given = [word]
                flags = flags_of(binaries, "cairn", word)
            continue
        if word not in flags:
            yield f"{' '.join([command[0], *given])} knows no flag {word}"
        elif flags[word]:
            value = stated if equals else next(words, None)
            if value is None:
                yield f"{word}: its value is missing"
            elif word == "--coordinator" and value.split(":")[0] not in services:
                yield f"{word} {value}: there is no such service"


def value_after(command, flag):
    for word in command:
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return command[command.index(flag) + 1] if flag in command else ""


def values_after(command, flag):
    for at, word in enumerate(command):
        if word.startswith(f"{flag}="):
            yield word.partition("=")[2]
        elif word == flag:
            yield command[at + 1]


def check_listen(who, command, environment):
    """A daemon that is reached from beyond its machine has TLS, or says that it does without."""
    flags = {word.partition("=")[0] for word in command}
    if flags & {"--tls-dir", "--insecure"} or {"CAIRN_TLS_DIR", "CAIRN_INSECURE"} & set(environment):
        return
    for flag in ("--listen", "--http"):
        address = value_after(command, flag)
        if ":" in address and not address.startswith(("127.", "localhost:", "[::1]:")):
            yield f"{who}: {flag} {address} without CAIRN_TLS_DIR or CAIRN_INSECURE: it does not start"


def check_roots(who, command, mounted):
    """A worker says below which folders its jobs read and write. `mounted`: {folder: whether it is read-only}."""
    if command[0] != "cairn-worker":
        return
    roots = list(values_after(command, "--root"))
    if not roots:
        yield f"{who}: no --root: its jobs reach the working directory alone"
    for root in roots:
        folder = root.rpartition("=")[2].removesuffix(":ro")
        if folder not in mounted:
            yield f"{who}: --root {root}: nothing is mounted there"
        elif mounted[folder] and not root.endswith(":ro"):
            yield f"{who}: --root {root}: its jobs cannot write there; say :ro"
