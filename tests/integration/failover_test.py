"""With backups a job survives kill -9 of a ps without its restart; the digest is that of the undisturbed run.

The primary's ps is killed for good; killed and started again (it comes back as a backup); both copies are killed (the job
waits, says for whom, and goes on when they are back); the same asynchronously, where every example is still counted once.
"""

from cluster import Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed

EPOCHS = 24
SETTINGS = {"partition_bytes": 4096, "backups": 1}


def placement(c, job, ps):
    """Partitions of which `ps` is the primary, a backup, and a backup in sync."""
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
    c.while_running(job, lambda _: placement(c, job, "ps-1")[:2] == (0, 0), "the dead ps has neither primaries nor backups")
    goes_on(c, job)


def primary_comes_back_as_a_backup(c, job):
    c.kill("ps-1")
    c.while_running(job, lambda _: placement(c, job, "ps-1")[0] == 0, "the dead ps has no primaries")
    c.restart("ps-1")
    c.while_running(job, lambda _: placement(c, job, "ps-1")[2] > 0, "ps-1 is in sync as a backup")


def primary_restarts_at_once(c, job):
    c.kill("ps-0")
    c.restart("ps-0")
    goes_on(c, job)


def both_killed(c, job):
    c.kill("ps-0", wait=False)
    c.kill("ps-1")
    c.while_running(job, lambda s: "ps-0" in s.get("reason", "") and "ps-1" in s["reason"],
                    "the job says for which ps it waits", 30)
    check("restart" in c.job(job)["reason"], c.job(job)["reason"])
    c.restart("ps-1")
    c.restart("ps-0")


def run(disturb, epochs, settings):
    with Cluster(ps=2, workers=2) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {**SETTINGS, **settings})
        c.wait_for_step(job, 20)
        wait_until_in_sync(c, job)
        disturb(c, job)
        status = c.wait(job)
        if "strategy" not in settings:
            want = undisturbed(epochs)
            check(status["digest"] == want, f"{disturb.__name__} {settings}: digest {status['digest']}, undisturbed {want}")
        for epoch in status["epochs"]:
            check(int(epoch["train"]["examples"]) <= 1800, f"an epoch counted {epoch['train']['examples']} of 1800 examples")
        accuracy = status["epochs"][-1]["train"]["accuracy"]
        check(accuracy > 0.8, f"{disturb.__name__} {settings}: training accuracy {accuracy}")
        print(f"{disturb.__name__} {settings}: ok", flush=True)


ASYNCHRONOUS = {"strategy": "PARAMETER_SERVER"}
CASES = (
    (primary_lost_for_good, {}), (primary_comes_back_as_a_backup, {}), (primary_restarts_at_once, {}), (both_killed, {}),
    (both_killed, {"durability": "LOGGED_AND_REPLICATED"}),
    (primary_lost_for_good, ASYNCHRONOUS), (primary_comes_back_as_a_backup, ASYNCHRONOUS), (both_killed, ASYNCHRONOUS),
)


def main():
    for disturb, settings in CASES:
        attempts(lambda times: run(disturb, EPOCHS * times, settings))


if __name__ == "__main__":
    main()
