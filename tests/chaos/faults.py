"""Faults on the daemons of a Cluster, at random but seeded: kill -9 (started again a little later) or SIGSTOP for some
seconds.

    with Faults(cluster, victims, seed) as faults:
        ...                     # a daemon is hit every `period` seconds, in a thread beside
    faults.finish()             # (the block's end): whoever stands still goes on, whoever is dead is started again

A daemon that ends by itself is a failure: `finish` and `check` raise it. The order of faults is a function of the seed;
when exactly they come is the machine's.
"""

import heapq
import os
import random
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))

from cluster import check  # noqa: E402


class Faults:
    def __init__(self, cluster, victims, seed, period=2.0, pause=5.0, away=(0.0, 1.0), ready=None):
        self.cluster = cluster
        self.victims = list(victims)
        self.rng = random.Random(seed)
        self.period = period
        self.pause = pause  # seconds that a stopped daemon stands still
        self.away = away  # seconds from kill -9 to the new start: at least, at most
        self.ready = ready  # where given: one daemon at a time, and none before ready() is true
        self.history = []  # (seconds since the start, name, what)
        self.down = {}  # name -> "killed" or "stopped"
        self.error = None
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.begun = 0.0

    def __enter__(self):
        self.begun = time.monotonic()
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.finish()

    def check(self):
        if self.error is not None:
            raise self.error

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

    def run(self):
        try:
            due = []  # (when, name): who goes on or is started again
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
        except BaseException as error:  # whatever it is, the test's thread must see it
            self.error = error

    def hit(self, name):
        """Returns when it is to be healed."""
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
