"""A cluster of real daemons for tests: each is a child process of its own, on ports that the system chose.

    with Cluster(ps=2, workers=2) as c:
        job = c.submit("job.textproto", {"epochs": 2})
        c.kill("worker-1")                 # SIGKILL
        status = c.wait(job)
        c.restart("ps-0")                  # the same name and data directory

A disturbance must come while the job runs. Where the job may be over by then, `while_running` raises TooLate and `attempts` begins again:
no test depends on how fast this machine is.

Everything that was started is gone when the block ends. CAIRN_BIN names the folder of the programs.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

BIN = os.environ.get("CAIRN_BIN", os.path.join(os.path.dirname(__file__), "../../build/release/bin"))
SOURCE = os.environ.get("CAIRN_SOURCE", os.path.abspath(os.path.join(os.path.dirname(__file__), "../..")))
FINAL = ("SUCCEEDED", "FAILED", "CANCELLED")


class TestFailure(Exception):
    pass


class TooLate(Exception):
    """The job was over before what was to happen to it. Not a failure: begin again."""


def attempts(function, times=4):
    for left in reversed(range(times)):
        try:
            return function()
        except TooLate as late:
            check(left > 0, f"{times} times in turn: {late}")
            print(f"again: {late}", flush=True)


def check(condition, text):
    if not condition:
        raise TestFailure(text)


def data_dir():
    """The folder of real data sets, or None where there is none."""
    for path in (os.environ.get("CAIRN_DATA"), os.path.join(SOURCE, "../shared/data")):
        if path and os.path.isdir(path):
            return os.path.abspath(path)
    return None


class Cluster:
    def __init__(self, ps=2, workers=2, slots=1, coordinator_flags=(), ps_flags=(), worker_flags=(), log_level="info"):
        self.dir = tempfile.mkdtemp(prefix="cairn-")
        self.processes = {}  # name -> Popen
        self.commands = {}  # name -> argv
        self.ps = ps
        self.workers = workers
        self.slots = slots
        self.flags = {"coordinator": list(coordinator_flags), "ps": list(ps_flags), "worker": list(worker_flags)}
        self.log_level = log_level
        self.address = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind, value, trace):
        if kind is not None and not issubclass(kind, TooLate):
            self.print_logs()
        self.stop()

    # ---- processes ----

    def start(self):
        self.commands["coordinator"] = [
            "cairn-coordinator", "--listen", "127.0.0.1:0", "--data-dir", f"{self.dir}/coordinator",
            "--log-level", self.log_level] + self.flags["coordinator"]
        self.restart("coordinator")
        self.address = self.wait_for_log("coordinator", r"listening on (127\.0\.0\.1:\d+)").group(1)
        self.commands["coordinator"][2] = self.address  # the same port after a restart
        for i in range(self.ps):
            self.add_ps(f"ps-{i}")
        for i in range(self.workers):
            self.add_worker(f"worker-{i}")
        self.wait_for_nodes(self.ps + self.workers)

    def add_ps(self, name, *flags):
        self.commands[name] = ["cairn-ps", "--coordinator", self.address, "--listen", "127.0.0.1:0", "--name", name,
                               "--data-dir", f"{self.dir}/{name}", "--log-level", self.log_level] + self.flags["ps"] + list(flags)
        self.restart(name)

    def add_worker(self, name, *flags):
        self.commands[name] = ["cairn-worker", "--coordinator", self.address, "--name", name,
                               "--slots", str(self.slots), "--log-level", self.log_level] + self.flags["worker"] + list(flags)
        self.restart(name)

    def log_path(self, name):
        return f"{self.dir}/{name}.log"

    def log(self, name):
        with open(self.log_path(name), errors="replace") as f:
            return f.read()

    def restart(self, name):
        """Starts the daemon, or starts it again after it ended."""
        old = self.processes.get(name)
        check(old is None or old.poll() is not None, f"{name} is still running")
        argv = list(self.commands[name])
        argv[0] = os.path.join(BIN, argv[0])
        with open(self.log_path(name), "a") as log:
            self.processes[name] = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.dir)

    def kill(self, name, sig=signal.SIGKILL, wait=True):
        self.processes[name].send_signal(sig)
        if wait:
            self.processes[name].wait(timeout=60)

    def stop(self):
        order = [n for n in self.processes if n.startswith("worker")] + [n for n in self.processes if n.startswith("ps")]
        order += [n for n in self.processes if n not in order]
        for name in order:
            if self.processes[name].poll() is None:
                self.processes[name].send_signal(signal.SIGTERM)
        slow = []
        for name in order:
            try:
                self.processes[name].wait(timeout=20)
            except subprocess.TimeoutExpired:
                slow.append(name)
                self.processes[name].kill()
                self.processes[name].wait()
        shutil.rmtree(self.dir, ignore_errors=True)
        check(not slow, f"did not stop within 20 s of SIGTERM: {slow}")

    def print_logs(self):
        for name in self.processes:
            print(f"---- {name} ----\n{self.log(name)[-6000:]}", flush=True)

    # ---- waiting for conditions, never for time ----

    def until(self, condition, what, timeout=60):
        end = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            check(time.monotonic() < end, f"not within {timeout} s: {what}")
            time.sleep(0.02)

    def wait_for_log(self, name, pattern, timeout=60):
        def look():
            check(self.processes[name].poll() is None, f"{name} ended with {self.processes[name].poll()}:\n{self.log(name)}")
            return re.search(pattern, self.log(name))
        return self.until(look, f"{name} logs {pattern!r}", timeout)

    def wait_for_nodes(self, count, timeout=60):
        self.until(lambda: sum(1 for n in self.nodes() if n.get("alive")) >= count, f"{count} live nodes", timeout)

    # ---- the command line ----

    def cairn(self, *args, ok=True, timeout=600, as_json=False):
        argv = [os.path.join(BIN, "cairn"), "--coordinator", self.address] + (["--json"] if as_json else []) + list(args)
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, cwd=self.dir)
        if ok:
            check(done.returncode == 0, f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def nodes(self):
        done = self.cairn("nodes", ok=False, as_json=True)
        return json.loads(done.stdout).get("nodes", []) if done.returncode == 0 else []

    def submit(self, job_file, settings=None):
        sets = []
        for key, value in (settings or {}).items():
            sets += ["--set", f"{key}={value}"]
        return str(json.loads(self.cairn("submit", job_file, *sets, as_json=True).stdout)["job_id"])

    def job(self, job_id):
        return json.loads(self.cairn("job", job_id, as_json=True).stdout)

    def while_running(self, job_id, condition, what, timeout=120):
        """Until condition(status of the job) holds. TooLate where the job ends first."""
        def look():
            status = self.job(job_id)
            if status["state"] == "SUCCEEDED":
                raise TooLate(f"job {job_id} ended before {what}")
            check(status["state"] not in FINAL, f"job {job_id} ended before {what}: {status['state']} {status.get('reason', '')}")
            return condition(status)
        return self.until(look, what, timeout)

    def wait_for_step(self, job_id, step, timeout=120):
        self.while_running(job_id, lambda status: int(status["step"]) >= step, f"step {step}", timeout)

    def wait(self, job_id, timeout=600, state="SUCCEEDED"):
        """Until the job has ended. Watches instead of asking, so that nothing competes with what is measured."""
        end = time.monotonic() + timeout
        while True:
            self.cairn("watch", job_id, ok=False, timeout=max(1, end - time.monotonic()))
            done = self.cairn("job", job_id, ok=False, as_json=True)
            status = json.loads(done.stdout) if done.returncode == 0 else {"state": "?"}  # the coordinator may be away
            if status["state"] in FINAL:
                break
            check(time.monotonic() < end, f"job {job_id} has not ended within {timeout} s: {status}")
        check(status["state"] == state, f"job {job_id}: {status['state']}, wanted {state}: {status.get('reason', '')}")
        return status

    def evaluate(self, job_id, split="test"):
        return json.loads(self.cairn("evaluate", job_id, "--split", split, as_json=True).stdout)
