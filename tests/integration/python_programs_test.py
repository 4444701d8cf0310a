"""Goal: a job whose model a Python program computes, in processes with the module cairn._cairn beside real daemons.

- It waits for a worker with its program in its version, and says who has what.
- Its weights are those of a loop in numpy; figures are means, each example counts once an epoch; digests are equal for
  one and two workers, and with a worker killed and started again.
- Evaluation, prediction and files; what cannot be written is refused by name.
- What a function raises is the job's error with its traceback; a program's own mistakes are said.
- Ctrl-C, an exit without stop, and a fork are clean.
"""

import json
import os
import signal
import subprocess
import sys

import numpy

from cluster import BIN, SOURCE, Cluster, TestFailure, attempts, check

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE = os.path.join(BIN, "../python")
os.environ["PYTHONPATH"] = os.pathsep.join([os.path.abspath(MODULE), HERE])
sys.path[:0] = [os.path.abspath(MODULE)]

import line_worker  # noqa: E402
from line_worker import EXAMPLES, FEATURES, VALIDATION, XS, YS  # noqa: E402

JOB = """
name: "line"
model { external {
  program: "line" version: "%(version)s" figures: ["index", "absolute"] output_shape: %(features)d config: "%(config)s"
  variables { name: "line.w" shape: %(features)d }
  variables { name: "line.b" }
  variables { name: "mean" shape: %(features)d kind: MOVING_AVERAGE momentum: 0.9 }
  variables { name: "table" shape: 3 kind: FROZEN initializer { kind: ONES } }
} }
data { external { examples: %(examples)d validation_examples: %(validation)d } %(data)s }
optimizer { sgd { } learning_rate: 0.05 }
batch_size: 64 replicas: 4 epochs: %(epochs)d seed: 5 backups: 0
"""
SCRIPT = [sys.executable, os.path.join(HERE, "line_worker.py")]


def job_file(c, epochs=3, version="1", config="", data=""):
    path = f"{c.dir}/line.textproto"
    counts = {"examples": EXAMPLES, "validation": VALIDATION, "features": FEATURES}
    with open(path, "w") as f:
        f.write(JOB % {"epochs": epochs, "version": version, "config": config, "data": data, **counts})
    return path


def add_python(c, name, version="1"):
    c.commands[name] = [*SCRIPT, c.address, name, version]
    c.restart(name)
    c.wait_for_log(name, "joined the cluster")


def weights(c, job, path="w.safetensors"):
    c.cairn("export", job, "-o", f"{c.dir}/{path}")
    with open(f"{c.dir}/{path}", "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        header = json.loads(f.read(size))
        body = f.read()
    at = {k: v["data_offsets"] for k, v in header.items() if k != "__metadata__"}
    return {k: numpy.frombuffer(body[a:b], "f4") for k, (a, b) in at.items()}


def loop(epochs):
    """The same training in numpy, without shuffling."""
    w, b, mean = numpy.zeros(FEATURES, "f4"), numpy.float32(0), numpy.zeros(FEATURES, "f4")
    for _ in range(epochs):
        for begin in range(0, EXAMPLES, 64):
            x, y = XS[:EXAMPLES][begin : begin + 64], YS[:EXAMPLES][begin : begin + 64]
            error = x @ w + b - y
            w, b = w - numpy.float32(0.05) * 2 * (error @ x) / len(x), b - numpy.float32(0.05) * 2 * error.sum() / len(
                x
            )
            mean = numpy.float32(0.9) * mean + numpy.float32(0.1) * x.mean(axis=0)
    return w, b, mean


def check_waits_and_says_why(c):
    job = c.submit(job_file(c, version="2"))
    wanted = 'no worker has program "line" version "2"; they have: "python-0" (line 1), "worker-0" (none)'
    c.until(lambda: c.job(job).get("reason") == wanted, f"{wanted}, not {c.job(job)}")
    c.cairn("cancel", job)


def check_training(c):
    job = c.submit(job_file(c, data="shuffle: false"))
    status = c.wait(job)
    got, (w, b, mean) = weights(c, job), loop(3)
    check(sorted(got) == ["line.b", "line.w", "mean", "table"], f"names {sorted(got)}")
    for name, want in (("line.w", w), ("line.b", b), ("mean", mean), ("table", numpy.ones(3))):
        check(numpy.allclose(got[name], want, rtol=1e-5, atol=1e-6), f"{name}: {got[name]}, in numpy {want}")
    shown = json.loads(c.cairn("job", job, as_json=True).stdout)
    for epoch in shown["epochs"]:
        train = epoch["train"]
        check(float(train["examples"]) == EXAMPLES, f"examples: {train}")
        check(train["index"] * EXAMPLES == EXAMPLES * (EXAMPLES - 1) / 2, f"not each example once: {train}")
        check(float(epoch["validation"]["examples"]) == VALIDATION, f"validation: {epoch}")
    check("val_absolute" in c.cairn("job", job).stdout, c.cairn("job", job).stdout)
    return status


def check_files_and_predictions(c, job):
    for ending in ("keras", "onnx", "weights.h5"):
        done = c.cairn("export", job, "-o", f"{c.dir}/m.{ending}", ok=False)
        check(done.returncode == 1 and "there are no layers to write" in done.stderr, f"{ending}: {done.stderr}")
    done = c.cairn("export", job, "-o", f"{c.dir}/t.safetensors", "--layout", "torch", ok=False)
    check("leave the layout out" in done.stderr, done.stderr)
    c.cairn("predict", job, "--split", "validation", "-o", f"{c.dir}/p.npy")
    check((numpy.load(f"{c.dir}/p.npy") == XS[EXAMPLES:]).all(), "other predictions")
    evaluated = c.evaluate(job, "validation")
    last = json.loads(c.cairn("job", job, as_json=True).stdout)["epochs"][-1]["validation"]
    check(abs(evaluated["loss"] - last["loss"]) < 1e-9, f"{evaluated}, in training {last}")


def check_digests(c, times):
    epochs = 40 * times
    job = c.submit(job_file(c, epochs))
    alone = c.wait(job)["digest"]
    add_python(c, "python-1")
    job = c.submit(job_file(c, epochs))
    check(c.wait(job)["digest"] == alone, "two workers: another digest")
    job = c.submit(job_file(c, epochs))
    for step in (20, 60, 120):
        c.wait_for_step(job, step)
        c.running(job, "python-1 is killed")
        c.kill("python-1")
        c.restart("python-1")
    check(c.wait(job)["digest"] == alone, "a worker killed three times: another digest")
    c.kill("python-1", signal.SIGTERM)


def check_errors(c):
    add_python(c, "python-1")
    cases = {
        "raise": (
            'program "line" version "1": ValueError: boom: \N{GREEK SMALL LETTER ALPHA}',
            "Traceback",
            "line_worker.py",
        ),
        "raise when opened": ("when it was opened: RuntimeError: not today",),
        "final twice": ('variable "line.w" is said to be final twice',),
        "no figures": ("it gave 0 figures, model.external.figures names 2",),
    }
    for config, texts in cases.items():
        job = c.submit(job_file(c, config=config))
        reason = c.wait(job, state="FAILED")["reason"]
        for text in texts:
            check(text in reason, f"{config}: {text!r} is not in {reason!r}")
    check("boom" in c.log("python-0") or "boom" in c.log("python-1"), "not in a worker's log")
    job = c.submit(job_file(c, epochs=1))
    c.wait(job)  # they go on with other jobs
    c.kill("python-1", signal.SIGTERM)


def check_refusals(c):
    for change, text in {
        "loss { kind: MEAN_SQUARED_ERROR }": "loss: the program of model.external computes the loss itself",
        "strategy: CENTRAL_STORAGE": "strategy: CENTRAL_STORAGE computes layer by layer",
        'callbacks { model_checkpoint { filepath: "/m.onnx" } }': "has no layers to write",
    }.items():
        path = job_file(c)
        with open(path, "a") as f:
            f.write(change)
        done = c.cairn("submit", path, ok=False)
        check(done.returncode != 0 and text in done.stderr, f"{change}: {done.stderr}")


FORK = """
import os, sys, time
sys.path[:0] = [%r]
import line_worker
worker = line_worker.Worker([line_worker.Line("9")], %r, name="forking")
child = os.fork()
if child == 0:
    try:
        worker.stop()
        print("no error")
    except RuntimeError as error:
        print(error)
    print("running", worker.running, flush=True)
    sys.exit(0)  # its atexit functions run
print("child", os.waitpid(child, 0)[1], "running", worker.running)
"""  # the parent ends without stop


def check_ends(c):
    done = subprocess.run([sys.executable, "-c", FORK % (HERE, c.address)], capture_output=True, text=True, timeout=60)
    check(done.returncode == 0, f"exit {done.returncode}: {done.stdout} {done.stderr}")
    check("of which this one was forked" in done.stdout and "running False" in done.stdout, done.stdout)
    check("child 0 running True" in done.stdout, done.stdout)
    job = c.submit(job_file(c, epochs=2000))
    c.wait_for_step(job, 10)
    for name, sig, code in (("python-2", signal.SIGINT, -signal.SIGINT), ("python-3", signal.SIGTERM, 0)):
        add_python(c, name)
        c.while_running(job, lambda s: any(r.get("worker") == name for r in s["replicas"]), "it computes")
        c.kill(name, sig)
        ended = c.processes[name].returncode
        check(ended in (code, 1, 130), f"signal {sig}: exit {ended}\n{c.log(name)}")
        check("terminate called" not in c.log(name), c.log(name))
    c.cairn("cancel", job)


def check_wrong_use():
    from cairn import _cairn

    program = line_worker.Line("1")
    cases = [
        (lambda: _cairn.Worker("", [program]), ValueError, "--coordinator: missing; give host:port"),
        (lambda: _cairn.Worker("a:1", []), ValueError, "programs: none; a worker has one at least"),
        (lambda: _cairn.Worker("a:1", [program, program]), ValueError, 'programs[1]: "line" version "1" twice'),
        (lambda: _cairn.Worker("a:1", [program], slots=0), ValueError, "--slots: 0 is not in 1..1024"),
        (lambda: _cairn.Worker("a:1", [line_worker.Line("a b")]), ValueError, "programs[0]: name and version are 1 to"),
        (lambda: _cairn.Worker("a:1", [object()]), AttributeError, "name"),
        (lambda: _cairn.Worker("a:1", [program], log_level="loud"), ValueError, "log"),
    ]
    for call, kind, text in cases:
        try:
            call()
        except kind as error:
            check(text in str(error), f"{text!r} is not in {error}")
        else:
            raise TestFailure(f"no {kind.__name__}: {text}")


def main():
    check_wrong_use()
    with Cluster(ps=2, workers=1) as c:
        add_python(c, "python-0")
        check_waits_and_says_why(c)
        status = check_training(c)
        check_files_and_predictions(c, str(status["job_id"]))
        attempts(lambda times: check_digests(c, times))
        check_errors(c)
        check_refusals(c)
        check_ends(c)


if __name__ == "__main__":
    main()
    print("ok")
