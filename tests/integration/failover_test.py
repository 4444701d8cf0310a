"""With backups a job survives kill -9 of a ps that is not restarted; the digest is that of the undisturbed run.

Cases: the primary's ps is killed for good; it is killed and restarted (it comes back as a backup); both copies are
killed (the job waits, names the ps, and continues when they are back); the same for asynchronous jobs, which still
count every example once. While backups are missing the job is degraded, and says so. If all ps are restarted, each as
soon as the previous one is ready, the job never waits for one.
"""

import json
import os
import signal
import subprocess
import threading
import time

from cluster import BIN, Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed

EPOCHS = 24
SETTINGS = {"partition_bytes": 4096, "backups": 1}


def placement(c, job, ps):
    """The partitions of which `ps` is the primary, a backup, and a backup in sync."""
    partitions = c.job(job)["partitions"]
    backups = [b for p in partitions for b in p.get("backups", []) if b["node"] == ps]
    return sum(p["primary"] == ps for p in partitions), len(backups), sum(b["in_sync"] for b in backups)


def wait_until_in_sync(c, job):
    def look(status):
        return all(p.get("backups") and all(b["in_sync"] for b in p["backups"]) for p in status["partitions"])

    c.while_running(job, look, "all backups are in sync")


def goes_on(c, job):
    c.wait_for_step(job, int(c.job(job)["step"]) + 10)


def primary_lost_for_good(c, job):
    c.kill("ps-1")
    c.while_running(
        job, lambda _: placement(c, job, "ps-1")[:2] == (0, 0), "the dead ps has neither primaries nor backups"
    )
    goes_on(c, job)


def told(status, text):
    return any(text in event["text"] for event in status.get("events", []))


def primary_comes_back_as_a_backup(c, job):
    c.kill("ps-1")
    c.while_running(job, lambda _: placement(c, job, "ps-1")[0] == 0, "the dead ps has no primaries")
    status = c.while_running(job, lambda _: "degraded" in (now := c.job(job)) and now, "the job is degraded")
    check(
        'start ps "ps-1" again' in status["degraded"]["text"] and status["degraded"]["partitions"] > 0,
        status["degraded"],
    )
    check(told(status, 'ps "ps-1" is gone; served from now on: '), f"no event tells of ps-1: {status['events']}")
    jobs, details = c.cairn("jobs").stdout, c.cairn("job", job).stdout
    c.running(job, "it was looked at")
    check("running, degraded" in jobs and "degraded since" in details, f"cairn jobs, cairn job: {jobs}{details}")
    c.restart("ps-1")
    c.while_running(job, lambda _: placement(c, job, "ps-1")[2] > 0, "ps-1 is in sync as a backup")
    c.while_running(
        job, lambda s: "degraded" not in s and told(s, "backups in sync again"), "the job is degraded no more"
    )


class Watched:
    """The output of `cairn watch --json` for a job until the end of the block: how often it waited, and the longest
    time without a step."""

    def __init__(self, c, job):
        self.reasons, self.longest, self.steps = set(), 0.0, 0
        argv = [os.path.join(BIN, "cairn"), "--coordinator", c.address, "--json", "watch", job]
        self.process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.thread = threading.Thread(target=self.read, daemon=True)

    def read(self):
        step, since = None, None
        for line in self.process.stdout:
            status, now = json.loads(line), time.monotonic()
            self.reasons.add(status["reason"])
            if int(status["step"]) != step:
                self.longest = max(self.longest, now - since if since else 0)
                step, since, self.steps = int(status["step"]), now, self.steps + 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, value, trace):
        self.process.kill()
        self.process.wait()
        self.thread.join()


def is_ready(c, name):
    address = next((n["address"].split(",")[0] for n in c.nodes() if n["name"] == name), "")
    return address != "" and c.cairn("health", "--ready", address, ok=False).returncode == 0


def all_restarted_by_readiness(c, job):
    with Watched(c, job) as watched:
        for name in ("ps-0", "ps-1") * 2:
            c.kill(name, signal.SIGTERM)
            c.restart(name)
            c.while_running(job, lambda _, name=name: is_ready(c, name), f"{name} is ready")
            lacking = [p for p in c.job(job)["partitions"] if not any(b["in_sync"] for b in p.get("backups", []))]
            check(not lacking, f"{name} is ready, and {len(lacking)} partitions have no backup in sync: {lacking[:2]}")
            what = f"both are ready, {name} is restarted"
            c.while_running(job, lambda _: is_ready(c, "ps-0") and is_ready(c, "ps-1"), what)
        goes_on(c, job)
    waited = [reason for reason in watched.reasons if "waits for ps" in reason]
    check(watched.steps > 4 and not waited, f"the job waited: {waited}")
    print(
        f"all ps restarted twice by readiness: no step came later than {watched.longest:.2f} s after the one before",
        flush=True,
    )


def primary_restarts_at_once(c, job):
    c.kill("ps-0")
    c.restart("ps-0")
    goes_on(c, job)


def both_killed(c, job):
    c.kill("ps-0", wait=False)
    c.kill("ps-1")
    c.while_running(
        job, lambda s: "ps-0" in s.get("reason", "") and "ps-1" in s["reason"], "the job says for which ps it waits", 30
    )
    check("restart" in c.job(job)["reason"], c.job(job)["reason"])
    c.restart("ps-1")
    c.restart("ps-0")


def run(disturb, epochs, settings):
    with Cluster(ps=2, workers=2) as c:
        data = make_glyphs(c.dir)
        # An ended job, whose copies are also lost and restored.
        c.wait(c.submit(small_job(c.dir, data, 1), SETTINGS))
        job = c.submit(small_job(c.dir, data, epochs), {**SETTINGS, **settings})
        c.wait_for_step(job, 20)
        wait_until_in_sync(c, job)
        disturb(c, job)
        status = c.wait(job)
        if "strategy" not in settings:
            want = undisturbed(epochs)
            check(
                status["digest"] == want,
                f"{disturb.__name__} {settings}: digest {status['digest']}, undisturbed {want}",
            )
        for epoch in status["epochs"]:
            check(
                int(epoch["train"]["examples"]) <= 1800,
                f"an epoch counted {epoch['train']['examples']} of 1800 examples",
            )
        accuracy = status["epochs"][-1]["train"]["accuracy"]
        check(accuracy > 0.8, f"{disturb.__name__} {settings}: training accuracy {accuracy}")
        print(f"{disturb.__name__} {settings}: ok", flush=True)


ASYNCHRONOUS = {"strategy": "PARAMETER_SERVER"}
CASES = (
    (primary_lost_for_good, {}),
    (primary_comes_back_as_a_backup, {}),
    (primary_restarts_at_once, {}),
    (both_killed, {}),
    (all_restarted_by_readiness, {}),
    (both_killed, {"durability": "LOGGED_AND_REPLICATED"}),
    (primary_lost_for_good, ASYNCHRONOUS),
    (primary_comes_back_as_a_backup, ASYNCHRONOUS),
    (both_killed, ASYNCHRONOUS),
)


def main():
    for disturb, settings in CASES:
        attempts(lambda times: run(disturb, EPOCHS * times, settings))


if __name__ == "__main__":
    main()
