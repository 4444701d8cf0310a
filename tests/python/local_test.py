"""The local cluster of a process: it is up without anything set, shared by clients, and gone however the process
ends: normally, by an exception, Ctrl-C, SIGTERM, kill -9, in a thread, with the process between killed; a forked child
uses it and does not end it. Nothing is left running, and the temporary directory is gone.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import check  # noqa: E402

LIMIT_S = 60
# Each begins so. It prints the folder of its cluster, then waits for its end where `end` says so.
BEGIN = """
import os, signal, sys, threading, time
begin = time.perf_counter()
import cairn
client = cairn.Client()
print(client._local.folder, f"up after {time.perf_counter() - begin:.2f} s", flush=True)
assert client.local and len(client.nodes()) == 2, client.nodes()
"""
FOREVER = "print('ready', flush=True)\nthreading.Event().wait()\n"

# What it does, then what is sent to it when it says that it is ready, and its exit code.
ENDS = {
    "the end of the script": ("", None, 0),
    "sys.exit": ("sys.exit(3)\n", None, 3),
    "an exception": ("raise RuntimeError('x')\n", None, 1),
    "os._exit": ("os._exit(4)\n", None, 4),
    "Ctrl-C": (FOREVER, signal.SIGINT, None),
    "SIGTERM": (FOREVER, signal.SIGTERM, -signal.SIGTERM),
    "kill -9": (FOREVER, signal.SIGKILL, -signal.SIGKILL),
    "kill -9 while it trains": ("job = client.submit(JOB)\n" + FOREVER, signal.SIGKILL, -signal.SIGKILL),
    "close": ("client.close()\nprint('ready', flush=True)\nsys.stdin.read()\n", "eof", 0),
    "the last of two clients": (
        "two = cairn.Client()\nassert two.address == client.address\nclient.close()\nassert len(two.nodes()) == 2\n",
        None,
        0,
    ),
    "a with block that raises": ("with cairn.Client() as c:\n    client.close()\n    raise ValueError\n", None, 1),
    "a client that was made in a thread": (
        "client.close()\nfound = []\n"
        "thread = threading.Thread(target=lambda: found.append(cairn.Client()))\nthread.start()\nthread.join()\n"
        "assert len(found[0].nodes()) == 2\n",
        None,
        0,
    ),
    "a child that was forked and ends": (
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n        client.nodes()\n"
        "    except RuntimeError as error:\n        sys.exit(0 if 'was forked from' in str(error) else 8)\n"
        "    sys.exit(9)\n"
        "assert os.waitpid(child, 0)[1] == 0\nassert len(client.nodes()) == 2\n",
        None,
        0,
    ),
    # gRPC's own handlers of forks, where they are on, block one fork of some dozens for ever.
    "many children, one after the other": (
        "for _ in range(200):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n        os._exit(0)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        "    assert len(client.nodes()) == 2\n",
        None,
        0,
    ),
    "children of multiprocessing": (
        "import multiprocessing\n"
        "def square(n):\n    return n * n\n"
        "pool = multiprocessing.get_context('fork').Pool(2)\n"
        "assert pool.map(square, range(3)) == [0, 1, 4]\n"
        "pool.close()\npool.join()\n"  # Python's own terminate(), as a with block has it, may wait for ever
        "assert len(client.nodes()) == 2\n",
        None,
        0,
    ),
    "kill -9 of a process whose child lives on": (
        "child = os.fork()\nif child == 0:\n    os.setsid()\n    signal.pause()\nprint('child', child, flush=True)\n"
        + FOREVER,
        signal.SIGKILL,
        -signal.SIGKILL,
    ),
}

JOB = """
name: "endless"
model {
  layers { input { shape: [28, 28, 1] } }
  layers { flatten { } }
  layers { dense { units: 10 activation: SOFTMAX } }
}
data { path: "%s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { sgd { } }
epochs: 1000000
"""


def processes_of(folder):
    """Those that name the folder in their command."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                command = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in command:
            found.append((int(pid), command))
    return found


def until(condition, what):
    end = time.monotonic() + LIMIT_S
    while not condition():
        check(time.monotonic() < end, f"not within {LIMIT_S} s: {what}")
        time.sleep(0.01)


def start(body, **environment):
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + body],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONFAULTHANDLER": "1", **environment},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # it may be ignored here, as after `test &`
    )


def wait_for(process, name):
    """Of one that does not end, the threads' stacks are shown."""
    try:
        process.wait(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        _, errors = process.communicate(timeout=LIMIT_S)
        check(False, f"{name}: the process does not end\n{errors}")


def nothing_is_left(name, folder):
    until(lambda: not processes_of(folder), f"{name}: no process is left: {processes_of(folder)}")
    until(lambda: not os.path.exists(folder), f"{name}: {folder} is removed")


def check_end(name, data):
    body, sent, code = ENDS[name]
    process = start(f"JOB = '''{JOB % data}'''\n" + body)
    folder, how_long = process.stdout.readline().strip().split(" ", 1)
    child = None
    if sent is not None:
        for line in process.stdout:
            if line.startswith("child"):
                child = int(line.split()[1])
            if line.startswith("ready"):
                break
    if sent == "eof":
        nothing_is_left(name, folder)  # while the process lives
        process.stdin.close()
        process.stdin = None
    elif sent is not None:
        process.send_signal(sent)
    try:
        wait_for(process, name)
        nothing_is_left(name, folder)
    finally:
        if child is not None:
            os.kill(child, signal.SIGKILL)
    _, errors = process.communicate(timeout=LIMIT_S)
    check(code is None or process.returncode == code, f"{name}: exit {process.returncode}\n{errors}")
    print(f"{name}: ok, {how_long}", flush=True)


def check_killed_supervisor():
    """The daemons end with it; the next client has a new cluster."""
    body = (
        "client._local._process.kill()\nclient._local._process.wait()\n"
        "another = cairn.Client()\nassert another.address != client.address and len(another.nodes()) == 2\n"
        "print(another._local.folder, flush=True)\n"
    )
    process = start(body)
    folder = process.stdout.readline().split(" ")[0]
    out, errors = process.communicate(timeout=LIMIT_S)
    check(process.returncode == 0, errors)
    until(lambda: not processes_of(folder), f"no process is left: {processes_of(folder)}")
    nothing_is_left("a new cluster", out.strip())
    subprocess.run(["rm", "-rf", folder], check=True)  # what nobody was there to remove
    print("the process between killed: ok", flush=True)


def check_failed_start():
    """A cluster that cannot start says why, and leaves nothing."""
    with tempfile.TemporaryDirectory() as folder:
        broken = os.path.join(folder, "cairn")
        with open(broken, "w") as f:
            f.write("#!/bin/sh\necho 'cairn: the disk is full' >&2\nexit 1\n")
        os.chmod(broken, 0o755)
        temporary = os.path.join(folder, "tmp")
        os.mkdir(temporary)
        process = start("", CAIRN_BIN=folder, TMPDIR=temporary)
        _, errors = process.communicate(timeout=LIMIT_S)
        wanted = "cairn.errors.LocalClusterError: the local cluster did not start:\ncairn: the disk is full\n"
        check(errors.endswith(wanted), errors)
        until(lambda: not os.listdir(temporary), "the folder is removed")
    print("a cluster that does not start: ok", flush=True)


def main():
    with tempfile.TemporaryDirectory() as folder:
        data = os.path.join(folder, "glyphs")
        make = [
            f"{os.environ['CAIRN_BIN']}/cairn",
            "data",
            "make",
            "glyphs",
            data,
            "--count",
            "200",
            "--test-count",
            "10",
        ]
        subprocess.run(make, check=True, stdout=subprocess.DEVNULL)
        for name in sys.argv[1:] or ENDS:
            check_end(name, data)
    check_killed_supervisor()
    check_failed_start()


if __name__ == "__main__":
    main()
