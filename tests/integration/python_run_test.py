"""Goal: a script with cairn.torch.Run survives kill -9 of anything, in processes beside real daemons.

- LeNet with batch normalization, dropout and a sampler, four replicas: one, two and four processes end with the same
  digest; each example counts once an epoch.
- So do two processes while one of them is killed twice and started again, then the ps with primaries, then the
  coordinator, and that process again before the coordinator is back. Every process ends by itself, with the run's
  weights.
- The process that is killed has other starting weights each time: it warns, and changes nothing.
"""

import os
import sys

from cluster import BIN, Cluster, attempts, check

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE = os.path.abspath(os.path.join(BIN, "../python"))
os.environ["PYTHONPATH"] = os.pathsep.join([MODULE, HERE])

try:
    import torch  # noqa: F401
except ImportError as lacks:
    print(f"skipped: {lacks} (Debian: apt-get install python3-torch)")
    sys.exit(77)

SCRIPT = [sys.executable, os.path.join(HERE, "run_worker.py")]
EXAMPLES = 640


def begin(c, run, processes, epochs, drawn=()):
    for i in range(processes):
        name = f"{run}-{i}"
        c.commands[name] = [*SCRIPT, c.address, run, str(epochs), *(["drawn"] if i in drawn else [])]
        c.restart(name)
        if i == 0:  # it submits
            c.until(lambda: submitted(c, run), f"run {run} is submitted", 300)
    return str(submitted(c, run)["job_id"])


def submitted(c, run):
    done = c.cairn("jobs", ok=False, as_json=True)
    check(done.returncode == 0, done.stderr)
    return c.try_job(run) if f'"{run}"' in done.stdout else None


def end(c, run, job, processes):
    """The job's digest, after all its processes have ended."""
    status = c.wait(job, timeout=1200)
    for i in range(processes):
        name = f"{run}-{i}"
        c.until(lambda: c.processes[name].poll() is not None, f"{name} ends", 300)
        check(c.processes[name].returncode == 0, f"{name}: exit {c.processes[name].returncode}\n{c.log(name)}")
        check(f"trained: {status['digest']}" in c.log(name), c.log(name))
    for epoch in status["epochs"]:
        check(int(epoch["train"]["examples"]) == EXAMPLES, f"examples of an epoch: {epoch['train']}")
    return status["digest"]


def primaries(c, job, ps):
    return sum(p["primary"] == ps for p in c.job(job)["partitions"])


def disturb(c, job):
    """Two kills of a process, one of a ps that has primaries, one of the coordinator with the process started anew."""
    for _ in range(2):
        c.while_running(job, lambda s: len({r.get("worker") for r in s["replicas"]} - {None, ""}) == 2, "both compute")
        goes_on(c, job)
        c.kill("killed-1")
        c.restart("killed-1")
        print(f"a process was killed after step {c.job(job)['step']}", flush=True)
    goes_on(c, job)
    c.while_running(job, lambda _: primaries(c, job, "ps-0") > 0, "ps-0 has primaries")
    c.kill("ps-0")
    c.while_running(job, lambda _: primaries(c, job, "ps-0") == 0, "another ps has taken over")
    c.restart("ps-0")
    goes_on(c, job)
    print("a ps was killed", flush=True)
    c.kill("killed-1")
    begin = os.environ["RUN_WORKER_BEGINS"] = f"{c.dir}/begin"
    c.restart("killed-1")
    c.until(lambda: "waits to begin" in c.log("killed-1"), "the process has loaded what it needs", 300)
    c.kill("coordinator")  # not for long: the other process gives up after a minute
    open(begin, "w").close()
    c.until(lambda: "it is asked again" in c.log("killed-1"), "the process finds the coordinator away")
    c.restart("coordinator")
    goes_on(c, job)
    print("the coordinator was killed", flush=True)


def goes_on(c, job):
    c.wait_for_step(job, int(c.job(job)["step"]) + 5)


def check_runs(times):
    epochs = 24 * times
    with Cluster(ps=2, workers=0) as c:
        alone = end(c, "alone", begin(c, "alone", 1, epochs), 1)
        print("one process", alone, flush=True)
        job = begin(c, "four", 4, epochs)
        check(end(c, "four", job, 4) == alone, "four processes: another digest")
        job = begin(c, "killed", 2, epochs, drawn=(1,))
        disturb(c, job)
        check(end(c, "killed", job, 2) == alone, "with kills: another digest")
        check("its starting weights are not those that job" in c.log("killed-1"), c.log("killed-1"))


def main():
    attempts(check_runs)


if __name__ == "__main__":
    main()
    print("ok")
