"""Chaos with an oracle that counts: the values contain each acknowledged push exactly once, whichever daemon was killed
or stopped.

    counting_chaos.py [--seconds N] [--seed S] [--backups B] [--durability D] [--coordinators C] [--away A]
                      [--keep-logs DIR]
    counting_chaos.py --plant drop|double
        without faults; one push is dropped, or applied twice, and the oracle must notice

REPLICATED without a log promises to survive the loss of one daemon at a time. In that mode the next fault waits until
all copies are in sync.

The worker is that of counting_worker.py and is not hit; 3 ps and the coordinators are. When the time is up the faults
stop, the last pushes are answered, and the values of each partition must follow from the acknowledged sequence numbers.
"""

import argparse
import array
import os
import random
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "../integration"))

from chaos import cluster_arguments  # noqa: E402
from cluster import Cluster, TestFailure, check, skip_without_etcd  # noqa: E402
from counting_worker import JOB, PLANTED, REPLICAS, CountingWorker  # noqa: E402
from faults import Faults  # noqa: E402
from wire import open_channel, pull  # noqa: E402


def check_counts(worker, job_id):
    for partition, route in sorted(worker.routes.items()):
        channel = open_channel(route.address)
        answers = [pull(channel, job_id, partition, replica) for replica in range(REPLICAS)]
        channel.close()
        acked = [worker.acked[partition, r] for r in range(REPLICAS)]
        check(
            [a[1] for a in answers] == acked,
            f"partition {partition}: last sequence numbers {[a[1] for a in answers]}, acknowledged {acked}",
        )
        check(answers[0][0] == sum(acked), f"partition {partition}: {answers[0][0]} updates, {sum(acked)} acknowledged")
        values, wanted = array.array("f", answers[0][2]).tolist(), worker.wanted(partition)
        wrong = [(i, v, w) for i, (v, w) in enumerate(zip(values, wanted)) if v != w]
        check(not wrong and len(values) == len(wanted), f"partition {partition}: (place, value, wanted) {wrong[:10]}")


def in_sync(c, job):
    """Whether every copy has every acknowledged update, so that any one daemon may die."""
    status = c.try_job(job)
    return status is not None and all(
        len(p["backups"]) == int(status["spec"]["backups"]) and all(b["in_sync"] for b in p["backups"])
        for p in status["partitions"]
    )


def check_planted(c, worker, job_id):
    c.until(lambda: all(n > 2 * PLANTED[2] for n in list(worker.acked.values())), "every replica has pushed some times")
    worker.stop_pushing()
    check(not worker.violations, "\n".join(worker.violations[:10]))
    try:
        check_counts(worker, job_id)
    except TestFailure as error:
        check("(place, value, wanted)" in str(error), f"the oracle sees something else: {error}")
        print(f"planted, and seen: {error}", flush=True)
        return
    raise TestFailure(f"one push was planted ({worker.plant}), and the oracle did not see it")


def run(options):
    with Cluster(ps=3, workers=0, **cluster_arguments(options.coordinators)) as c:
        worker = CountingWorker(c.address.split(","), options.seed, options.plant)
        try:
            path = f"{c.dir}/counting.textproto"
            with open(path, "w") as f:
                f.write(
                    JOB
                    % (
                        f"backups: {options.backups}"
                        + (f" durability: {options.durability}" if options.durability else "")
                    )
                )
            c.wait_for_nodes(4)
            job = c.submit(path)
            c.until(
                lambda: worker.acked and min(worker.acked.values()) > 0, "every replica has pushed to every partition"
            )
            if options.plant:
                return check_planted(c, worker, int(job))
            victims = [n for n in c.processes if not n.startswith("etcd")]
            ready = (lambda: in_sync(c, job)) if options.durability == "REPLICATED" else None
            with Faults(c, victims, options.seed, away=(0.0, options.away), ready=ready) as faults:
                while faults.age() < options.seconds and not worker.violations:
                    faults.check()
                    faults.ending.wait(0.2)
            before = dict(worker.acked)
            c.until(
                lambda: all(worker.acked[k] > before[k] for k in before) or worker.violations,
                "pushes go on after the faults",
                120,
            )
            worker.stop_pushing()
            check(not worker.violations, "\n".join(worker.violations[:10]))
            check_counts(worker, int(job))
        finally:
            worker.close()
            if options.keep_logs:
                os.makedirs(options.keep_logs, exist_ok=True)
                for name in c.processes:
                    shutil.copy(c.log_path(name), options.keep_logs)
    print(
        f"{sum(worker.acked.values())} acknowledged pushes to {len(worker.routes)} partitions, each applied once; "
        f"{faults.count('kill -9')} x kill -9, {faults.count('SIGSTOP')} x SIGSTOP, seed {options.seed}",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9))
    parser.add_argument("--backups", type=int, default=0)
    parser.add_argument("--durability", default="")
    parser.add_argument("--coordinators", type=int, default=1)
    parser.add_argument("--away", type=float, default=1.0, help="seconds that a killed daemon stays away, at most")
    parser.add_argument("--plant", choices=["", "drop", "double"], default="")
    parser.add_argument("--keep-logs", default="", help="directory for the daemons' logs")
    options = parser.parse_args()
    if options.coordinators > 1:
        skip_without_etcd()
    print(f"seed {options.seed}", flush=True)
    run(options)


if __name__ == "__main__":
    main()
