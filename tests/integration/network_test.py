"""Goal: a network that is cut or slow only between a primary and the coordinator, only between a primary and the
workers, or only between two ps.

The job continues, at the latest when the link is healed. Its digest is that of the undisturbed run, and each partition
is served by only one ps. A peer that stops reading does not make any ps grow.
"""

import concurrent.futures
import os
import queue
import sys
import time

from cluster import SOURCE, Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed
from proxy import Proxy, listening_port

sys.path.insert(0, os.path.join(SOURCE, "tests/chaos"))
import wire  # noqa: E402

EPOCHS = 20


class Network:
    """A cluster of 2 ps and 2 workers in which all traffic of ps-0 passes through a proxy."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.to_coordinator = Proxy(lambda: int(cluster.address.split(":")[-1]))
        self.to_ps = Proxy(lambda: listening_port(cluster.processes["ps-0"].pid))
        cluster.add_ps(
            "ps-0", "--advertise", self.to_ps.address, "--unix-socket", "none", coordinator=self.to_coordinator.address
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.to_coordinator.close()
        self.to_ps.close()

    def workers(self):
        return {process.pid for name, process in self.cluster.processes.items() if name.startswith("worker")}


def alive(c, name):
    return next((n["alive"] for n in c.nodes() if n["name"] == name), False)


def coordinator_cut(c, net, job, *directions):
    net.to_coordinator.cut(*directions)
    c.until(lambda: not alive(c, "ps-0"), "the coordinator sees that ps-0 is lost")
    wait_for_what_follows(c, job, "ps-0")
    net.to_coordinator.heal()
    c.until(lambda: alive(c, "ps-0"), "ps-0 is back")


def coordinator_cut_both_ways(c, net, job):
    coordinator_cut(c, net, job, "up", "down")


def coordinator_hears_nothing(c, net, job):
    coordinator_cut(c, net, job, "up")


def primary_hears_nothing(c, net, job):
    coordinator_cut(c, net, job, "down")


def wait_for_what_follows(c, job, ps):
    """With backups the job continues without the ps; otherwise its reason names the ps."""
    if not backed_up(c.job(job)):
        c.while_running(job, lambda status: ps in status["reason"], f"the job says that it waits for {ps}")
        return
    status = c.while_running(
        job, lambda s: all(p["primary"] != ps for p in s["partitions"]) and s, f"{ps} is not a primary any more"
    )
    c.while_running(job, lambda s: int(s["step"]) > int(status["step"]), "a step on the new primaries")


def backed_up(status):
    return int(status["spec"].get("backups", 0)) > 0


def workers_cut(c, net, job, *directions):
    net.to_ps.cut(*directions, whose=net.workers())
    step = int(c.job(job)["step"])
    # A step needs all partitions, so the job pauses (a few steps may have been in flight); it does not fail.
    c.wait_until_it_stands_still(job)
    check(int(c.job(job)["step"]) >= step, "the step fell")
    net.to_ps.heal()


def workers_cut_both_ways(c, net, job):
    """Lasts long enough that the job says why it makes no progress."""
    net.to_ps.cut("up", "down", whose=net.workers())
    c.while_running(
        job,
        lambda status: "ps-0" in status["reason"] or "no step" in status["reason"],
        "the job says why it stands still",
        timeout=60,
    )
    net.to_ps.heal()


def workers_hear_nothing(c, net, job):
    workers_cut(c, net, job, "down")


def primary_hears_no_worker(c, net, job):
    workers_cut(c, net, job, "up")


def slow(c, net, job):
    net.to_ps.delay(0.05)
    step = int(c.job(job)["step"])
    c.while_running(job, lambda status: int(status["step"]) > step + 10, "ten steps over a slow link")
    net.to_ps.heal()


def served_by(job_id, partition, addresses):
    found = []
    for name, address in addresses.items():
        channel = wire.open_channel(address)
        try:
            wire.pull(channel, job_id, partition)
            found.append(name)
        except RuntimeError:  # the answer is a rejection
            pass
        finally:
            channel.close()
    return found


def check_case(happens, backups, epochs):
    with Cluster(ps=0, workers=2) as c, Network(c) as net:
        c.add_ps("ps-1", "--unix-socket", "none")
        c.wait_for_nodes(4)
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"partition_bytes": 4096, "backups": backups})
        c.wait_for_step(job, epochs * 30 // 6)
        happens(c, net, job)
        status = c.wait(job)
        check(
            status["digest"] == undisturbed(epochs),
            f"{happens.__name__}: digest {status['digest']}, undisturbed {undisturbed(epochs)}",
        )
        addresses = {n["name"]: n["address"] for n in c.nodes() if n["role"] == "PS"}
        for p in status["partitions"]:
            serving = served_by(int(status["job_id"]), p["partition"], addresses)
            check(
                serving == [p["primary"]],
                f"{happens.__name__}: partition {p['partition']} is served by {serving}, primary {p['primary']}",
            )
        print(f"{happens.__name__}, {backups} backups: same digest, one primary", flush=True)


def in_sync(status):
    return all(len(p.get("backups", [])) == 1 and p["backups"][0].get("in_sync", False) for p in status["partitions"])


def check_link_cut(epochs):
    """Two ps, each the backup of the other, are connected to the coordinator and the workers, but not to each other.
    Each continues with its own partitions, with at most one new generation each, and the job says why. When the link is
    healed they have copies in sync again. No node may be lost, even on a busy machine."""
    with Cluster(ps=0, workers=2, coordinator_flags=("--lease-ms", "15000")) as c:
        names = ("ps-0", "ps-1")
        proxies = [Proxy(lambda name=name: listening_port(c.processes[name].pid)) for name in names]
        try:
            for name, proxy in zip(names, proxies):
                c.add_ps(name, "--advertise", proxy.address, "--unix-socket", "none")
            c.wait_for_nodes(4)
            job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"partition_bytes": 4096, "backups": 1})
            before = c.while_running(
                job, lambda s: int(s["step"]) >= epochs * 30 // 6 and in_sync(s) and s, "copies in sync"
            )
            for proxy in proxies:
                proxy.cut("up", "down", whose={c.processes[name].pid for name in names})
            began = time.monotonic()
            c.while_running(job, lambda s: "cannot reach ps" in s["reason"], "the job says which ps cannot reach which")
            step = int(c.job(job)["step"])
            after = c.while_running(job, lambda s: int(s["step"]) > step + 10 and s, "ten steps without the link")
            seconds = time.monotonic() - began
            check(all(alive(c, name) for name in names), "both are alive")
            check(
                [p["primary"] for p in after["partitions"]] == [p["primary"] for p in before["partitions"]],
                "a primary changed",
            )
            status = c.wait(job)
            check(
                status["digest"] == undisturbed(epochs), f"digest {status['digest']}, undisturbed {undisturbed(epochs)}"
            )
            check(
                int(status["generation"])
                <= int(before["generation"]) + 3,  # two for the cut, one for the end of the job
                f"generation {before['generation']} before, {status['generation']} in the end",
            )
            addresses = {n["name"]: n["address"] for n in c.nodes() if n["role"] == "PS"}
            for p in status["partitions"]:
                serving = served_by(int(status["job_id"]), p["partition"], addresses)
                check(
                    serving == [p["primary"]],
                    f"partition {p['partition']} is served by {serving}, primary {p['primary']}",
                )
            for proxy in proxies:
                proxy.heal()
            c.until(lambda: in_sync(c.job(job)), "copies in sync after the link is healed", timeout=120)
            print(f"link between two ps cut: went on within {seconds:.1f} s, same digest, in sync again", flush=True)
        finally:
            for proxy in proxies:
                proxy.close()


# ---- a reader that stops ----

LARGE = {"partition_bytes": 4 << 20, "epochs": 10000, "replicas": 1, "backups": 0}
MLP = """
name: "large"
model {
  layers { input { shape: [28, 28, 1] } }
  layers { flatten { } }
  layers { dense { units: 8192 activation: RELU } }
  layers { dense { units: 10 activation: SOFTMAX } }
}
data { path: "%s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { sgd { } }
batch_size: 32
"""
READERS = 3
QUEUE = 64 << 20  # common/base/limits.h: the limit of queued output of one stream
SLACK = 48 << 20  # memory of gRPC for a stream, and of the allocator


def resident(process):
    with open(f"/proc/{process.pid}/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmRSS"))


def check_stopped_readers():
    """While training continues, so that every version is in another buffer, three clients request 8 GB each and read
    nothing. Each may fill its queue, no more, and other clients are served."""
    with Cluster(ps=1, workers=1) as c:
        path = f"{c.dir}/large.textproto"
        with open(path, "w") as f:
            f.write(MLP % make_glyphs(c.dir))
        job = c.submit(path, LARGE)
        c.wait_for_step(job, 20)
        status = c.job(job)
        before = resident(c.processes["ps-0"])
        streams = []
        for _ in range(READERS):
            channel = wire.open_channel(status["partitions"][0]["primary_address"])
            requests = queue.Queue()
            streams.append((channel, requests, wire.exchange(channel, iter(requests.get, None))))
            for i in range(2000):
                requests.put(
                    wire.Frame(
                        kind=wire.Frame.PULL,
                        request_id=i + 1,
                        job_id=int(job),
                        partition=0,
                        reply_dtype=wire.types_pb2.FLOAT32,
                    )
                )
        bound = READERS * (QUEUE + SLACK)
        step, seen = int(c.job(job)["step"]), []

        def look(status):
            seen.append(resident(c.processes["ps-0"]) - before)
            return int(status["step"]) >= step + 150

        c.while_running(job, look, "150 steps beside the stopped readers")
        check(max(seen) < bound, f"the ps grew by {max(seen) >> 20} MiB, {bound >> 20} allowed: {seen}")
        for channel, requests, call in streams:
            call.cancel()
            requests.put(None)
            channel.close()
        step = int(c.job(job)["step"])
        c.wait_for_step(job, step + 20)
        c.cairn("cancel", job)
        print(f"{READERS} readers stopped: the ps grew by {max(seen) >> 20} MiB, {bound >> 20} allowed", flush=True)


CASES = (  # what happens, number of backups
    (coordinator_cut_both_ways, 0),
    (coordinator_cut_both_ways, 1),
    (coordinator_hears_nothing, 1),
    (primary_hears_nothing, 1),
    (workers_cut_both_ways, 0),
    (workers_cut_both_ways, 1),
    (workers_hear_nothing, 1),
    (primary_hears_no_worker, 1),
    (slow, 1),
)


def main():
    check_stopped_readers()
    undisturbed(EPOCHS)  # before there are threads that need it
    # They spend most of their time waiting for a lease or for a broken link.
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        cases = [pool.submit(attempts, lambda times: check_link_cut(EPOCHS * times))]
        cases += [
            pool.submit(attempts, lambda times, h=happens, b=backups: check_case(h, b, EPOCHS * times))
            for happens, backups in CASES
        ]
        for case in cases:
            case.result()


if __name__ == "__main__":
    main()
