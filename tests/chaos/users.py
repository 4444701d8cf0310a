"""Simulated users during the chaos, random but seeded. They submit small jobs, cancel, resume and delete them, drain
nodes and undo it, and ask for figures, predictions and exports of jobs that run, have ended or never existed.

    with Users(cluster, job_file, seed) as users:
        ...
    users.finish()              # (at the end of the block) all their jobs have then ended or are deleted

Whatever they ask for and whenever: `cairn` exits in time with 0, 1 or 2, and prints a sentence unless it is 0. `check`
and `finish` raise an error for anything else.
"""

import os
import random
import subprocess

from beside import Beside
from cluster import BIN, check

CALL_SECONDS_MAX = 150  # for one command
REFUSALS_SHOWN = 8


class Users(Beside):
    def __init__(self, cluster, job_file, seed, settings=None):
        super().__init__()
        self.cluster = cluster
        self.job_file = job_file
        self.settings = settings or {}
        self.rng = random.Random(seed)
        self.jobs = []  # names
        self.drained = set()
        self.calls = 0
        self.refused = {}  # message -> how often

    def finish(self):
        self.ending.set()
        self.thread.join()
        self.check()
        for node in sorted(self.drained):
            self.cluster.until(lambda: self.cairn("nodes", "drain", node, "--undo") == 0, f"{node} gets work again")
        for job in self.jobs:
            self.cluster.until(
                lambda: self.cairn("cancel", job) in (0, 2) and self.cairn("delete", job) in (0, 2),
                f"{job} is gone",
                timeout=180,
            )
        print(f"users: {self.calls} commands, {sum(self.refused.values())} refused, for example:", flush=True)
        for text, count in sorted(self.refused.items(), key=lambda item: -item[1])[:REFUSALS_SHOWN]:
            print(f"  {count} x {text}", flush=True)

    def cairn(self, *args):
        argv = [os.path.join(BIN, "cairn"), "--coordinator", self.cluster.address, *args]
        self.calls += 1
        try:
            done = subprocess.run(argv, capture_output=True, text=True, timeout=CALL_SECONDS_MAX, cwd=self.cluster.dir)
        except subprocess.TimeoutExpired:
            check(False, f"`cairn {' '.join(args)}` did not end within {CALL_SECONDS_MAX} s")
        check(
            done.returncode in (0, 1, 2),
            f"`cairn {' '.join(args)}`: exit {done.returncode}\n{done.stdout}\n{done.stderr}",
        )
        if done.returncode != 0:
            said = done.stderr.strip().splitlines()
            check(said or done.stdout.strip(), f"`cairn {' '.join(args)}`: exit {done.returncode} without a word")
            key = f"{args[0]}: {(said or [done.stdout.strip()])[-1][:160]}"
            self.refused[key] = self.refused.get(key, 0) + 1
        return done.returncode

    def act(self):
        acts = [
            self.submit,
            self.submit,
            self.cancel,
            self.delete,
            self.drain,
            self.undrain,
            self.resume,
            self.predict,
            self.export,
            self.evaluate,
            self.look,
        ]
        while not self.ending.wait(self.rng.uniform(0.0, 0.5)):
            self.rng.choice(acts)()

    def some_job(self):
        return self.rng.choice(self.jobs + ["nobody"])

    def submit(self, more=None):
        if len(self.jobs) >= 6:
            return
        name = f"user-{self.calls}"
        settings = {
            **self.settings,
            "name": name,
            "epochs": self.rng.randint(1, 6),
            "replicas": self.rng.choice((1, 2, 4)),
            "priority": self.rng.randint(0, 3),
            "checkpoints.dir": f"{self.cluster.dir}/{name}",
            "checkpoints.every_epochs": 1,
            **(more or {}),
        }
        self.jobs.append(name)  # even if the answer was lost
        self.cairn(
            "submit", self.job_file, *[word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        )

    def resume(self):
        if self.jobs:
            self.submit({"resume_from": f"{self.cluster.dir}/{self.rng.choice(self.jobs)}", "replicas": 2})

    def cancel(self):
        self.cairn("cancel", self.some_job())

    def delete(self):
        job = self.some_job()
        if self.cairn("delete", job) == 0 and job in self.jobs:
            self.jobs.remove(job)

    def drain(self):
        node = self.rng.choice([name for name in self.cluster.processes if name.startswith(("ps-", "worker-"))])
        self.drained.add(node)
        self.cairn("nodes", "drain", node)

    def undrain(self):
        for node in sorted(self.drained):
            if self.cairn("nodes", "drain", node, "--undo") == 0:
                self.drained.discard(node)

    def predict(self):
        self.cairn("predict", self.some_job(), "--split", "test", "-o", f"{self.cluster.dir}/out.csv")

    def export(self):
        self.cairn("export", self.some_job(), "-o", f"{self.cluster.dir}/out.keras")

    def evaluate(self):
        self.cairn("evaluate", self.some_job(), "--split", "test")

    def look(self):
        self.cairn(self.rng.choice(("jobs", "nodes", "metrics")))
        self.cairn("job", self.some_job())
