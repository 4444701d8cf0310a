"""Checks of what a GPU computes. Each returns the text of its row."""

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import tempfile
import threading

from programs import BIN, DEADLINE, DRY, HERE, Skip, gtest, program

from cluster import Cluster, TooLate, attempts, check  # in the folder that programs.py adds to the path
from jobs import make_glyphs, small_job

GPU = ("--device", "gpu")


@contextlib.contextmanager
def folder():
    path = tempfile.mkdtemp(prefix="cairn-gpu-")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def digest_of(workers, device=GPU, slots=4, settings=None):
    with Cluster(ps=1, workers=workers, slots=slots, worker_flags=device) as c:
        data = make_glyphs(c.dir)
        status = c.wait(c.submit(small_job(c.dir, data), settings))
        return status["digest"]


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
    passed = (
        gtest([program("gpu_backend")], "Sanitized/*")
        if os.path.exists(os.path.join(BIN, "gpu_backend"))
        else "no gpu_backend"
    )
    return f"{passed}; {lines[-1].split('] ')[-1]}"


def kernels():
    """every kernel against the reference, in float32, bfloat16 and float16"""
    return gtest([program("gpu_kernels")])


def layers():
    """every layer and loss against the reference: 1e-5 strict, 2e-3 tf32, 2e-2 bfloat16, 1e-2 float16; the same
    bits again"""
    # The reference takes longer than the GPU.
    return gtest(
        [program("gpu_backend")], "Layers/*Dense*" if DRY else "Layers/*", shards=max(1, min(14, os.cpu_count() or 1))
    )


def accuracy():
    """the generated digits to the accuracy that a CPU reaches"""
    with Cluster(ps=2, workers=1, slots=2, worker_flags=GPU) as c:
        data = make_glyphs(c.dir, *((128, 16) if DRY else (12000, 2000)))
        job = c.submit(
            os.path.join(HERE, "../../examples/glyphs/job.textproto"),
            {"data.path": data, **({"epochs": 1} if DRY else {})},
        )
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
    """1 worker x 4 replicas, 2 x 2, 4 x 1 on one GPU, and repeated: one digest; another seed: another digest"""
    found = {f"{w} workers, run {i}": digest_of(w) for i, w in enumerate((1, 2, 4, 1))}
    check(len(set(found.values())) == 1, f"digests differ: {found}")
    check(digest_of(1, settings={"seed": 8}) not in found.values(), "the seed does not matter")
    return f"{next(iter(found.values()))}"


def scaled_job(c, epochs=3, **settings):
    """A job whose first steps overflow, and one every few steps after that, because the scale keeps being doubled."""
    scaling = {
        "compute_dtype": "FLOAT16",
        "loss_scaling.initial_scale": 1 << 24,
        "loss_scaling.dynamic_growth_steps": 4,
    }
    return c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {**scaling, "partition_bytes": 4096, **settings})


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
    """Resumes from a checkpoint in the middle, in another cluster."""
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
    """float16 with overflows: one digest for 1 x 4, 4 x 1, layer by layer, a lost ps, resumed; asynchronous jobs
    train"""
    whole = functools.cache(lambda epochs: scaled_digest(epochs=epochs))

    def a_ps_lost(times):
        lost = scaled_digest(lose_a_ps, workers=2, ps=2, backups=1, epochs=3 * times)
        check(lost == whole(3 * times), f"a ps lost: {lost}, not {whole(3 * times)}")

    attempts(a_ps_lost)
    found = {
        "1 worker": whole(3),
        "4 workers": scaled_digest(workers=4, ps=2),
        "CENTRAL_STORAGE": scaled_digest(strategy="CENTRAL_STORAGE"),
        "resumed": resumed_digest(),
    }
    check(len(set(found.values())) == 1, f"digests differ: {found}")
    scaled_digest(workers=2, ps=2, strategy="PARAMETER_SERVER")
    clipped = {scaled_digest(workers=w, **{"optimizer.global_clipnorm": 0.5}) for w in (1, 2)}
    check(len(clipped) == 1 and found["1 worker"] not in clipped, f"clipped: {clipped}, {found}")
    return found["1 worker"]


def lost_gpu(c, data, epochs):
    """The GPU's worker is killed in the middle of a job: the job continues on CPUs, and says so."""
    job = c.submit(small_job(c.dir, data, epochs))
    c.wait_for_step(job, 5)
    c.kill("worker-gpu")
    status = c.wait(job)
    c.restart("worker-gpu")
    c.wait_for_nodes(4)
    if status["devices"] == ["GPU"]:
        raise TooLate("the job was over before its worker was lost")
    check(
        status["devices"] == ["GPU", "CPU"] and "computed on CPUs and on GPUs" in status["reason"],
        f"devices {status['devices']}: {status.get('reason')}",
    )


def lost_device(c, data, variable):
    """A device fails or hangs, with or without a thread of the worker, in the middle of a job: the other workers
    continue the job; the device's worker says so, exits with code 75 and can be restarted."""
    name = "worker-" + variable.lower().replace("_", "-")
    c.prefix[name] = ["env", variable + "=100"]
    c.add_worker(name, *GPU)
    c.until(lambda: any(n["name"] == name and n.get("alive") for n in c.nodes()), name + " is there")
    process = c.processes[name]
    job = c.submit(small_job(c.dir, data, epochs=4), {"device": "GPU"})
    c.until(
        lambda: name + " is given no replicas: GPU 0 is lost: " in c.cairn("nodes").stdout
        or process.poll() is not None,
        "`cairn nodes` says that the device is lost",
        60,
    )
    c.wait(job)
    check("a device of a test" in c.log(name), "the device was not lost in the job")
    check(process.wait(30) == 75, f"the worker ended with {process.returncode}")
    check("this process exits with code 75" in c.log(name), "the worker does not say why it ends")
    if variable == "CAIRN_HOST_GPU_STUCK":
        check("stopped in the middle of a step" in c.log(name), "the worker did not end with a thread that hangs")


def placement():
    """in a cluster of CPUs and a GPU: FLOAT16 waits for the GPU and says why, jobs prefer it, `device` decides, jobs
    continue on CPUs without it"""
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
        check(
            status["devices"] == ["GPU"] and status["loss_scale"] >= 1,
            f"devices {status['devices']}, loss scale {status.get('loss_scale')}",
        )
        check("loss scale  " in c.cairn("job", half).stdout, "`cairn job` does not show the loss scale")
        for wish, devices in (("ANY", ["GPU"]), ("CPU", ["CPU"]), ("GPU", ["GPU"])):
            found = c.wait(c.submit(small_job(c.dir, data, epochs=1), {"device": wish}))["devices"]
            check(found == devices, f"device: {wish}: computed on {found}")
        attempts(lambda times: lost_gpu(c, data, 20 * times))
        if "CAIRN_HOST_GPUS" in os.environ:
            for variable in ("CAIRN_HOST_GPU_LOST", "CAIRN_HOST_GPU_HANGS", "CAIRN_HOST_GPU_STUCK"):
                lost_device(c, data, variable)
        return "FLOAT16 waited; ANY on the GPU, CPU on the CPU; GPU lost: on CPUs"


def several_gpus():
    """one worker with all GPUs of the machine, replicas divided among them: the digest of one GPU"""
    one = digest_of(1, device=("--device", "gpu:0"))
    simulated = "CAIRN_HOST_GPUS" in os.environ
    counts = (
        [2, 4]
        if simulated
        else [len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout.splitlines())]
    )
    if counts == [1]:
        raise Skip("one GPU: its replicas share it, see digests")
    for count in counts:
        if simulated:
            os.environ["CAIRN_HOST_GPUS"] = str(count)
        with Cluster(ps=1, workers=1, slots=4, worker_flags=GPU) as c:
            job = c.submit(small_job(c.dir, make_glyphs(c.dir)))
            digest, log = c.wait(job)["digest"], c.log("worker-0")
        check(
            f"slots on gpu:0..{count - 1}: {count} of " in log,
            f"the worker does not say that it is on {count} GPUs: {log[:400]}",
        )
        check(digest == one, f"{count} GPUs: {digest}, one: {one}")
    return f"{', '.join(map(str, counts))} GPUs: {one}"


@contextlib.contextmanager
def simulated_gpus(count):
    """Uses the plugin with simulated GPUs; a real machine has a fixed number."""
    before = os.environ.get("CAIRN_HOST_GPUS")
    if before is not None:
        os.environ["CAIRN_HOST_GPUS"] = str(count)
    try:
        yield
    finally:
        if before is not None:
            os.environ["CAIRN_HOST_GPUS"] = before


def layouts(*pairs):
    """Devices and slots to try; a real machine has a fixed number of devices."""
    return (
        pairs
        if "CAIRN_HOST_GPUS" in os.environ
        else [("all", slots) for slots in sorted({slots for _, slots in pairs})]
    )


def check_worker_lost(settings, step=20):
    """Two workers; one is lost in the middle: the digest is that of a single worker."""

    def kill(times):
        longer = {**settings, "epochs": 2 * times}
        with Cluster(ps=1, workers=2, slots=4, worker_flags=GPU) as c:
            job = c.submit(small_job(c.dir, make_glyphs(c.dir)), longer)
            c.wait_for_step(job, step)
            c.kill("worker-1")
            less = c.wait(job)["digest"]
        whole = digest_of(1, settings=longer)
        check(less == whole, f"{settings}: a worker is lost: {less}, not {whole}")

    attempts(kill)


def sums():
    """a worker's replicas are summed, and rounded to 16 bits, on its devices: one digest for any slots
    and devices, and for sums at the ps"""
    for replicas in (3, 5):
        settings = {"replicas": replicas}
        found = {"a worker each": digest_of(replicas, slots=1, settings=settings)}
        for gpus, slots in layouts((1, 1), (1, replicas), (2, replicas), (4, replicas)):
            with simulated_gpus(gpus):
                found[f"{gpus} devices, {slots} slots"] = digest_of(1, slots=slots, settings=settings)
        check(len(set(found.values())) == 1, f"{replicas} replicas: digests differ: {found}")
    with simulated_gpus(2):
        whole = digest_of(1)
        check_worker_lost({})
    for settings in (
        {"wire_dtype": "BFLOAT16"},
        {"wire_dtype": "FLOAT16", "accumulate_steps": 2},
        {"wire_dtype": "INT8"},
        {"wire_dtype": "BFLOAT16", "values_wire_dtype": "INT8"},
        {"wire_dtype": "INT4", "values_wire_dtype": "INT8"},
    ):
        found = {}
        for gpus, slots in layouts((1, 1), (1, 4), (2, 4), (4, 4)):
            with simulated_gpus(gpus):
                found[f"{gpus} devices, {slots} slots"] = digest_of(1, slots=slots, settings=settings)
        check(
            len(set(found.values())) == 1 and whole not in found.values(),
            f"{settings}: digests differ, or are those of float32: {found}",
        )
    with simulated_gpus(2):
        pieces = {"accumulate_steps": 3}
        found = {
            "a worker each": digest_of(4, slots=1, settings=pieces),
            "1 slot": digest_of(1, slots=1, settings=pieces),
            "4 slots": digest_of(1, settings=pieces),
        }
        check(len(set(found.values())) == 1, f"{pieces}: digests differ: {found}")
        check_worker_lost(pieces, step=7)
        rounded = {"wire_dtype": "BFLOAT16"}  # each replica's gradient, unless they are summed first
        found = {"a worker each": digest_of(4, slots=1, settings=rounded)}
        for slots in (1, 4):
            found[f"CENTRAL_STORAGE, {slots} slots"] = digest_of(
                1, slots=slots, settings={**rounded, "strategy": "CENTRAL_STORAGE"}
            )
        check(len(set(found.values())) == 1, f"{rounded}: digests differ: {found}")
    if not os.path.exists(os.path.join(BIN, "gpu_backend")):
        return f"{whole}; no gpu_backend"
    return f"{whole}; {gtest([program('gpu_backend')], 'Sums/Joined*')}"


def autotune():
    """--cudnn-autotune: has no effect in a deterministic job; choices of other jobs are stored, and reused"""
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
        check(
            done.returncode == 2 and "--device=gpu" in done.stderr and "libcairn_cudnn.so" in done.stderr,
            f"exit {done.returncode}: {done.stderr}",
        )
        with subprocess.Popen([*argv, "auto"], env=environment, stderr=subprocess.PIPE, text=True) as worker:
            watchdog = threading.Timer(60, worker.kill)
            watchdog.start()
            line = next(
                (line for line in worker.stderr if "computing on the CPU" in line or "slots on" in line), "it ended"
            )
            worker.kill()
            watchdog.cancel()
        check("no GPU, computing on the CPU" in line and "libcairn_cudnn.so" in line, f"--device=auto says: {line}")
        return line.strip()[-120:]
