"""What must hold on a machine with a GPU; run.sh finds the libraries and calls this. One table at the end; exit 1 if a row says FAILED.

    checks.py [--list] [--minutes N] [CHECK|correct|fast]...

correct, fast: what is computed, how fast; each fits into nine minutes of an H100 by estimate. What failed stands above the table, which is printed
whatever fails, also when this is told to stop (TERM) and after N minutes: of a check that was under way then the row says how far it came, the others
were not run. Checks come in the order of --list. Programs come from $CAIRN_BIN. Comparisons are made in one sitting, one after the other.
$OUT: a folder for checks.log, all that programs printed, and table.md.
CAIRN_DRY=1 (run.sh --dry-run): the same on small sizes, for a machine without a GPU: it shows that the pieces fit, not what they compute.
"""

import concurrent.futures
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.environ["CAIRN_BIN"] if "CAIRN_BIN" in os.environ else os.path.join(HERE, "../../build/release/bin")
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import Cluster, TestFailure, TooLate, attempts, check  # noqa: E402
from jobs import make_glyphs, small_job  # noqa: E402

GPU = ("--device", "gpu")
NO_GPU = "no GPU"
DRY = os.environ.get("CAIRN_DRY") == "1"
CNN = """
name: "cnn"
model {
  layers { input { shape: [28, 28, 1] } }
  layers { rescaling { scale: 0.003921569 } }
  layers { conv2d { filters: 32 kernel_size: 3 padding: SAME activation: RELU } }
  layers { max_pooling2d { } }
  layers { conv2d { filters: 64 kernel_size: 3 padding: SAME activation: RELU } }
  layers { max_pooling2d { } }
  layers { flatten { } }
  layers { dense { units: 10 activation: SOFTMAX } }
}
data { path: "%(data)s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { sgd { } learning_rate: 0.01 }
batch_size: %(batch)d
epochs: %(epochs)d
replicas: 1
"""
RESNET = """
name: "resnet50"
model { ready_made { name: "resnet50" input_shape: [%(side)d, %(side)d, 3] } }
data { path: "%(data)s" cache_mib: 4096 }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { sgd { momentum: 0.9 } learning_rate: 0.01 }
batch_size: %(batch)d
epochs: %(epochs)d
steps_per_epoch: %(steps)d
replicas: 1
compute_dtype: %(compute)s
allow_tf32: %(tf32)s
"""


# Of one program's output in checks.log.
KEPT_BYTES = 1 << 20
RESTARTS_MAX = 6
FAILURES_SHOWN = 5
# After one of these a process cannot use the device any more.
STICKY = re.compile(r"cudaError(IllegalAddress|LaunchFailure|MisalignedAddress|IllegalInstruction|InvalidAddressSpace|InvalidPc|LaunchTimeout|HardwareStackError"
                    r"|Assert|ECCUncorrectable|Unknown)\b|CUDA error (7\d\d|214|999)\b|cuda\w+\(.*\n +Which is: (7\d\d|214|999)\n")
# What the programs and NVIDIA's libraries say of themselves.
TALKATIVE = {"CAIRN_LOG_LEVEL": "debug", "CUDNN_LOGLEVEL_DBG": "2", "CUDNN_LOGDEST_DBG": "stdout", "CUBLASLT_LOG_LEVEL": "2"}


class Skip(Exception):
    pass


class Stopped(BaseException):
    pass


class OutOfTime(Exception):
    """The time was over in the middle of a check. passed: of its tests."""

    def __init__(self, passed):
        super().__init__(f"{passed} tests passed, none failed until the time was over")
        self.passed = passed


class Deadline:
    """When all must be over."""

    def __init__(self):
        self.end = None

    def set(self, minutes):
        self.end = time.monotonic() + 60 * minutes

    def within(self, seconds):
        """So many seconds, or what is left."""
        return seconds if self.end is None else max(1, min(seconds, self.end - time.monotonic()))

    def over(self):
        return self.end is not None and time.monotonic() >= self.end


DEADLINE = Deadline()


def program(name):
    path = os.path.join(BIN, name)
    if not os.path.exists(path):
        raise Skip(f"{name} was not built")
    return path


def gpu_name():
    if shutil.which("nvidia-smi") is None:
        return NO_GPU
    done = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else NO_GPU


def without_gpu(reason):
    """A program that finds no device is a skip only where there is none."""
    return Skip(reason) if gpu_name() == NO_GPU else TestFailure(f"there is a GPU, but: {reason}")


def keep(text):
    """All that a program printed, in $OUT."""
    if os.environ.get("OUT"):
        with open(os.path.join(os.environ["OUT"], "checks.log"), "a") as log:
            log.write(text if len(text) < KEPT_BYTES else text[:KEPT_BYTES // 2] + "\n[...]\n" + text[-KEPT_BYTES // 2:])


def output_of(argv, timeout, environment=None):
    """(all that it printed, exit code; None: the time was over). Below 0: ended by that signal."""
    begin = time.monotonic()
    try:
        done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", timeout=DEADLINE.within(timeout),
                              env={**os.environ, **(environment or {})})
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        text, code = late.stdout or "", None
        if isinstance(text, bytes):  # whatever `text` says
            text = text.decode(errors="replace")
    keep(f"==== {' '.join(argv)[:300]}: exit {code} after {time.monotonic() - begin:.1f} s\n{text}\n")
    return text, code


def run(argv, timeout=1800, environment=None):
    """The output of a program that has to succeed; exit code 77 is a skip."""
    text, code = output_of(argv, timeout, environment)
    if code == 77:
        raise without_gpu(text.strip().splitlines()[-1] if text.strip() else "no reason given")
    if code is None and DEADLINE.over():
        raise OutOfTime(0)
    if code != 0:
        print(text[-8000:])
        raise TestFailure(f"{os.path.basename(argv[0])}: {'did not end within its time' if code is None else f'exit {code}'}: {last_line(text)}")
    return text


def last_line(text):
    return (text.strip().splitlines() or ["it printed nothing"])[-1][:200]


# ---- test programs ----


def names_of(argv, wanted):
    """The tests of a program that a filter names."""
    names, suite = [], ""
    for line in run([*argv, "--gtest_list_tests", f"--gtest_filter={wanted}"]).splitlines():
        if re.match(r"\S+\.(\s|$)", line):
            suite = line.split()[0]
        elif line.startswith("  "):
            names.append(suite + line.split()[0])
    return names


class Outcome:
    """What became of the tests of a program."""

    def __init__(self):
        self.passed, self.failed, self.skipped, self.text, self.late = set(), [], "", "", False

    def add(self, other):
        self.passed |= other.passed
        self.failed += other.failed
        self.skipped = self.skipped or other.skipped
        self.text += other.text
        self.late = self.late or other.late


def run_tests(argv, names, environment=None):
    """Runs them. After one that took the process with it, or left the device unusable to it, the others run in a process of their own."""
    outcome, left = Outcome(), list(names)
    for _ in range(RESTARTS_MAX):
        text, code = output_of([*argv, "--gtest_filter=" + ":".join(left)], 1800, environment)
        ended = {state: re.findall(rf"^\[{state}\] ([\w./]+).*\(\d+ ms\)$", text, re.M) for state in ("       OK ", "  FAILED  ", "  SKIPPED ")}
        failed = ended["  FAILED  "]
        outcome.passed |= set(ended["       OK "])
        outcome.text += text
        if ended["  SKIPPED "]:
            outcome.skipped = next((after for line, after in zip(text.splitlines(), text.splitlines()[1:]) if line.endswith(": Skipped")), "skipped")
        begun = re.findall(r"^\[ RUN      \] (\S+)", text, re.M)
        under_way = [name for name in begun[-1:] if not any(name in names for names in ended.values())]
        if code is None:
            outcome.late, outcome.failed = True, outcome.failed + failed
            break
        if code in (0, 1, 9) and not under_way:  # 9: compute-sanitizer's
            if not failed or not STICKY.search(text):
                outcome.failed += failed or (["no test"] if code != 0 else [])
                break
            outcome.failed.append(failed[0])  # the others may be its victims
            left = [name for name in left if name not in outcome.passed and name != failed[0]]
        else:
            outcome.failed += failed + (under_way or [f"exit {code}"])
            left = [name for name in left if name not in begun] if under_way else []
        if not left:
            break
    return outcome


def explain(argv, outcome, environment=None):
    """Prints what the first failed tests said, and what they say alone, with the libraries' own words."""
    for name in outcome.failed[:FAILURES_SHOWN]:
        begin = outcome.text.find(f"[ RUN      ] {name}\n")
        block = outcome.text[begin:outcome.text.find("\n[ RUN", begin + 1)] if begin >= 0 else outcome.text[-2000:]
        print(block[:3000])
    for name in outcome.failed[:2]:
        if DEADLINE.over() or " " in name:
            return
        text, code = output_of([*argv, f"--gtest_filter={name}"], 60, {**(environment or {}), **TALKATIVE})
        print(f"---- {name} alone: exit {code}\n{text[:3000]}{'[...]' if len(text) > 6000 else ''}\n{text[-3000:] if len(text) > 3000 else ''}")


def gtest(argv, wanted="*", shards=1, environment=None):
    """All that the filter names pass, in so many processes."""
    names = names_of(argv, wanted)
    check(names, f"{os.path.basename(argv[-1])} has no tests {wanted}")
    outcome = Outcome()
    with concurrent.futures.ThreadPoolExecutor(shards) as pool:
        for part in pool.map(lambda i: run_tests(argv, names[i::shards], environment), range(min(shards, len(names)))):
            outcome.add(part)
    if outcome.failed:
        explain(argv, outcome, environment)
        raise TestFailure(f"{len(outcome.failed)} of {len(names)} tests failed, {len(outcome.passed)} passed: {', '.join(outcome.failed[:4])}")
    if outcome.late:
        check(DEADLINE.over(), f"{os.path.basename(argv[-1])} did not end within its time")
        raise OutOfTime(len(outcome.passed))
    if not outcome.passed:
        raise without_gpu(outcome.skipped or "no test ran")
    return f"{len(outcome.passed)} tests"


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="cairn-gpu-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def write_job(directory, text):
    path = os.path.join(directory, "job.textproto")
    with open(path, "w") as f:
        f.write(text)
    return path


def digest_of(workers, device=GPU, slots=4, settings=None):
    with Cluster(ps=1, workers=workers, slots=slots, worker_flags=device) as c:
        data = make_glyphs(c.dir)
        status = c.wait(c.submit(small_job(c.dir, data), settings))
        return status["digest"]


# ---- checks: each returns what its row says ----


def smoke():
    """the GPU and the versions of what drives it; one step of a small CNN in each precision: every library once"""
    argv = [program("cairn-worker"), "--coordinator", "127.0.0.1:1", "--device", "gpu"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as worker:
        watchdog = threading.Timer(DEADLINE.within(120), worker.kill)
        watchdog.start()
        lines = []
        for line in worker.stderr:
            lines.append(line.strip())
            if "slots on" in line:
                break
        worker.kill()
        watchdog.cancel()
    print("\n".join(lines), flush=True)
    check(lines and "slots on" in lines[-1], f"cairn-worker: {lines[-1] if lines else 'it said nothing'}")
    passed = gtest([program("gpu_backend")], "Sanitized/*") if os.path.exists(os.path.join(BIN, "gpu_backend")) else "no gpu_backend"
    return f"{passed}; {lines[-1].split('] ')[-1]}"


def kernels():
    """every kernel against the reference, in float32, bfloat16 and float16"""
    return gtest([program("gpu_kernels")])


def layers():
    """every layer and loss against the reference: 1e-5 strict, 2e-3 tf32, 2e-2 bfloat16, 1e-2 float16; the same bits again"""
    # The reference takes longer than the GPU.
    return gtest([program("gpu_backend")], "Layers/*Dense*" if DRY else "Layers/*", shards=max(1, min(14, os.cpu_count() or 1)))


def sanitizer_reports(text):
    """What compute-sanitizer found: where on the device, without the way there on the host."""
    lines = [line for line in text.splitlines() if line.startswith("=========") and "Host Frame" not in line]
    reports = "\n".join(lines).split("\n========= \n")
    return [r for r in reports if re.search(r"========= +(Invalid|Error|Warning|Program hit|Misaligned|Leaked|Race reported|Uninitialized)", r)]


def sanitizer():
    """compute-sanitizer memcheck and racecheck on one step of a small CNN"""
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if DRY or not os.path.exists(tool):
        raise Skip("a dry run" if DRY else "no compute-sanitizer")
    result = []
    for kind in ("memcheck", "racecheck"):
        text, code = output_of([tool, "--tool", kind, "--error-exitcode", "9", program("gpu_backend"), "--gtest_filter=Sanitized/*"], 600)
        if code is None:
            raise OutOfTime(text.count("[       OK ]"))
        reports = sanitizer_reports(text)
        # A race within a kernel is whoever's who wrote it; a bad access may be of a pointer that we gave.
        ours = reports if kind == "memcheck" else [r for r in reports if "cairn::" in r]
        if code not in (0, 9) or "[  FAILED  ]" in text or ours or (code == 9 and not reports):
            print("\n".join(ours)[:6000] or text[-6000:])
            raise TestFailure(f"{kind}: exit {code}: {last_line(ours[0] if ours else text)}")
        result.append(f"{kind}: no error" + (f" of ours, {len(reports)} reports of NVIDIA's kernels" if reports else ""))
    return "; ".join(result)


def accuracy():
    """the generated digits to the accuracy that a CPU reaches"""
    with Cluster(ps=2, workers=1, slots=2, worker_flags=GPU) as c:
        data = make_glyphs(c.dir, *((128, 16) if DRY else (12000, 2000)))
        job = c.submit(os.path.join(HERE, "../../examples/glyphs/job.textproto"), {"data.path": data, **({"epochs": 1} if DRY else {})})
        c.wait(job, timeout=DEADLINE.within(600))
        value = float(c.evaluate(job)["accuracy"])
        check(DRY or value >= 0.97, f"accuracy {value}")
        return f"test accuracy {value:.4f}"


def fashion_mnist():
    """Fashion-MNIST to the accuracy that a CPU reaches"""
    data = os.environ.get("CAIRN_FASHION_MNIST", "")
    if not data:
        raise Skip("CAIRN_FASHION_MNIST names no folder")
    with Cluster(ps=2, workers=1, slots=2, worker_flags=GPU) as c:
        job = c.submit(os.path.join(HERE, "../../examples/fashion_mnist/job.textproto"), {"data.path": data})
        c.wait(job, timeout=DEADLINE.within(1800))
        value = float(c.evaluate(job)["accuracy"])
        check(value >= 0.90, f"accuracy {value}")
        return f"test accuracy {value:.4f}"


def digests():
    """1 worker x 4 replicas, 2 x 2, 4 x 1 on one GPU, and again: one digest; another seed: another"""
    found = {f"{w} workers, run {i}": digest_of(w) for i, w in enumerate((1, 2, 4, 1))}
    check(len(set(found.values())) == 1, f"digests differ: {found}")
    check(digest_of(1, settings={"seed": 8}) not in found.values(), "the seed does not matter")
    return f"{next(iter(found.values()))}"


def scaled_job(c, **settings):
    """A job whose first steps overflow, and one every few steps after: the scale is doubled all the time."""
    scaling = {"compute_dtype": "FLOAT16", "loss_scaling.initial_scale": 1 << 24, "loss_scaling.dynamic_growth_steps": 4}
    return c.submit(small_job(c.dir, make_glyphs(c.dir), epochs=3), {**scaling, "partition_bytes": 4096, **settings})


def scaled_digest(disturb=None, workers=1, ps=1, **settings):
    with Cluster(ps=ps, workers=workers, slots=4, worker_flags=GPU) as c:
        job = scaled_job(c, **settings)
        if disturb is not None:
            disturb(c, job)
        digest, log = c.wait(job)["digest"], "".join(c.log(f"worker-{w}") for w in range(workers))
        check(re.search(r"loss scale \S+, was \S+: a gradient was not finite", log), "the scale is never halved")
        check(re.search(r"loss scale \S+, was \S+\n", log), "the scale is never doubled")
        return digest


def lose_a_ps(c, job):
    c.wait_for_step(job, 40)
    c.kill("ps-0")


def resumed_digest():
    """From a checkpoint in the middle, in another cluster."""
    with folder() as d:
        keep = {"checkpoints.dir": d, "checkpoints.every_steps": 45, "checkpoints.keep_max": 10}
        with Cluster(ps=1, workers=1, slots=4, worker_flags=GPU) as c:
            whole = c.wait(scaled_job(c, **keep))["digest"]
        with open(os.path.join(d, "step-45", "manifest.json")) as f:
            scale = json.load(f)["loss_scale"]
        check(scale["scale"] < 1 << 24 and scale["skipped"] > 5, f"the checkpoint's loss scale: {scale}")
        with Cluster(ps=2, workers=2, slots=4, worker_flags=GPU) as c:
            resumed = c.wait(scaled_job(c, resume_from=os.path.join(d, "step-45"), partition_bytes=8192))["digest"]
        check(resumed == whole, f"resumed: {resumed}, not {whole}")
        return whole


def float16():
    """float16 with overflows: one digest for 1 x 4, 4 x 1, layer by layer, a ps lost, resumed; asynchronously it trains"""
    found = {"1 worker": scaled_digest(), "4 workers": scaled_digest(workers=4, ps=2), "a ps lost": scaled_digest(lose_a_ps, 2, 2, backups=1),
             "CENTRAL_STORAGE": scaled_digest(strategy="CENTRAL_STORAGE"), "resumed": resumed_digest()}
    check(len(set(found.values())) == 1, f"digests differ: {found}")
    scaled_digest(workers=2, ps=2, strategy="PARAMETER_SERVER")
    clipped = {scaled_digest(workers=w, **{"optimizer.global_clipnorm": 0.5}) for w in (1, 2)}
    check(len(clipped) == 1 and found["1 worker"] not in clipped, f"clipped: {clipped}, {found}")
    return found["1 worker"]


def lost_gpu(c, data):
    """The GPU's worker is killed in the middle of a job: it goes on on the CPUs, and says so."""
    job = c.submit(small_job(c.dir, data, epochs=20))
    c.wait_for_step(job, 5)
    c.kill("worker-gpu")
    status = c.wait(job)
    c.restart("worker-gpu")
    c.wait_for_nodes(4)
    if status["devices"] == ["GPU"]:
        raise TooLate("the job was over before its worker was lost")
    check(status["devices"] == ["GPU", "CPU"] and "computed on CPUs and on GPUs" in status["reason"], f"devices {status['devices']}: {status.get('reason')}")


def lost_device(c, data):
    """A device fails for good in the middle of a job, its worker stays: the others go on with the job."""
    c.prefix["worker-lost"] = ["env", "CAIRN_HOST_GPU_LOST=100"]
    c.add_worker("worker-lost", *GPU)
    c.wait_for_nodes(5)
    job = c.submit(small_job(c.dir, data, epochs=4), {"device": "GPU"})
    c.wait(job)
    check("the device is lost" in c.log("worker-lost"), "the device was not lost in the job")


def placement():
    """in a cluster of CPUs and a GPU: FLOAT16 waits for the GPU and says why, jobs prefer it, `device` decides, without it they go on on CPUs"""
    with Cluster(ps=1, workers=0, slots=2) as c:
        data = make_glyphs(c.dir)
        for worker in ("worker-0", "worker-1"):
            c.add_worker(worker, "--device", "cpu")
        c.wait_for_nodes(3)
        half = c.submit(small_job(c.dir, data), {"compute_dtype": "FLOAT16"})
        reason = 'no worker can compute FLOAT16: "worker-0" (CPU), "worker-1" (CPU)'
        c.until(lambda: c.job(half).get("reason", "").startswith(reason), "the job says why it waits", 30)
        check(c.job(half)["state"] == "QUEUED", f"it is {c.job(half)['state']}")
        c.add_worker("worker-gpu", *GPU)
        status = c.wait(half)
        check(status["devices"] == ["GPU"] and status["loss_scale"] >= 1, f"devices {status['devices']}, loss scale {status.get('loss_scale')}")
        check("loss scale  " in c.cairn("job", half).stdout, "`cairn job` does not show the loss scale")
        for wish, devices in (("ANY", ["GPU"]), ("CPU", ["CPU"]), ("GPU", ["GPU"])):
            found = c.wait(c.submit(small_job(c.dir, data, epochs=1), {"device": wish}))["devices"]
            check(found == devices, f"device: {wish}: computed on {found}")
        attempts(lambda: lost_gpu(c, data))
        if "CAIRN_HOST_GPUS" in os.environ:
            lost_device(c, data)
        return "FLOAT16 waited; ANY on the GPU, CPU on the CPU; GPU lost: on CPUs"


def several_gpus():
    """one worker on all GPUs of the machine, replicas shared out among them: the digest of one GPU"""
    one = digest_of(1, device=("--device", "gpu:0"))
    simulated = "CAIRN_HOST_GPUS" in os.environ
    counts = [2, 4] if simulated else [len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())]
    if counts == [1]:
        raise Skip("one GPU: its replicas share it, see digests")
    for count in counts:
        if simulated:
            os.environ["CAIRN_HOST_GPUS"] = str(count)
        with Cluster(ps=1, workers=1, slots=4, worker_flags=GPU) as c:
            job = c.submit(small_job(c.dir, make_glyphs(c.dir)))
            digest, log = c.wait(job)["digest"], c.log("worker-0")
        check(f"slots on gpu:0..{count - 1}: {count} of " in log, f"the worker does not say that it is on {count} GPUs: {log[:400]}")
        check(digest == one, f"{count} GPUs: {digest}, one: {one}")
    return f"{', '.join(map(str, counts))} GPUs: {one}"


@contextlib.contextmanager
def simulated_gpus(count):
    """On the plugin whose machine is the CPU; a machine has the GPUs that it has."""
    before = os.environ.get("CAIRN_HOST_GPUS")
    if before is not None:
        os.environ["CAIRN_HOST_GPUS"] = str(count)
    try:
        yield
    finally:
        if before is not None:
            os.environ["CAIRN_HOST_GPUS"] = before


def layouts(*pairs):
    """Devices and slots to try; a machine has the devices that it has."""
    return pairs if "CAIRN_HOST_GPUS" in os.environ else [("all", slots) for slots in sorted({slots for _, slots in pairs})]


def digest_of_one_worker_less(settings, step=20):
    """Two workers; one is lost in the middle."""
    with Cluster(ps=1, workers=2, slots=4, worker_flags=GPU) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs=2), settings)
        c.wait_for_step(job, step)
        c.kill("worker-1")
        return c.wait(job)["digest"]


def sums():
    """a worker's replicas are summed, and rounded to 16 bits, on its devices: one digest for any slots and devices, and for sums at the ps"""
    for replicas in (3, 5):
        settings = {"replicas": replicas}
        found = {"a worker each": digest_of(replicas, slots=1, settings=settings)}
        for gpus, slots in layouts((1, 1), (1, replicas), (2, replicas), (4, replicas)):
            with simulated_gpus(gpus):
                found[f"{gpus} devices, {slots} slots"] = digest_of(1, slots=slots, settings=settings)
        check(len(set(found.values())) == 1, f"{replicas} replicas: digests differ: {found}")
    with simulated_gpus(2):
        whole, less = digest_of(1), digest_of_one_worker_less({})
    check(whole == less, f"a worker is lost: {less}, not {whole}")
    for settings in ({"wire_dtype": "BFLOAT16"}, {"wire_dtype": "FLOAT16", "accumulate_steps": 2}):
        found = {}
        for gpus, slots in layouts((1, 1), (1, 4), (2, 4), (4, 4)):
            with simulated_gpus(gpus):
                found[f"{gpus} devices, {slots} slots"] = digest_of(1, slots=slots, settings=settings)
        check(len(set(found.values())) == 1 and whole not in found.values(), f"{settings}: digests differ, or are those of float32: {found}")
    with simulated_gpus(2):
        pieces = {"accumulate_steps": 3}
        found = {"a worker each": digest_of(4, slots=1, settings=pieces), "1 slot": digest_of(1, slots=1, settings=pieces), "4 slots": digest_of(1, settings=pieces),
                 "a worker is lost": digest_of_one_worker_less(pieces, step=7)}
        check(len(set(found.values())) == 1, f"{pieces}: digests differ: {found}")
        rounded = {"wire_dtype": "BFLOAT16"}  # each replica's gradient, where they are not added up before
        found = {"a worker each": digest_of(4, slots=1, settings=rounded)}
        for slots in (1, 4):
            found[f"CENTRAL_STORAGE, {slots} slots"] = digest_of(1, slots=slots, settings={**rounded, "strategy": "CENTRAL_STORAGE"})
        check(len(set(found.values())) == 1, f"{rounded}: digests differ: {found}")
    return f"{whole}; {gtest([program('gpu_backend')], 'Sums/Joined*') if os.path.exists(os.path.join(BIN, 'gpu_backend')) else 'no gpu_backend'}"


def autotune():
    """--cudnn-autotune: has no say in a deterministic job; another one's choices are kept, and found again"""
    with folder() as d:
        flags, kept = (*GPU, "--cudnn-autotune", "--cache-dir", d), os.path.join(d, "cudnn-tuning.txt")
        plain, tuned = digest_of(1), digest_of(1, device=flags)
        check(plain == tuned and not os.path.exists(kept), f"a deterministic job: {tuned}, not {plain}")
        digest_of(1, device=flags, settings={"deterministic": "false"})
        with open(kept) as f:
            first = f.read()
        check(first.startswith("cairn cudnn tuning 1\n"), f"the file begins with {first[:60]!r}")
        digest_of(1, device=flags, settings={"deterministic": "false"})
        with open(kept) as f:
            check(f.read() == first, "shapes were measured again")
        return f"{len(first.splitlines()) - 2} choices"


def fallback():
    """a worker without the plugin: --device=gpu is an error that says so, auto takes the CPU and says why"""
    with folder() as d:
        copy = shutil.copy(program("cairn-worker"), d)
        environment = {k: v for k, v in os.environ.items() if k != "CAIRN_PLUGINS"}
        environment["LD_LIBRARY_PATH"] = f"{BIN}/../lib:{environment.get('LD_LIBRARY_PATH', '')}"
        argv = [copy, "--coordinator", "127.0.0.1:1", "--device"]
        done = subprocess.run([*argv, "gpu"], env=environment, capture_output=True, text=True, timeout=60)
        check(done.returncode == 2 and "--device=gpu" in done.stderr and "libcairn_cudnn.so" in done.stderr, f"exit {done.returncode}: {done.stderr}")
        with subprocess.Popen([*argv, "auto"], env=environment, stderr=subprocess.PIPE, text=True) as worker:
            watchdog = threading.Timer(60, worker.kill)
            watchdog.start()
            line = next((line for line in worker.stderr if "computing on the CPU" in line or "slots on" in line), "it ended")
            worker.kill()
            watchdog.cancel()
        check("no GPU, computing on the CPU" in line and "libcairn_cudnn.so" in line, f"--device=auto says: {line}")
        return line.strip()[-120:]


def write_idx(directory, examples, side, classes):
    """Random pictures [examples, side, side, 3] as IDX files."""
    for split, count in (("train", examples), ("t10k", 16)):
        with open(os.path.join(directory, f"{split}-images-idx4-ubyte"), "wb") as f:
            f.write(struct.pack(">BBBBIIII", 0, 0, 8, 4, count, side, side, 3))
            for _ in range(count):
                f.write(os.urandom(side * side * 3))
        with open(os.path.join(directory, f"{split}-labels-idx1-ubyte"), "wb") as f:
            f.write(struct.pack(">BBBBI", 0, 0, 8, 1, count))
            f.write(bytes(i % min(classes, 256) for i in range(count)))


class BusyShare:
    """How busy the GPU is, as nvidia-smi says: the share of the last moments in which a kernel ran."""

    def __enter__(self):
        self.smi = None
        if shutil.which("nvidia-smi") is not None:
            argv = ["nvidia-smi", "--id=0", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "--loop-ms=500"]
            self.smi = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return self

    def __exit__(self, *_):
        self.samples = []
        if self.smi is not None:
            self.smi.terminate()
            self.samples = [float(line) for line in self.smi.communicate()[0].splitlines() if line.strip().isdigit()]

    def median(self):
        """Without the start: what is before the first kernel, and a third."""
        busy = self.samples[next((i for i, share in enumerate(self.samples) if share > 0), 0):]
        steady = busy[len(busy) // 3:]
        return statistics.median(steady) if steady else float("nan")


def job_rate(text, timeout=1800):
    """images/s of the epochs after the first, and the GPU's busy share."""
    with Cluster(ps=1, workers=1, slots=1, worker_flags=GPU) as c:
        with BusyShare() as busy:
            status = c.wait(c.submit(write_job(c.dir, text)), DEADLINE.within(timeout))
        epochs = status["epochs"][1:]
        return statistics.median(float(e["images_per_second"]) for e in epochs), busy.median()


def peer_rate(*arguments):
    """PyTorch with the libraries that it brings, not those that run.sh found for us."""
    environment = {"LD_LIBRARY_PATH": os.environ.get("CAIRN_LD_LIBRARY_PATH_BEFORE", os.environ.get("LD_LIBRARY_PATH", ""))}
    text, code = output_of([sys.executable, os.path.join(HERE, "torch_peer.py"), *map(str, arguments)], 600, environment)
    if code == 77:
        raise Skip(last_line(text))
    if code != 0:
        print(text[-4000:])
        raise Skip(f"failed: {'no time left' if code is None else last_line(text)}")  # our own figure stands
    return json.loads(text.strip().splitlines()[-1])["images_per_second"]


def alone(*arguments):
    return json.loads(run([program("gpu_bench"), *map(str, arguments)]).strip().splitlines()[-1])["images_per_second"]


def beside_peer(ours, *peer):
    try:
        theirs = peer_rate(*peer)
        return f"PyTorch {theirs:.0f}, ratio {ours / theirs:.2f}"
    except Skip as why:
        return f"PyTorch: {why}"


def resnet(compute, tf32, name):
    size = {"batch": 2, "side": 32, "epochs": 2, "steps": 1} if DRY else {"batch": 256, "side": 224, "epochs": 4, "steps": 30}
    with folder() as data:
        write_idx(data, 4 * size["batch"], size["side"], 1000)
        ours, busy = job_rate(RESNET % {"data": data, "compute": compute, "tf32": tf32, **size})
    text = f"{ours:.4g} images/s, {beside_peer(ours, 'resnet50', size['batch'], name, size['steps'])}; busy {busy:.0f} %"
    if DRY:
        return text
    return f"{text}, waits {100 * max(0, 1 - ours / alone('resnet50', size['batch'], name)):.0f} % of a step"


def resnet50_bfloat16():
    """a job of ResNet-50, 224x224, batch 256, bfloat16, 1 ps, beside PyTorch; aim 1.2, waits 5 %"""
    return resnet("BFLOAT16", "false", "bfloat16")


def resnet50_tf32():
    """the same in tf32"""
    return resnet("FLOAT32", "true", "tf32")


def resnet50_float32():
    """the same in strict float32"""
    return resnet("FLOAT32", "false", "float32")


def small_cnn():
    """the small CNN, batch 64, beside PyTorch with a CUDA graph"""
    with folder() as d:
        data = make_glyphs(d, 128 if DRY else 64000, 100)
        ours, busy = job_rate(CNN % {"data": data, "batch": 64, "epochs": 4})
    return f"{ours / 64:.4g} steps/s, {beside_peer(ours, 'cnn', 64, 'float32', 500)}; busy {busy:.0f} %"


def roofline():
    """bytes/s of kernels beside a copy within the device, FLOP/s of convolutions beside a large product"""
    out = run([program("gpu_roofline")])
    print(out)
    shares = [int(line.split("%")[0].split()[-1]) for line in out.splitlines() if "% of a copy" in line]
    ceilings = [" ".join(line.split()[-2:]) for line in out.splitlines() if line.startswith(("copy", "product"))]
    return f"ceilings {', '.join(ceilings)}; kernels {min(shares)} to {max(shares)} % of a copy; by class above the table"


# In the order of what is learned by a minute.
CORRECT = [smoke, kernels, fallback, digests, placement, sums, autotune, float16, several_gpus, accuracy, fashion_mnist, layers]
FAST = [small_cnn, resnet50_bfloat16, resnet50_tf32, roofline, sanitizer, resnet50_float32]
CHECKS = [*CORRECT, *FAST]


def stop(number, _):
    raise Stopped(f"signal {number}")


def outcome(c):
    """state and text of a check's row."""
    try:
        return "passed", c()
    except Skip as why:
        return "skipped", str(why)
    except OutOfTime as why:
        return "not whole", str(why)
    except Exception as why:  # a row of the table, whatever it was
        return "FAILED", f"{type(why).__name__}: {why}".replace("\n", " ")[:300]


def main():
    wanted = sys.argv[1:]
    if wanted == ["--list"]:
        for c in CHECKS:
            print(f"{c.__name__:20} {c.__doc__}")
        return 0
    if wanted[:1] == ["--minutes"]:
        try:
            DEADLINE.set(float(wanted[1]))
        except (IndexError, ValueError):
            print("--minutes: a number of minutes, then the checks", file=sys.stderr)
            return 2
        wanted = wanted[2:]
    for group, checks in (("correct", CORRECT), ("fast", [smoke, *FAST])):
        if group in wanted:
            wanted = [c for c in wanted if c != group] + [c.__name__ for c in checks]
    unknown = set(wanted) - {c.__name__ for c in CHECKS}
    if unknown:
        print(f"no such check: {', '.join(sorted(unknown))}; --list names them", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, stop)
    rows = []
    stopped = False
    for c in CHECKS:
        if wanted and c.__name__ not in wanted:
            continue
        begin = time.monotonic()
        keep(f"######## {c.__name__}\n")
        try:
            result = ("not run", "no time left") if stopped or DEADLINE.over() else outcome(c)
        except (Stopped, KeyboardInterrupt) as why:
            stopped, result = True, ("FAILED", f"stopped: {why}")
        rows.append((c.__name__, *result, time.monotonic() - begin))
        print(f"{c.__name__}: {result[0]}: {result[1]} ({rows[-1][3]:.0f} s)", flush=True)
    table = [f"{gpu_name()}, {time.strftime('%Y-%m-%d')}{', dry run' if DRY else ''}", "", "| check | | result | s |", "|---|---|---|---|"]
    table += [f"| {name} | {state} | {text} | {seconds:.0f} |" for name, state, text, seconds in rows]
    print("\n" + "\n".join(table))
    if os.environ.get("OUT"):
        with open(os.path.join(os.environ["OUT"], "table.md"), "w") as f:
            f.write("\n".join(table) + "\n")
    return 1 if stopped or any(state == "FAILED" for _, state, _, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
