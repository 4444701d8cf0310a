"""Goal: the command line from a user's point of view: `cairn up` and the promises about its child processes, progress
on a terminal and elsewhere, exit codes, an export that contains the weights, and errors that name what is wrong."""

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

from cluster import BIN, check
from jobs import make_glyphs, small_job

CAIRN = os.path.join(BIN, "cairn")


def run(*args, code=0, **kwargs):
    done = subprocess.run([CAIRN, *args], capture_output=True, text=True, timeout=300, **kwargs)
    check(done.returncode == code, f"{args}: exit {done.returncode}, wanted {code}\n{done.stdout}\n{done.stderr}")
    return done


def until(condition, what, timeout=60):
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        check(time.monotonic() < end, f"not within {timeout} s: {what}")
        time.sleep(0.02)


class Up:
    """`cairn up` as a child process of this test."""

    def __init__(self, directory, *flags):
        self.log_path = f"{directory}/up.log"
        with open(self.log_path, "w") as log:
            self.process = subprocess.Popen(
                [CAIRN, "up", "--port", "0", "--dir", f"{directory}/cluster", *flags],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        try:
            ready = until(self.ready, "cluster ready")
        except BaseException:
            self.stop()
            raise
        self.env = {**os.environ, "CAIRN_COORDINATOR": ready.group(1)}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()

    def log(self):
        with open(self.log_path) as f:
            return f.read()

    def ready(self):
        check(self.process.poll() is None, f"cairn up ended: {self.log()}")
        return re.search(r"cluster ready .* coordinator (127\.0\.0\.1:\d+)", self.log())

    def cairn(self, *args, code=0):
        return run(*args, code=code, env=self.env)

    def children(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children") as f:
            return [int(pid) for pid in f.read().split()]

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return ") Z " not in f.read()
    except FileNotFoundError:
        return False


def program(pid):
    with open(f"/proc/{pid}/cmdline") as f:
        return f.read().split("\0")


def check_without_cluster(directory):
    error = run("--coordinator", "127.0.0.1:1", "jobs", code=1).stderr
    check("cannot reach the coordinator at 127.0.0.1:1" in error and "cairn up" in error, error)
    check("Subcommands:" in run("--help").stdout and "Subcommands:" in run().stdout, "without a command: the help")
    with open("/dev/full", "w") as full:
        for command in (["version"], ["--help"], ["models"]):
            done = subprocess.run([CAIRN, *command], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
            check(
                done.returncode == 1 and "standard output cannot be written: No space left" in done.stderr,
                f"{command}: {done}",
            )
    check(run("version").stdout.startswith("cairn "), "version")
    path = small_job(directory, "/nowhere", name="wrong.textproto", more="epoch: 3")
    check(f"{path}:" in run("submit", path, code=2).stderr, "the file and line of a mistake")
    path = small_job(directory, "/nowhere", name="good.textproto")
    error = run("submit", path, "--set", "data.path=no/where", code=2).stderr
    check("data.path: no/where" in error and f"{os.getcwd()}/no/where" in error, error)
    check('did you mean "epochs"' in run("submit", path, "--set", "epoch=3", code=2).stderr, "the nearest field")
    check("absent" in run("submit", f"{directory}/absent", code=2).stderr, "the missing file")
    check("absent" in run("data", "info", f"{directory}/absent", code=2).stderr, "the missing data")


def read_safetensors(path):
    with open(path, "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(size)), f.read()
    return header, data


def check_jobs(up, directory, data):
    job = small_job(directory, data, 2)
    watched = up.cairn("submit", job, "--watch").stdout
    check(len(re.findall(r"^epoch [12]/2 - .*loss: .* val_accuracy: ", watched, re.M)) == 2, watched)
    check("\r" not in watched and "succeeded" in watched, watched)

    status = json.loads(up.cairn("job", "small", "--json").stdout)
    check(status["state"] == "SUCCEEDED" and status["digest"] in up.cairn("job", "1").stdout, f"{status}")
    lines = up.cairn("watch", "1", "--json").stdout.splitlines()
    check(json.loads(lines[-1])["digest"] == status["digest"], lines[-1])
    check(json.loads(up.cairn("jobs", "--json").stdout)["jobs"][0]["job_id"] == 1, "jobs")

    result = json.loads(up.cairn("evaluate", "1", "--json").stdout)
    check(
        result["examples"] == 400
        and f"{result['accuracy']:.4f}" in up.cairn("evaluate", "1", "--split", "test").stdout,
        f"{result}",
    )
    check(
        "not one of train, validation, test" in up.cairn("evaluate", "1", "--split", "all", code=2).stderr,
        "a split that is none",
    )

    check("is a folder" in up.cairn("export", "1", "-o", directory, code=2).stderr, "a folder as the output")
    os.mkfifo(f"{directory}/pipe")
    check(
        "is a device or a pipe" in up.cairn("export", "1", "-o", f"{directory}/pipe", code=2).stderr,
        "a pipe as the output",
    )
    check(
        "no folder" in up.cairn("export", "1", "-o", f"{directory}/absent/m", code=2).stderr, "an output in no folder"
    )
    error = up.cairn("export", "1", "-o", f"{directory}/m.foo", code=2).stderr
    check('no format has the ending ".foo"; use .safetensors, .keras, .weights.h5 or .onnx' in error, error)
    for _ in range(10):  # it must end cleanly every time
        up.cairn("export", "1", "--format", "safetensors", "-o", f"{directory}/m.safetensors")
    check(not [f for f in os.listdir(directory) if "partial" in f], "nothing is left beside the export")
    header, data_bytes = read_safetensors(f"{directory}/m.safetensors")
    check(header["__metadata__"]["digest"] == status["digest"], f"{header['__metadata__']}")
    check(header["conv2d/kernel"]["shape"] == [3, 3, 1, 8], f"{header['conv2d/kernel']}")
    check("batch_normalization/moving_variance" in header, f"{list(header)}")
    numbers = sum(h["data_offsets"][1] - h["data_offsets"][0] for n, h in header.items() if n != "__metadata__") // 4
    check(
        numbers == status["parameters"] and len(data_bytes) == 4 * numbers,
        f"{numbers} numbers, {status['parameters']} parameters",
    )

    check(
        "learning_rate" in up.cairn("submit", job, "--set", "optimizer.learning_rate=-1", code=2).stderr,
        "a job that is refused",
    )
    up.cairn("job", "no-such-job", code=2)


def check_ends(up, directory, data):
    """Invalid input is rejected, a name identifies a job, and a job whose loss is not finite is not an unqualified
    success."""
    job = small_job(directory, data, 1)
    refused = up.cairn("submit", job, "--set", "epochs=0", code=2).stderr
    check("epochs: 0 is not allowed; leave it out for 1, or give at least 1" in refused, refused)
    for setting in ("checkpoints={dir: '/proc/run'}", "callbacks[..]={csv_logger {filename: '/proc/run/log.csv'}}"):
        refused = up.cairn("submit", job, "--set", setting, code=2).stderr
        check("cannot be written: /proc: " in refused and "worker-" in refused, refused)

    broken = ("--set", "name=twice", "--set", "optimizer={sgd {} learning_rate: 1e30}")
    watched = up.cairn("submit", job, *broken, "--watch", code=3).stdout
    check("ended with errors" in watched and "the loss is not finite since step " in watched, watched)
    check("cairn_job_not_finite" not in up.cairn("metrics").stdout, "metrics of a job that has ended")
    ids = [int(json.loads(up.cairn("job", "twice", "--json").stdout)["job_id"])]
    up.cairn("watch", str(ids[0]), code=3)
    up.cairn("submit", job, "--set", "name=twice", "--watch")
    ids.append(ids[0] + 1)
    several = up.cairn("delete", "twice", code=2).stderr
    check(f"{ids[0]} (ended with errors), {ids[1]} (succeeded)" in several, several)
    too_large = ("--set", "min_workers=100", "--set", "replicas=100", "--set", "batch_size=100")
    up.cairn("submit", job, "--set", "name=twice", *too_large)
    check(up.cairn("evaluate", "twice").stdout.startswith(f"job {ids[1]}, test: "), "the newest that has weights")
    check(f"job {ids[1] + 1} " in up.cairn("cancel", "twice").stdout, "the one that has not ended")
    check(up.cairn("delete", str(ids[0])).stdout == f"job {ids[0]} is deleted\n", "by number")
    listed = up.cairn("jobs").stdout.splitlines()
    check(listed[-1].startswith("ended jobs are kept until they are deleted; failed ones for 30d"), listed)
    for id in (ids[1], ids[1] + 1):
        up.cairn("delete", str(id))


def read_terminal(fd):
    text = b""
    while True:
        try:
            some = os.read(fd, 65536)
        except OSError:  # the other end is closed
            return text.decode()
        if not some:
            return text.decode()
        text += some


def check_terminal(up, directory, data):
    """One bar per epoch; Ctrl-C leaves the job running."""
    job = small_job(directory, data, 2)
    pid, fd = pty.fork()
    if pid == 0:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        os.execve(CAIRN, [CAIRN, "submit", job, "--set", "name=seen", "--set", "epochs=20", "--watch"], up.env)
    text = read_terminal(fd)
    check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, text)
    check(all(f"Epoch {i}/20\r\n" in text for i in range(1, 21)), repr(text[:2000]))
    check(re.search(r"\r\[[=>.]{30}\] \d+/30", text), repr(text[:2000]))
    check(text.count("[==============================] 30/30 - ") >= 20, repr(text[:2000]))
    os.close(fd)

    watch = subprocess.Popen(
        [CAIRN, "submit", job, "--set", "name=long", "--set", "epochs=100000", "--watch"],
        env=up.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    check("submitted" in watch.stdout.readline(), "submitted")
    check("long" in watch.stdout.readline(), "the watch's first line")
    watch.send_signal(signal.SIGINT)
    _, error = watch.communicate(timeout=60)
    check(
        watch.returncode == 130 and "cairn watch" in error and "job keeps running" in error,
        f"{watch.returncode} {error}",
    )
    check(
        json.loads(up.cairn("job", "long", "--json").stdout)["state"] in ("QUEUED", "STARTING", "RUNNING"),
        "the job keeps running",
    )
    up.cairn("delete", "long", code=2)
    up.cairn("cancel", "long")
    up.cairn("watch", "long", code=1)
    up.cairn("delete", "long")
    up.cairn("job", "long", code=2)


def check_children(up):
    worker = next(pid for pid in up.children() if program(pid)[0].endswith("cairn-worker"))
    os.kill(worker, signal.SIGKILL)
    until(lambda: "started again" in up.log(), "the worker is started again")
    until(lambda: len(up.children()) == 4, "four children again")
    until(
        lambda: sum(n["alive"] for n in json.loads(up.cairn("nodes", "--json").stdout)["nodes"]) == 3,
        "three live nodes",
    )


def check_metrics(up, directory):
    def value(text, name, *labels):
        begins = (name + "{", name + " ")
        lines = [l for l in text.splitlines() if l.startswith(begins) and all(label in l for label in labels)]
        check(len(lines) == 1, f"{name} {labels}: {lines} in\n{text}")
        return float(lines[0].rsplit(" ", 1)[1])

    text = up.cairn("metrics").stdout
    check(
        value(text, "cairn_coordinator_up") == 1 and value(text, "cairn_node_up", 'node="ps-0"', 'role="ps"') == 1, text
    )
    check(value(text, "cairn_jobs", 'state="succeeded"') >= 1, text)
    # Written to a file, which reports it when the cluster is gone.
    path = f"{directory}/cairn.prom"
    writer = subprocess.Popen(
        [CAIRN, "metrics", "-o", path, "--every", "1"], env=up.env, stderr=subprocess.PIPE, text=True
    )
    try:
        until(lambda: os.path.exists(path), "the file is there")
        with open(path) as file:
            check(value(file.read(), "cairn_node_up", 'node="worker-1"') == 1, "the file holds the cluster")
        writer.send_signal(signal.SIGTERM)
        check(writer.wait(timeout=60) == 0, "a signal ends it")
    finally:
        writer.kill()
        writer.wait()
    away = subprocess.Popen([CAIRN, "--coordinator", "127.0.0.1:1", "metrics", "-o", path], stderr=subprocess.DEVNULL)
    try:
        until(lambda: open(path).read().endswith("cairn_coordinator_up 0\n"), "the file says that nobody answers")
    finally:
        away.kill()
        away.wait()
    run("--coordinator", "127.0.0.1:1", "metrics", code=1)
    check(
        "cannot be written"
        in run("--coordinator", "127.0.0.1:1", "metrics", "-o", f"{directory}/no/where", code=2).stderr,
        "the file is named",
    )
    run("metrics", "--every", "3", code=2)


def check_daemons():
    for daemon in ("cairn-coordinator", "cairn-ps", "cairn-worker"):

        def exits(code, *args, **env):
            done = subprocess.run(
                [os.path.join(BIN, daemon), *args],
                capture_output=True,
                text=True,
                timeout=60,
                env={**os.environ, **env},
            )
            check(done.returncode == code, f"{daemon} {args}: exit {done.returncode}, wanted {code}: {done.stderr}")
            return done.stdout + done.stderr

        check(exits(0, "--version") == run("--version").stdout, "the version is everybody's")
        check("--tls-dir" in exits(0, "--help"), "--help")
        data_dir = ["--data-dir", "/nowhere"] if daemon == "cairn-ps" else []
        check(
            "frobnicate" in exits(2, *data_dir, "--frobnicate", CAIRN_COORDINATOR="127.0.0.1:1"),
            "a flag that there is not",
        )
        exits(2, "--log-level", "loud", CAIRN_COORDINATOR="127.0.0.1:1")
        if daemon != "cairn-coordinator":
            check("--coordinator" in exits(2), "who is dialled has to be said")


def check_bench():
    figures = json.loads(
        run("bench", "exchange", "--bytes", "256KiB", "--partition-bytes", "64KiB", "--rounds", "3", "--json").stdout
    )
    check(figures["bytes"] == 256 << 10 and figures["partitions"] == 4 and figures["ratio"] > 0, f"{figures}")
    check("ratio" in run("bench", "exchange", "--bytes", "16KiB", "--rounds", "1", "--logged").stdout, "bench exchange")
    check("bytes 1000" in run("bench", "exchange", "--bytes", "1000", code=2).stderr, "too few bytes")
    odd = run("bench", "exchange", "--partition-bytes", "100", code=2).stderr
    check("partition_bytes 100: must be a multiple of 64" in odd, odd)


def main():
    with tempfile.TemporaryDirectory(prefix="cairn-cli-") as directory:
        check_without_cluster(directory)
        check_bench()
        check_daemons()
        data = make_glyphs(directory)
        check("IDX" in run("data", "info", data).stdout, "data info")
        check(json.loads(run("data", "info", data, "--json").stdout)["classes"] == 10, "data info --json")

        with Up(directory, "--ps", "1", "--workers", "2") as up:
            up.cairn("health")
            up.cairn("health", "--node", "ps-0")
            up.cairn("health", "--node", "ps-1", code=1)
            check_jobs(up, directory, data)
            check_terminal(up, directory, data)
            check_ends(up, directory, data)
            check_metrics(up, directory)
            check_children(up)
            second = subprocess.run(
                [CAIRN, "up", "--port", "0", "--dir", f"{directory}/cluster"],
                capture_output=True,
                text=True,
                timeout=60,
            )
            check(second.returncode == 1 and "another `cairn up`" in second.stderr, second.stderr)
            children = up.children()
            code = up.stop()
        check(
            code == 0 and not any(alive(pid) for pid in children),
            f"exit {code}, left: {[p for p in children if alive(p)]}",
        )

        with Up(directory, "--ps", "1", "--workers", "2") as again:  # the same directory: the job still exists
            check(
                json.loads(again.cairn("evaluate", "1", "--json").stdout)["examples"] == 400,
                "the weights are still there",
            )
            children = again.children()
            again.process.kill()
            again.process.wait()
            until(lambda: not any(alive(pid) for pid in children), "nothing outlives a killed `cairn up`")
    print("the command line does what it says")


if __name__ == "__main__":
    sys.exit(main())
