"""Runs the commands that the documents show, page by page, and compares what they print (blocks.py has the marks).

    commands_test.py SOURCE BIN [PAGE]...        default: README.md and all of docs/

The blocks of a page are one bash script, run in a folder of its own that looks like a clone: examples/, deploy/ and
build/release/bin. Where the system allows, a page has a network and processes of its own (unshare), so that it may use
the ports that it names. What a page has started ends with it.
"""

import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from blocks import missing, parse

ISOLATED = ["unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
PAGE_S_MAX = 900
PROLOGUE = """set -euo pipefail
unset CAIRN_COORDINATOR CAIRN_TLS_DIR
"""


def isolation():
    """The prefix under which a page is run; empty where the system does not allow it."""
    probe = [*ISOLATED, "sh", "-c", "ip link set lo up"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False) if shutil.which("unshare") else None
    if done is not None and done.returncode == 0:
        return ISOLATED
    print(f"no network of its own for each page: {done.stderr.strip() if done else 'unshare is missing'}", flush=True)
    return []


def script_of(blocks, prefix):
    parts = [PROLOGUE]
    if prefix:
        parts.append("ip link set lo up\n")
    ran = []
    for block in blocks:
        if block.kind != "run":
            continue
        if block.needs and shutil.which(block.needs) is None:
            print(f"{block.page}: from {block.name} on nothing is run: there is no {block.needs}", flush=True)
            break
        parts.append(f"exec > blocks/{block.name}.out 2>&1\n: '{block.page}:{block.line}'\n{block.text}")
        ran.append(block)
    parts.append("trap - EXIT; kill $(jobs -p) 2> /dev/null || true; wait || true\n")
    return "".join(parts), ran


def clone(source, binaries, folder):
    for name in ("examples", "deploy"):
        os.symlink(os.path.join(source, name), os.path.join(folder, name))
    os.makedirs(os.path.join(folder, "build/release"))
    os.symlink(binaries, os.path.join(folder, "build/release/bin"))
    os.mkdir(os.path.join(folder, "blocks"))


def output_of(folder, block):
    path = os.path.join(folder, block.file if block.file else f"blocks/{block.name}.out")
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def run_script(script, prefix, folder):
    """The exit code. Everything that it has started ends."""
    process = subprocess.Popen(
        [*prefix, "bash", "-c", script], cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return process.wait(timeout=PAGE_S_MAX)
    except subprocess.TimeoutExpired:
        return "none within the time"
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()


def run_page(source, binaries, page, prefix):
    """What is wrong with the page; empty: nothing."""
    with open(os.path.join(source, page), encoding="utf-8") as f:
        blocks, problems = parse(page, f.read())
    script, ran = script_of(blocks, prefix)
    if problems or not ran:
        return problems
    began = time.monotonic()
    folder = tempfile.mkdtemp(prefix="cairn-docs-")
    try:
        clone(source, binaries, folder)
        code = run_script(script, prefix, folder)
        names = {block.name for block in ran}
        if code != 0:
            started = [b for b in ran if os.path.exists(os.path.join(folder, f"blocks/{b.name}.out"))]
            last = started[-1] if started else ran[0]
            problems.append(f"{page}:{last.line}: block {last.name}: exit {code}\n{output_of(folder, last)[-3000:]}")
            for log in sorted(glob.glob(os.path.join(folder, "*.log"))):
                with open(log, encoding="utf-8", errors="replace") as f:
                    problems.append(f"---- {os.path.basename(log)} ----\n{f.read()[-1500:]}")
        for block in blocks:
            if code != 0 or block.kind != "output" or block.name not in names:
                continue
            printed = output_of(folder, block)
            lacking = missing(block.text, printed)
            if lacking is not None:
                problems.append(f"{page}:{block.line}: block {block.name} did not print: {lacking}\n{printed[-3000:]}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{page}: {len(ran)} blocks, {time.monotonic() - began:.0f} s{', WRONG' if problems else ''}", flush=True)
    return problems


def main():
    source, binaries = (os.path.abspath(path) for path in sys.argv[1:3])
    found = glob.glob(os.path.join(source, "docs/**/*.md"), recursive=True)
    pages = sys.argv[3:] or ["README.md", *sorted(os.path.relpath(path, source) for path in found)]
    prefix = isolation()
    problems = [problem for page in pages for problem in run_page(source, binaries, page, prefix)]
    print("\n".join(problems) or "every command does what its page says")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
