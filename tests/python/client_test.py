"""Client and Job on clusters of real daemons: a job submitted in every form, followed, evaluated, predicted, exported,
traced, cancelled, deleted; nodes and drains; a coordinator that is killed while a job is waited for; several
coordinators; TLS. What comes back is compared with what the program `cairn` says.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import SOURCE, Cluster, attempts, check  # noqa: E402
from jobs import make_glyphs, small_job  # noqa: E402

import cairn  # noqa: E402
from cairn import spec as spec_module  # noqa: E402


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    check(False, f"nothing raised {kind.__name__}")
    return None


def close(a, b):
    return a.keys() == b.keys() and all(abs(a[name] - b[name]) < 1e-12 for name in a)


def submit_in_every_form(client, path):
    spec = spec_module.read(path)
    digests = set()
    for number, form in enumerate((path, Path(path), Path(path).read_text(), spec)):
        job = client.submit(form, set={"name": f"form-{number}", "epochs": 1})
        check(job.name == f"form-{number}", repr(job))
        check(job.wait(progress=False) == "SUCCEEDED", job.reason)
        digests.add(job.status().digest)
    check(len(digests) == 1, f"digests of one job: {digests}")


def figures(c, client, path):
    job = client.submit(path, set={"epochs": 3})
    check(job.wait(progress=False) == "SUCCEEDED" and job.state == "SUCCEEDED", job.reason)
    told = c.job(str(job.id))
    history = job.history
    check(list(history) == ["loss", "accuracy", "val_loss", "val_accuracy"], f"history: {history}")
    check(history["loss"] == [e["train"]["loss"] for e in told["epochs"]], "history is not what `cairn job` says")
    check(history["val_accuracy"] == [e["validation"]["accuracy"] for e in told["epochs"]], "history of validation")
    check(any("replicas" in line for line in job.log), f"log: {job.log}")
    check("succeeded" in job._repr_html_() and "<table>" in job._repr_html_(), "repr for notebooks")
    for split in ("train", "validation", "test"):
        wanted = c.evaluate(str(job.id), split)
        check(close(job.evaluate(split=split), {k: wanted[k] for k in ("loss", "accuracy")}), f"evaluate of {split}")
    return job


def outputs(c, job, data):
    target = os.path.join(c.dir, "p.npy")
    c.cairn("predict", str(job.id), "--split", "test", "-o", target)
    wanted = numpy.load(target)
    check(numpy.array_equal(job.predict(), wanted), "predict is not what `cairn predict` writes")
    check(numpy.array_equal(job.predict(data), wanted), "predict of the same data by their path")
    check(close(job.evaluate(data), job.evaluate()), "evaluate of the same data by their path")
    # Data with one split need not be told which, and what is told counts.
    alone = os.path.join(c.dir, "alone")
    os.makedirs(alone)
    for kind in ("images-idx3", "labels-idx1"):
        shutil.copy(os.path.join(data, f"t10k-{kind}-ubyte.gz"), os.path.join(alone, f"train-{kind}-ubyte.gz"))
    check(numpy.array_equal(job.predict(alone), wanted), "predict of a train split alone")
    check(close(job.evaluate(alone), job.evaluate(alone, split="train")), "evaluate of a train split alone")
    error = raises(cairn.FailedPrecondition, lambda: job.predict(alone, split="test"))
    check("--split train" in str(error), str(error))
    weights = job.export(os.path.join(c.dir, "m.safetensors"))
    check(numpy.array_equal(job.predict(weights=weights), wanted), "predict with exported weights")
    for name, more in (("m.keras", {}), ("m.onnx", {"fold_batch_norm": True}), ("t", {"format": "safetensors"})):
        check(job.export(Path(c.dir) / name, **more).stat().st_size > 1000, name)
    check(job.export(f"{c.dir}/torch.safetensors", layout="torch").exists(), "PyTorch's layout")
    error = raises(cairn.ProgramError, lambda: job.export(f"{c.dir}/no-such-folder/m.keras"))
    check("there is no folder" in str(error), str(error))
    error = raises(cairn.InvalidArgument, lambda: job.evaluate("/no/such/data"))
    check("/no/such/data" in str(error), str(error))
    error = raises(ValueError, lambda: job.predict(numpy.zeros((2, 28, 28, 1))))
    check("the workers of" in str(error), str(error))


def names_and_ends(client, path):
    first = client.submit(path, set={"name": "twice", "epochs": 1})
    second = client.submit(path, set={"name": "twice", "epochs": 100_000})
    check(client.job("twice").id == second.id and client.job(first.id).name == "twice", "by name the newest one")
    check([job.id for job in client.jobs()][:2] == [second.id, first.id], "jobs, newest first")
    error = raises(TimeoutError, lambda: second.wait(timeout=0.2, progress=False))
    check(str(error).endswith("after 0.2 s; it goes on"), str(error))
    error = raises(cairn.FailedPrecondition, second.delete)
    check(error.code == "FAILED_PRECONDITION", error.code)
    check(second.cancel().state == "CANCELLED", "cancelled")
    error = raises(cairn.JobFailed, lambda: second.wait(progress=False))
    check(error.state == "CANCELLED" and error.job.id == second.id and "was cancelled" in str(error), str(error))
    first.wait(progress=False)
    first.delete()
    error = raises(cairn.NotFound, first.status)
    check(str(error) == f"there is no job {first.id}", str(error))
    check(isinstance(error, LookupError), "NotFound is a LookupError too")


def refused(client, path):
    error = raises(cairn.InvalidArgument, lambda: client.submit(path, set={"data.path": "/no/such/data"}))
    check("/no/such/data" in str(error) and isinstance(error, ValueError), str(error))
    error = raises(cairn.InvalidArgument, lambda: client.submit(path, set={"model.layers[6].conv2d.filters": -1}))
    check("filters" in str(error), str(error))


def warned(client, path):
    """What the coordinator warns of is a warning."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        job = client.submit(path, set={"epochs": 1, "replicas": 1})
    job.wait(progress=False)
    return [str(w.message) for w in caught]


def nodes(c, client):
    found = {node.name: node for node in client.nodes()}
    check(set(found) == {"ps-0", "ps-1", "worker-0", "worker-1"} and all(n.alive for n in found.values()), str(found))
    check(client.drain("worker-1").draining, "drained")
    check(not client.drain("worker-1", undo=True).draining, "and not any more")
    error = raises(cairn.NotFound, lambda: client.drain("worker-9"))
    check("worker-9" in str(error), str(error))


INTERRUPTED = """
import sys, cairn
job = cairn.Client(sys.argv[1]).submit(sys.argv[2], set={"epochs": 100000, "name": "interrupted"})
print(job.id, flush=True)
job.wait()
"""


def traced(c, client, path):
    """The time line of a running job, by a Job, a name and a number."""
    job = client.submit(path, set={"epochs": 100_000, "name": "traced"})
    c.until(lambda: job.status().step > 3, "it trains")
    target = Path(c.dir) / "trace.json"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check(job.trace(target, steps=3) == target, "the path of the file")
    trace = json.loads(target.read_text())
    other = trace["otherData"]
    check(other["job_name"] == "traced" and other["last_step"] - other["first_step"] == 2, str(other))
    check(not caught, [str(w.message) for w in caught])
    names = {e["args"]["name"] for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "process_name"}
    check(len(names) >= 2, f"processes: {names}")
    for which in (job, "traced", job.id):
        check(client.trace(which, steps=1, path=target) == target and target.exists(), f"{which}")
    error = raises(cairn.NotFound, lambda: client.trace("no such", path=target))
    check("no such" in str(error), str(error))
    error = raises(cairn.ProgramError, lambda: job.trace(f"{c.dir}/no-such-folder/t.json"))
    check("there is no folder" in str(error), str(error))
    job.cancel()
    c.until(lambda: job.state == "CANCELLED", "it is cancelled")
    before = target.read_bytes()
    raises(cairn.ProgramError, lambda: job.trace(target, seconds=1))
    check(target.read_bytes() == before, "the file of the trace before is as it was")


def ctrl_c(c, client, path):
    """Ends the wait, and not the job."""
    script = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, c.address, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    job = client.job(int(script.stdout.readline()))
    c.until(lambda: job.status().step > 3, "it trains")
    for line in script.stdout:  # the wait has begun when it shows something
        if "running" in line:
            break
    script.send_signal(signal.SIGINT)
    out, errors = script.communicate(timeout=60)
    check(f"job {job.id} goes on; job.wait() shows it again, job.cancel() ends it" in out, out)
    check("KeyboardInterrupt" in errors, errors)
    step = job.status().step
    c.until(lambda: job.status().step > step, "it trains on")
    job.cancel()


def coordinator_killed(times):
    """A wait goes on over the death of the coordinator."""
    with Cluster(ps=1, workers=1) as c, cairn.Client(c.address) as client:
        data = make_glyphs(c.dir)
        job = client.submit(small_job(c.dir, data, 20 * times))
        c.wait_for_step(str(job.id), 5)
        c.kill("coordinator")
        c.restart("coordinator")
        check(job.wait(progress=False) == "SUCCEEDED", "a job over the death of the coordinator")
        check(len(job.history["loss"]) == 20 * times, "every epoch's figures")


def several_coordinators():
    if shutil.which("etcd") is None:
        print("several coordinators: skipped, there is no etcd", flush=True)
        return
    with Cluster(ps=1, workers=1, coordinators=2, etcd=True) as c:
        standby = next(name for name in c.coordinators if name != c.wait_for_leader())
        addresses = c.address.split(",")
        if standby == "coordinator-0":
            addresses.reverse()
        # The one that stands by names the leader.
        with cairn.Client(",".join(reversed(addresses))) as client:
            check(len(client.nodes()) == 2, "a standby is asked first")
            job = client.submit(small_job(c.dir, make_glyphs(c.dir), 1))
            job.wait(progress=False)
            c.kill(c.leader())
            check(client.job(job.id).name == "small", "another one leads")


def over_tls():
    with tempfile.TemporaryDirectory() as folder:
        make_certs = [f"{SOURCE}/deploy/make_certs.sh", folder, "coordinator+ps=*+worker=*+admin:node,127.0.0.1"]
        subprocess.run(make_certs, check=True, stdout=subprocess.DEVNULL)
        certs = os.path.join(folder, "node")
        os.environ["CAIRN_TLS_DIR"] = certs
        try:
            with Cluster(ps=1, workers=1) as c:
                with cairn.Client(c.address) as client:  # by the environment
                    check(len(client.nodes()) == 2, "nodes over TLS")
                del os.environ["CAIRN_TLS_DIR"]
                error = raises(cairn.Unavailable, lambda: cairn.Client(c.address).nodes())
                check("does it speak TLS" in str(error).split("is it running?")[0], str(error))
                key = shutil.copy(f"{certs}/tls.key", f"{folder}/mine.key")  # names of one's own
                with cairn.Client(c.address, ca=f"{certs}/ca.crt", cert=f"{certs}/tls.crt", key=key) as client:
                    job = client.submit(small_job(c.dir, make_glyphs(c.dir), 1))
                    job.wait(progress=False)
                    check(len(job.history["loss"]) == 1, "`cairn` speaks TLS with these files too")
                os.environ["CAIRN_TLS_DIR"] = certs  # for the cluster's own end
        finally:
            os.environ["CAIRN_TLS_DIR"] = ""


def main():
    with Cluster(ps=2, workers=2, slots=2) as c, cairn.Client(c.address) as client:
        data = make_glyphs(c.dir)
        path = small_job(c.dir, data, 2)
        submit_in_every_form(client, path)
        outputs(c, figures(c, client, path), data)
        names_and_ends(client, path)
        refused(client, path)
        print("warnings:", warned(client, path), flush=True)
        nodes(c, client)
        traced(c, client, path)
        ctrl_c(c, client, path)
        print("a cluster: ok", flush=True)
    attempts(coordinator_killed)
    print("a coordinator killed: ok", flush=True)
    several_coordinators()
    over_tls()
    print("TLS: ok", flush=True)


if __name__ == "__main__":
    main()
