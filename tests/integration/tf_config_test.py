"""`cairn run` in the processes of a TFJob: chief, ps, workers and an evaluator find each other by TF_CONFIG alone and
train a job; so do workers without ps (MultiWorkerMirroredStrategy's TF_CONFIG). A bad TF_CONFIG is rejected with its
field. SIGTERM ends all processes. With --job the chief submits the job, and every task ends with it and with its exit
code, even after a restart; a chief that was killed meanwhile finds its job again. Without TF_CONFIG, as in a TFJob of
one replica, the job has its own cluster."""

import json
import os
import signal
import subprocess
import tempfile
import time

from cluster import BIN, TooLate, attempts, check, free_port
from jobs import make_glyphs, small_job

CAIRN = os.path.join(BIN, "cairn")


class Tasks:
    """One `cairn run` for each task, as containers would be started."""

    def __init__(self, directory, cluster, extra=(), flags=()):
        self.directory = directory
        self.cluster = cluster
        self.flags = flags
        self.processes = {}
        tasks = [(kind, i) for kind, entries in cluster.items() for i in range(len(entries))] + list(extra)
        for kind, index in tasks:
            self.start(kind, index)
        head = cluster.get("chief", cluster["worker"])[0]
        self.env = {**os.environ, "CAIRN_COORDINATOR": head}

    def start(self, kind, index):
        config = {"cluster": self.cluster, "task": {"type": kind, "index": index}, "environment": "cloud"}
        env = {k: v for k, v in os.environ.items() if k != "CAIRN_COORDINATOR"}
        name = f"{kind}-{index}"
        with open(f"{self.directory}/{name}.log", "a") as log:
            self.processes[name] = subprocess.Popen(
                [CAIRN, "run", "--slots", "1", "--dir", f"{self.directory}/{name}", *self.flags],
                env={**env, "TF_CONFIG": json.dumps(config)},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            for name in self.processes:
                with open(f"{self.directory}/{name}.log") as f:
                    print(f"---- {name} ----\n{f.read()[-3000:]}", flush=True)
        self.stop()

    def stop(self):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for name, process in self.processes.items():
            try:
                process.wait(timeout=40)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"{name} did not stop")

    def cairn(self, *args, code=0):
        done = subprocess.run([CAIRN, *args], env=self.env, capture_output=True, text=True, timeout=600)
        check(done.returncode == code, f"{args}: exit {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def nodes(self):
        done = subprocess.run([CAIRN, "--json", "nodes"], env=self.env, capture_output=True, text=True, timeout=60)
        if done.returncode != 0:
            return {}
        return {n["name"]: n["role"] for n in json.loads(done.stdout)["nodes"] if n.get("alive")}

    def wait_for(self, nodes):
        end = time.monotonic() + 60
        while self.nodes() != nodes:
            check(time.monotonic() < end, f"nodes: {self.nodes()}, wanted {nodes}")
            for name, process in self.processes.items():
                check(process.poll() is None, f"{name} ended with {process.poll()}")
            time.sleep(0.1)


def addresses(count):
    return [f"127.0.0.1:{free_port()}" for _ in range(count)]


def train(tasks, directory, settings=()):
    job = small_job(directory, make_glyphs(directory))
    status = json.loads(tasks.cairn("--json", "submit", job, *settings).stdout)
    tasks.cairn("watch", str(status["job_id"]))
    return json.loads(tasks.cairn("--json", "job", str(status["job_id"])).stdout)


def ports_taken(function):
    """A free port may be taken by another process before it is used: retry with other ports."""
    for attempt in range(3):
        with tempfile.TemporaryDirectory(prefix="cairn-tf-") as directory:
            try:
                return function(directory)
            except Exception as error:
                taken = any(
                    "in use" in open(f"{directory}/{f}").read() for f in os.listdir(directory) if f.endswith(".log")
                )
                if not taken or attempt == 2:
                    raise
                print(f"again: {error}", flush=True)


def with_ps(directory):
    ports = addresses(5)
    cluster = {"chief": ports[:1], "worker": ports[1:3], "ps": ports[3:]}
    with Tasks(directory, cluster, extra=[("evaluator", 0)]) as tasks:
        tasks.wait_for(
            {
                "chief": "WORKER",
                "worker-0": "WORKER",
                "worker-1": "WORKER",
                "ps-0": "PS",
                "ps-1": "PS",
                "evaluator-0": "EVALUATOR",
            }
        )
        status = train(tasks, directory)
        check(status["state"] == "SUCCEEDED", status)
        placed = {p["primary"]: p["primary_address"].split(",")[0] for p in status["partitions"]}
        check(placed == {"ps-0": ports[3], "ps-1": ports[4]}, f"the addresses of TF_CONFIG: {placed}")
        for name in ("chief-0", "worker-0", "worker-1"):
            with open(f"{directory}/{name}.log") as f:
                check("of 4 replicas, generation" in f.read(), f"{name} computed nothing")
        return status["digest"]


def without_ps(directory):
    with Tasks(directory, {"worker": addresses(2)}) as tasks:
        nodes = {"worker-0": "WORKER", "worker-1": "WORKER", "ps-of-worker-0": "PS", "ps-of-worker-1": "PS"}
        tasks.wait_for(nodes)
        digest = train(tasks, directory)["digest"]
        # A container that dies is restarted and takes its place again.
        tasks.processes["worker-1"].send_signal(signal.SIGKILL)
        tasks.processes["worker-1"].wait()
        tasks.start("worker", 1)
        tasks.wait_for(nodes)
        return digest


def submits(directory, epochs):
    ports = addresses(3)
    cluster = {"chief": ports[:1], "worker": ports[1:2], "ps": ports[2:]}
    job = small_job(directory, make_glyphs(directory), epochs)
    with Tasks(directory, cluster, flags=["--job", job, "--set", "seed=9"]) as tasks:

        def step():
            done = subprocess.run(
                [CAIRN, "--json", "job", "small"], env=tasks.env, capture_output=True, text=True, timeout=60
            )
            return int(json.loads(done.stdout).get("step", 0)) if done.returncode == 0 else 0

        end = time.monotonic() + 60
        while step() < 5:
            if tasks.processes["chief-0"].poll() is not None:
                raise TooLate("the job ended before the chief was killed")
            check(time.monotonic() < end, "the chief submits its job")
            time.sleep(0.05)
        # As in Kubernetes: the container dies and is restarted.
        tasks.processes["chief-0"].send_signal(signal.SIGKILL)
        tasks.processes["chief-0"].wait()
        tasks.start("chief", 0)
        code = tasks.processes["chief-0"].wait(timeout=600)
        with open(f"{directory}/chief-0.log") as f:
            log = f.read()
        check(code == 0 and "the job ended: exit code 0" in log, f"exit {code}")
        check(log.count("job 1 ") >= 2 and "job 2 " not in log, "submitted once")
        ends_all(tasks, 0)
        with Tasks(
            directory, cluster, flags=["--job", job, "--set", "seed=9"]
        ) as again:  # the containers are restarted
            ends_all(again, 0)
    # A job that is rejected ends all tasks: each finds that by itself, or, if the data is the reason, when the
    # coordinator is gone and there is no job.
    for more in (["--set", "epochs=-1"], ["--set", "name="], ["--set", "data.path=/there/is/none"]):
        with Tasks(directory, {"worker": addresses(2)}, flags=["--job", job, "--set", "name=refused", *more]) as tasks:
            ends_all(tasks, 2)


def ends_all(tasks, code):
    """Every task ends by itself, with the job's exit code."""
    for name, process in tasks.processes.items():
        found = process.wait(timeout=180)
        check(found == code, f"{name}: exit {found}, wanted {code}")


def fails(directory):
    """A job that fails ends all tasks with its exit code. If restarted they end at once, with the same code."""
    cluster = {"worker": addresses(3)}
    job = small_job(directory, make_glyphs(directory), 4)
    flags = [
        "--job",
        job,
        "--set",
        "name=broken",
        "--set",
        "replicas=2",
        "--set",
        "optimizer={sgd {} learning_rate: 1e30}",
        "--set",
        "callbacks[..]={terminate_on_nan {}}",
    ]
    with Tasks(directory, cluster, flags=flags) as tasks:
        ends_all(tasks, 1)
    for name in tasks.processes:
        check(open(f"{directory}/{name}/broken.ended").read() == "1\n", name)
    with Tasks(directory, cluster, flags=flags) as tasks:
        ends_all(tasks, 1)
        with open(f"{directory}/worker-1.log") as f:
            check('job "broken" has already ended, with exit code 1' in f.read(), "it says why it ends at once")


def idle_workers(directory):
    job = small_job(directory, make_glyphs(directory), 2000)
    with Tasks(directory, {"worker": addresses(3)}, flags=["--job", job, "--set", "replicas=2"]) as tasks:
        end = time.monotonic() + 60
        warning = (
            "3 workers, but the job has 2 replicas, and each is computed by one worker: 1 of them are idle; "
            "set replicas: 3 in the job"
        )
        while warning not in open(f"{directory}/worker-0.log").read():
            check(time.monotonic() < end, "worker 0 warns")
            time.sleep(0.1)
        tasks.cairn("cancel", "small")
        ends_all(tasks, 1)


def alone(directory):
    """A TFJob of one replica gets no TF_CONFIG."""
    env = {k: v for k, v in os.environ.items() if k not in ("CAIRN_COORDINATOR", "TF_CONFIG")}
    job = small_job(directory, make_glyphs(directory), 2)
    command = [CAIRN, "run", "--slots", "1", "--dir", f"{directory}/data", "--job", job]
    for code, more in (
        (0, []),
        (
            1,
            [
                "--set",
                "name=broken",
                "--set",
                "optimizer={sgd {} learning_rate: 1e30}",
                "--set",
                "callbacks[..]={terminate_on_nan {}}",
            ],
        ),
        (2, ["--set", "name=refused", "--set", "epochs=-1"]),
    ):
        done = subprocess.run(command + more, env=env, capture_output=True, text=True, timeout=300)
        said = "epochs: -1 is not allowed" if code == 2 else "TF_CONFIG is not set: the job runs on its own cluster"
        check(
            done.returncode == code and said in done.stderr,
            f"exit {done.returncode}, wanted {code}: {done.stdout}{done.stderr}",
        )
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    check(done.returncode == 0 and "has already ended, with exit code 0" in done.stderr, f"again: {done.stderr}")


def refused():
    env = {k: v for k, v in os.environ.items() if k not in ("CAIRN_COORDINATOR", "TF_CONFIG")}
    for text, error in (
        (
            None,
            "TF_CONFIG: is not set; `cairn run` is for containers started by a TFJob, or by anything else that sets "
            "it; with --job it runs the job without one, too",
        ),
        (
            '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 3}}',
            "TF_CONFIG: task.index: 3, but cluster.worker has 2 entries",
        ),
    ):
        done = subprocess.run(
            [CAIRN, "run"],
            env={**env, **({"TF_CONFIG": text} if text else {})},
            capture_output=True,
            text=True,
            timeout=60,
        )
        check(done.returncode == 2 and done.stderr == f"cairn: {error}\n", f"exit {done.returncode}: {done.stderr}")


def main():
    refused()
    for case in (fails, idle_workers, alone):
        ports_taken(case)
    attempts(lambda times: ports_taken(lambda directory: submits(directory, 60 * times)))
    digests = {ports_taken(with_ps), ports_taken(without_ps)}
    print(digests)
    check(len(digests) == 1, f"digests differ: {digests}")


if __name__ == "__main__":
    main()
