"""Asynchronous and bounded-staleness jobs train, count every example once per epoch, and survive the loss of a worker
and a ps."""

from cluster import Cluster, attempts, check
from jobs import make_glyphs, small_job


EPOCHS = 8


def run(settings, disturb=None, epochs=EPOCHS):
    with Cluster(ps=2, workers=2) as c:
        data = make_glyphs(c.dir)
        job = c.submit(
            small_job(c.dir, data, epochs), {"strategy": "PARAMETER_SERVER", "partition_bytes": 4096, **settings}
        )
        if disturb:
            c.wait_for_step(job, 30)
            disturb(c)
        status = c.wait(job)
        check(len(status["epochs"]) == epochs, f"{len(status['epochs'])} epochs")
        if disturb is None:
            check(
                all(int(e["train"]["examples"]) == 1800 for e in status["epochs"]),
                f"each example once an epoch: {status['epochs']}",
            )
        result = c.evaluate(job)
        check(int(result["examples"]) == 400, f"{result}")
        check(result["accuracy"] >= 0.8, f"{settings}: accuracy {result['accuracy']}")
        # R replicas push each step once, and a partition's version counts the updates applied.
        check(
            int(result["version"]) == epochs * 30 * 4,
            f"updates applied: {result['version']}, pushed: {epochs * 30 * 4}",
        )
        print(settings, result, flush=True)


def kill_worker(c):
    c.kill("worker-0")


def restart_ps(c):
    c.kill("ps-0")
    c.restart("ps-0")


def main():
    run({})
    run({"staleness_bound": 1})
    for settings, disturb in (
        ({}, kill_worker),
        ({"backups": 0}, restart_ps),
        ({"staleness_bound": 2, "backups": 0}, restart_ps),
    ):
        attempts(lambda times: run(settings, disturb, EPOCHS * times))


if __name__ == "__main__":
    main()
