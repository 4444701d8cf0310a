"""Goal: `cairn top` prints once where its output is no terminal; on a terminal it fits, shows what changes until q or a
signal, goes on while the coordinator is away, and leaves the terminal as it was."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios

from cluster import BIN, Cluster, check
from jobs import make_glyphs, small_job

CAIRN = os.path.join(BIN, "cairn")


class Terminal:
    """A program on a terminal of 12 lines of 60 columns."""

    def __init__(self, *argv):
        self.text = ""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 60, 0, 0))
            os.execv(argv[0], argv)

    def read_until(self, text):
        begin = len(self.text)
        while text not in self.text[begin:]:
            check(select.select([self.fd], [], [], 120)[0], f"{text!r} was not shown: {self.text[-2000:]!r}")
            self.text += os.read(self.fd, 65536).decode(errors="replace")

    def end(self):
        """The exit code."""
        while True:
            try:
                some = os.read(self.fd, 65536)
            except OSError:  # the other end is closed
                break
            if not some:
                break
            self.text += some.decode(errors="replace")
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def check_on_terminal(c, end):
    terminal = Terminal(CAIRN, "--coordinator", c.address, "top", "--every", "1")
    terminal.read_until("worker-0")
    if end == "q":
        os.write(terminal.fd, b"xq")
    else:
        os.kill(terminal.pid, end)
    check(terminal.end() == 0, repr(terminal.text))
    text = terminal.text
    check(text.startswith("\x1b[?1049h") and text.rstrip().endswith("\x1b[?25h\x1b[?1049l"), repr(text))
    lines = re.sub(r"\x1b\[[?0-9]*[a-zA-Z]", "", text.split("\x1b[J")[0]).split("\r\n")
    check(len(lines) <= 12 and all(len(line) <= 60 for line in lines), str(lines))


def check_hangs(c):
    """A coordinator that hangs holds up no key."""
    terminal = Terminal(CAIRN, "--coordinator", c.address, "top", "--every", "1")
    terminal.read_until("worker-0")
    coordinator = c.processes["coordinator"]
    coordinator.send_signal(signal.SIGSTOP)
    try:
        terminal.read_until("what follows is old: ")
        os.write(terminal.fd, b"q")
        check(terminal.end() == 0, repr(terminal.text))
    finally:
        coordinator.send_signal(signal.SIGCONT)


def check_order(c):
    """Unfinished jobs, the oldest first; then ended ones, the newest first."""
    data = make_glyphs(c.dir)
    ended = [c.submit(small_job(c.dir, data, 1), {"epochs": 1, "backups": 0, "name": f"e{i}"}) for i in range(2)]
    for job in ended:
        c.wait(job)
    running = [c.submit(small_job(c.dir, data, 1), {"epochs": 100000, "backups": 0, "name": f"r{i}"}) for i in range(2)]
    lines = c.cairn("top").stdout.splitlines()
    names = [line.split()[1] for line in lines[3:7]]
    check(names == ["r0", "r1", "e1", "e0"], str(lines))
    for job in running:
        c.cairn("cancel", job)
        c.wait(job, state="CANCELLED")


def check_away(c):
    terminal = Terminal(CAIRN, "--coordinator", c.address, "top", "--every", "1")
    terminal.read_until("worker-0")
    c.kill("coordinator")
    terminal.read_until("what follows is old: ")
    c.restart("coordinator")
    terminal.read_until("alive")
    os.write(terminal.fd, b"q")
    check(terminal.end() == 0, repr(terminal.text))


def main():
    with Cluster(ps=1, workers=1) as c:
        check_order(c)
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), 100000))
        c.wait_for_step(job, 10)
        once = c.cairn("top").stdout
        check(once.startswith("cairn top - ") and "1 running" in once and "\x1b" not in once, repr(once))
        check(re.search(rf"^{c.job(job)['job_id']} +\S+ +running +\d+/", once, re.M), once)
        check(re.search(r"^ps-0 +ps +alive", once, re.M), once)
        error = c.cairn("top", ok=False, as_json=True)
        check(error.returncode == 2 and "--json: top is for people" in error.stderr, error.stderr)
        for end in ("q", signal.SIGTERM, signal.SIGINT):
            check_on_terminal(c, end)
        check_hangs(c)
        check_away(c)
        c.cairn("cancel", job)


main()
