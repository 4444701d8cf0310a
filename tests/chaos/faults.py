"""Random but seeded faults on the daemons of a Cluster: kill -9 (restarted a little later) or SIGSTOP for some seconds.

    with Faults(cluster, victims, seed) as faults:
        ...                     # every `period` seconds a separate thread hits a daemon
    faults.finish()             # (at the end of the block) continues stopped daemons, restarts dead ones

If a daemon ends by itself, `finish` and `check` raise an error. The order of faults is a function of the seed; their
exact times depend on the machine.
"""

import heapq
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))

from beside import Beside  # noqa: E402
from cluster import check  # noqa: E402


class Faults(Beside):
    def __init__(self, cluster, victims, seed, period=2.0, pause=5.0, away=(0.0, 1.0), ready=None):
        super().__init__()
        self.cluster = cluster
        self.victims = list(victims)
        self.rng = random.Random(seed)
        self.period = period
        self.pause = pause  # how long a stopped daemon is stopped, in seconds
        self.away = away  # minimum and maximum time from kill -9 to the restart, in seconds
        self.ready = ready  # if given: one daemon at a time, and only while ready() is true
        self.history = []  # (seconds since the start, name, what)
        self.down = {}  # name -> "killed" or "stopped"
        self.begun = 0.0

    def __enter__(self):
        self.begun = time.monotonic()
        return super().__enter__()

    def finish(self):
        self.ending.set()
        self.thread.join()
        for name in list(self.down):
            self.heal(name)
        self.check()

    def age(self):
        return time.monotonic() - self.begun

    def count(self, what):
        return sum(1 for h in self.history if h[2] == what)

    def note(self, name, what):
        self.history.append((self.age(), name, what))
        print(f"  {self.history[-1][0]:7.2f} s  {name:14s} {what}", flush=True)

    def act(self):
        due = []  # (time, name) of daemons to continue or restart
        next_fault = time.monotonic()
        while True:
            wake = min([next_fault] + [when for when, _ in due[:1]])
            if self.ending.wait(max(0.0, wake - time.monotonic())):
                return
            self.check_alive()
            if due and due[0][0] <= time.monotonic():
                self.heal(heapq.heappop(due)[1])
                continue
            if self.ready is not None and (self.down or not self.ready()):
                next_fault = time.monotonic() + 0.1
                continue
            up = [name for name in self.victims if name not in self.down]
            if up:
                name = self.rng.choice(up)
                heapq.heappush(due, (self.hit(name), name))
            next_fault = max(next_fault + self.period, time.monotonic())

    def hit(self, name):
        """Returns the time at which to heal it."""
        if self.rng.random() < 0.5:
            self.down[name] = "killed"
            self.cluster.kill(name)
            self.note(name, "kill -9")
            return time.monotonic() + self.rng.uniform(*self.away)
        self.down[name] = "stopped"
        self.cluster.kill(name, signal.SIGSTOP, wait=False)
        self.note(name, "SIGSTOP")
        return time.monotonic() + self.pause

    def heal(self, name):
        if self.down.pop(name) == "killed":
            self.cluster.restart(name)
            self.note(name, "restart")
        else:
            self.cluster.kill(name, signal.SIGCONT, wait=False)
            self.note(name, "SIGCONT")

    def check_alive(self):
        for name, process in self.cluster.processes.items():
            ended = self.down.get(name) != "killed" and process.poll() is not None
            check(not ended, f"{name} ended by itself, code {process.returncode}:\n{self.cluster.log(name)[-3000:]}")
