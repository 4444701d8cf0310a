"""The program that stands between a Python process and the daemons of its local cluster.

    python3 -I -S supervisor.py PARENT_PID DIR CAIRN ARGUMENT...

It runs `CAIRN ARGUMENT...` (cairn up), whose output is its own, until its standard input ends or PARENT_PID is no
longer its parent; then it stops the cluster and removes DIR. The parent holds the other end of the input and never
writes: it is closed by its exit, whatever ends it. Where this program itself is killed, the system kills `cairn up`
(PR_SET_PDEATHSIG), and that in the same way its daemons.

It is single-threaded and imports little, so that a cluster is up soon.
"""

import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
LOOK_EVERY_S = 0.5
# `cairn up` stops its daemons one kind after the other; a second SIGTERM makes it kill them.
STOP_PATIENCE_S = 3.0
libc = ctypes.CDLL(None)


def die_with_supervisor():
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def wait(process, seconds):
    try:
        process.wait(seconds)
        return True
    except subprocess.TimeoutExpired:
        return False


def stop(process):
    for end in (process.terminate, process.terminate, process.kill):
        if process.poll() is None:
            end()
            wait(process, STOP_PATIENCE_S)


def wanted(parent):
    """Until the parent is gone or lets go."""
    readable, _, _ = select.select([0], [], [], LOOK_EVERY_S)
    return os.getppid() == parent and not (readable and not os.read(0, 1))


def remove(folder):
    for _ in range(50):  # a daemon that was killed may still be writing
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.02)


def main(parent, folder, *command):
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, lambda *_: sys.exit(0))
    with open(os.path.join(folder, "up.log"), "ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, preexec_fn=die_with_supervisor)
    os.close(1)  # the parent reads what `cairn up` prints, to its end
    try:
        while process.poll() is None and wanted(int(parent)):
            pass
        ended_by_itself = process.poll() is not None
        while ended_by_itself and wanted(int(parent)):  # the parent wants to read the logs
            pass
    finally:
        stop(process)
        remove(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
