"""A cluster of real daemons for tests: each is a separate child process, on ports chosen by the system.

    with Cluster(ps=2, workers=2) as c:
        job = c.submit("job.textproto", {"epochs": 2})
        c.kill("worker-1")                 # SIGKILL
        status = c.wait(job)
        c.restart("ps-0")                  # the same name and data directory

With etcd=True the coordinators' state is in a separate etcd ("etcd"), and there are several coordinators
("coordinator-0", ...):

    with Cluster(coordinators=2, etcd=True) as c:                  # first: skip_without_etcd()
        leader = c.leader()
        c.kill(leader)
        c.wait_for_leader(other_than=leader)
With etcd_members=3 the etcd has that many members ("etcd-0", ...).

A disturbance must happen while the job runs. If the job may be over by then, `while_running` raises TooLate and
`attempts` retries with a longer job, so that no test depends on the machine's speed. `undisturbed` (jobs.py) returns
the expected digest of a job of that length.

    def check_kill(times):
        epochs = EPOCHS * times
        with Cluster() as c:
            job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs))
            c.wait_for_step(job, 10)
            c.kill("worker-1")
            check(c.wait(job)["digest"] == undisturbed(epochs), "another digest")

    attempts(check_kill)

All processes are gone when the block ends. CAIRN_BIN is the folder of the programs.
"""

import base64
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from command_lines import EtcdAddresses, flags, free_port  # noqa: F401, free_port for tests

os.environ.setdefault("CAIRN_ROOT", "/")  # other folders: security_test.py
BIN = os.environ.get("CAIRN_BIN", os.path.join(os.path.dirname(__file__), "../../build/release/bin"))
SOURCE = os.environ.get("CAIRN_SOURCE", os.path.abspath(os.path.join(os.path.dirname(__file__), "../..")))
FINAL = ("SUCCEEDED", "ENDED_WITH_ERRORS", "FAILED", "CANCELLED")


class TestFailure(Exception):
    pass


class TooLate(Exception):
    """The job was over before the disturbance. This is not a failure: retry with a longer job."""


LENGTHS = (1, 2, 4, 8, 16)


def attempts(function):
    """Returns the result of function(times) for the first of LENGTHS that is long enough. `times`: how much longer its
    job must be than the first one."""
    for times in LENGTHS:
        try:
            return function(times)
        except TooLate as late:
            check(times != LENGTHS[-1], f"even {times} times as long: {late}")
            print(f"again, longer than {times} x: {late}", flush=True)


def check(condition, text):
    if not condition:
        raise TestFailure(text)


def data_dir():
    """The folder of real data sets, or None if there is none."""
    for path in (os.environ.get("CAIRN_DATA"), os.path.join(SOURCE, "../shared/data")):
        if path and os.path.isdir(path):
            return os.path.abspath(path)
    return None


def skip_without_etcd():
    if shutil.which("etcd") is None:
        print("skipped: there is no etcd on this machine (Debian: apt-get install etcd-server)", flush=True)
        sys.exit(77)


class Cluster:
    def __init__(
        self,
        ps=2,
        workers=2,
        slots=1,
        coordinators=1,
        etcd=False,
        etcd_members=1,
        coordinator_flags=(),
        ps_flags=(),
        worker_flags=(),
        log_level="info",
    ):
        check(etcd or coordinators == 1, "several coordinators need etcd=True")
        self.dir = tempfile.mkdtemp(prefix="cairn-")
        self.processes = {}  # name -> Popen
        self.commands = {}  # name -> argv
        self.prefix = {}  # name -> argv of a program that starts the daemon; the daemon's command follows it
        self.prepare = {}  # name -> function to call in the child process before the daemon starts
        self.ps = ps
        self.workers = workers
        self.slots = slots
        self.flags = {"coordinator": list(coordinator_flags), "ps": list(ps_flags), "worker": list(worker_flags)}
        self.log_level = log_level
        self.address = None  # that of the coordinators, separated by commas
        self.etcd_address = None
        self.with_etcd = etcd
        self.etcd_names = ["etcd"] if etcd_members == 1 else [f"etcd-{i}" for i in range(etcd_members)]
        self.coordinators = [f"coordinator-{i}" for i in range(coordinators)] if etcd else ["coordinator"]

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
        if self.with_etcd:
            self.start_etcd()
        addresses = []
        for name in self.coordinators:
            state = {"data_dir": f"{self.dir}/coordinator"}
            if self.with_etcd:
                state = {"state": f"etcd://{self.etcd_dialed}/test", "name": name}
            self.commands[name] = [
                "cairn-coordinator",
                *flags(listen="127.0.0.1:0", **state, log_level=self.log_level),
                *self.flags["coordinator"],
            ]
            self.restart(name)
            addresses.append(self.wait_for_log(name, r"listening on (127\.0\.0\.1:\d+)").group(1))
            self.commands[name][2] = addresses[-1]  # the same port after a restart
        self.address = ",".join(addresses)
        for i in range(self.ps):
            self.add_ps(f"ps-{i}")
        for i in range(self.workers):
            self.add_worker(f"worker-{i}")
        self.wait_for_nodes(self.ps + self.workers)

    def start_etcd(self):
        """Starts an etcd. Its ports are free when it starts; if another process takes one first, it is restarted."""
        for _ in range(5):
            at = EtcdAddresses(self.etcd_names)
            for name in self.etcd_names:
                self.commands[name] = at.command(name, self.dir)
                self.restart(name)
            self.etcd_address, self.etcd_dialed = ",".join(at.clients.values()), ",".join(at.dialed.values())

            def ready():
                if any(self.processes[name].poll() is not None for name in self.etcd_names):
                    return "ended"
                return all(self.etcd_healthy(name) for name in self.etcd_names) and "ready"

            if self.until(ready, "etcd is ready") == "ready":
                return
            for name in self.etcd_names:
                if self.processes[name].poll() is None:
                    self.kill(name)
                shutil.rmtree(f"{self.dir}/{name}", ignore_errors=True)
        check(False, f"etcd does not start:\n{self.log(self.etcd_names[0])}")

    def etcd_healthy(self, name):
        address = self.etcd_address.split(",")[self.etcd_names.index(name)]
        try:
            with urllib.request.urlopen(f"http://{address}/health", timeout=5) as answer:
                return json.load(answer).get("health") == "true"
        except OSError:
            return False

    def leader(self):
        """The coordinator that leads according to etcd, or None."""
        if not self.with_etcd:
            return "coordinator"
        body = json.dumps({"key": base64.b64encode(b"test/leader").decode()}).encode()
        members = zip(self.etcd_names, self.etcd_address.split(","))
        up = [address for name, address in members if self.processes[name].poll() is None]
        with urllib.request.urlopen(f"http://{up[0]}/v3/kv/range", data=body, timeout=10) as answer:
            kvs = json.load(answer).get("kvs", [])
        if not kvs:
            return None
        return re.search(rb"coordinator-\d+", base64.b64decode(kvs[0]["value"])).group().decode()

    def wait_for_leader(self, other_than=None, timeout=120):
        return self.until(
            lambda: (name := self.leader()) is not None and name != other_than and name, "a coordinator leads", timeout
        )

    def add_ps(self, name, *more, coordinator=None):
        where = flags(coordinator=coordinator or self.address, listen="127.0.0.1:0", data_dir=f"{self.dir}/{name}")
        itself = flags(name=name, log_level=self.log_level)
        self.commands[name] = ["cairn-ps", *where, *itself, *self.flags["ps"], *more]
        self.restart(name)

    def add_worker(self, name, *more):
        itself = flags(coordinator=self.address, name=name, slots=self.slots, log_level=self.log_level)
        self.commands[name] = ["cairn-worker", *itself, *self.flags["worker"], *more]
        self.restart(name)

    def log_path(self, name):
        return f"{self.dir}/{name}.log"

    def log(self, name):
        with open(self.log_path(name), errors="replace") as f:
            return f.read()

    def restart(self, name):
        """Starts the daemon, or restarts it after it ended."""
        old = self.processes.get(name)
        check(old is None or old.poll() is not None, f"{name} is still running")
        argv = list(self.commands[name])
        argv[0] = os.path.abspath(os.path.join(BIN, argv[0]))
        with open(self.log_path(name), "a") as log:
            self.processes[name] = subprocess.Popen(
                self.prefix.get(name, []) + argv,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.dir,
                preexec_fn=self.prepare.get(name),
            )

    def kill(self, name, sig=signal.SIGKILL, wait=True):
        self.processes[name].send_signal(sig)
        if wait:
            self.processes[name].wait(timeout=60)

    def stop(self):
        order = [n for kind in ("worker", "ps") for n in self.processes if n.startswith(kind)]
        order += [n for n in self.processes if n not in order]
        for name in order:
            if self.processes[name].poll() is None:
                self.processes[name].send_signal(signal.SIGTERM)
        slow = []
        for name in order:
            try:
                self.processes[name].wait(timeout=60)
            except subprocess.TimeoutExpired:
                slow.append(name)
                self.processes[name].kill()
                self.processes[name].wait()
        shutil.rmtree(self.dir, ignore_errors=True)
        check(not slow, f"did not stop within 60 s of SIGTERM: {slow}")

    def print_logs(self):
        for name in self.processes:
            print(f"---- {name} ----\n{self.log(name)[-6000:]}", flush=True)

    # ---- waiting for conditions, never for time ----

    def until(self, condition, what, timeout=120):
        end = time.monotonic() + timeout
        while True:
            value = condition()
            if value:
                return value
            check(time.monotonic() < end, f"not within {timeout} s: {what}")
            time.sleep(0.05)

    def wait_for_log(self, name, pattern, timeout=120):
        def look():
            code = self.processes[name].poll()
            check(code is None, f"{name} ended with {code}:\n{self.log(name)}")
            return re.search(pattern, self.log(name))

        return self.until(look, f"{name} logs {pattern!r}", timeout)

    def wait_for_nodes(self, count, timeout=120):
        self.until(lambda: sum(1 for n in self.nodes() if n.get("alive")) >= count, f"{count} live nodes", timeout)

    # ---- the command line ----

    def cairn(self, *args, ok=True, timeout=600, as_json=False):
        argv = [os.path.join(BIN, "cairn"), "--coordinator", self.address, *(["--json"] if as_json else []), *args]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout, cwd=self.dir)
        if ok:
            check(done.returncode == 0, f"{' '.join(argv)}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def nodes(self):
        done = self.cairn("nodes", ok=False, as_json=True)
        return json.loads(done.stdout).get("nodes", []) if done.returncode == 0 else []

    def try_submit(self, job_file, settings=None):
        """Returns a job's number, or None while no coordinator accepts it. Fails if the job is rejected."""
        sets = []
        for key, value in (settings or {}).items():
            sets += ["--set", f"{key}={value}"]
        done = self.cairn("submit", job_file, *sets, ok=False, as_json=True)
        check(done.returncode in (0, 1), f"submit {job_file}: exit {done.returncode}\n{done.stderr}")
        return str(json.loads(done.stdout)["job_id"]) if done.returncode == 0 else None

    def submit(self, job_file, settings=None):
        return self.until(lambda: self.try_submit(job_file, settings), f"{job_file} submitted")

    def try_job(self, job_id):
        """Returns the job's status, or None while no coordinator answers."""
        done = self.cairn("job", job_id, ok=False, as_json=True)
        check(done.returncode in (0, 1), f"job {job_id}: exit {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def job(self, job_id):
        return self.until(lambda: self.try_job(job_id), f"the status of job {job_id}")

    def running(self, job_id, what):
        """Returns the status of a job that must have steps left until `what`. Otherwise raises TooLate."""
        status = self.job(job_id)
        if status["state"] in ("FINALIZING", "SUCCEEDED"):
            raise TooLate(f"job {job_id} ended before {what}")
        how = f"{status['state']} {status.get('reason', '')}"
        check(status["state"] not in FINAL, f"job {job_id} ended before {what}: {how}")
        return status

    def while_running(self, job_id, condition, what, timeout=300):
        """Waits until condition(status of the job) holds. Raises TooLate if the job ends first."""
        return self.until(lambda: condition(self.running(job_id, what)), what, timeout)

    def chief(self, job_id):
        """The worker that is the chief. There is none while replicas move."""
        return self.while_running(job_id, lambda status: status["chief"], "there is a chief")

    def wait_until_it_stands_still(self, job_id, seconds=1.5):
        """Waits until there has been no step for this long."""
        since = {}  # step -> the time when it was first seen

        def look(status):
            return time.monotonic() - since.setdefault(status["step"], time.monotonic()) >= seconds

        self.while_running(job_id, look, "it stands still")

    def wait_for_step(self, job_id, step, timeout=300):
        self.while_running(job_id, lambda status: int(status["step"]) >= step, f"step {step}", timeout)

    def wait(self, job_id, timeout=600, state="SUCCEEDED"):
        """Waits until the job has ended. Watches instead of polling, so that nothing competes with what is measured."""
        end = time.monotonic() + timeout
        while True:
            self.cairn("watch", job_id, ok=False, timeout=max(1, end - time.monotonic()))
            status = self.try_job(job_id)
            if status is not None and status["state"] in FINAL:
                break
            time.sleep(0.1)  # the coordinator may be away
            check(time.monotonic() < end, f"job {job_id} has not ended within {timeout} s: {status}")
        check(status["state"] == state, f"job {job_id}: {status['state']}, wanted {state}: {status.get('reason', '')}")
        return status

    def evaluate(self, job_id, split="test"):
        return json.loads(self.cairn("evaluate", job_id, "--split", split, as_json=True).stdout)

    def evaluate_with(self, job_id, *flags):
        return json.loads(self.cairn("evaluate", job_id, *flags, as_json=True).stdout)

    def try_evaluate(self, job_id, split="test"):
        """None while there is no coordinator or no worker, or a ps is away."""
        done = self.cairn("evaluate", job_id, "--split", split, ok=False, as_json=True)
        check(done.returncode in (0, 1), f"evaluate {job_id}: exit {done.returncode}\n{done.stderr}")
        return json.loads(done.stdout) if done.returncode == 0 else None
