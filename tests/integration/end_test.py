"""What a job leaves behind: it has succeeded only when its last values are on the disks of its ps, however those end
next. Nothing else of an ended job is kept.

Tested with jobs with durability SNAPSHOT and no backups, whose images are 100 steps apart, so that nothing else holds
their last values; and with jobs with a log.
"""

import os

from cluster import Cluster, TooLate, attempts, check
from jobs import make_glyphs, small_job, undisturbed

EPOCHS = 5  # of 30 steps

# Writing its last images takes long enough to be interrupted.
LARGE = """
name: "large"
model {
  layers { input { shape: [28, 28, 1] } }
  layers { flatten { } }
  layers { dense { units: %(units)d activation: RELU } }
  layers { dense { units: %(units)d activation: RELU } }
  layers { dense { units: 10 activation: SOFTMAX } }
}
data { path: "%(data)s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { adam { } learning_rate: 0.001 }
batch_size: 50
epochs: 1
replicas: 2
"""


def exported(c, job, name):
    """Returns the bytes of the exported file, once the ps serve it."""
    path = os.path.join(c.dir, name)
    c.until(lambda: c.cairn("export", job, "-o", path, ok=False).returncode == 0, f"{name} exported")
    with open(path, "rb") as f:
        return f.read()


def restart(c, *names):
    for name in names:
        c.kill(name)
    for name in names:
        c.restart(name)
    c.wait_for_nodes(3)


def kept_when_it_has_succeeded():
    """Each ps, then all daemons, are killed after the end: the exported file stays the same."""
    with Cluster(ps=2, workers=1) as c:
        job = c.submit(
            small_job(c.dir, make_glyphs(c.dir), EPOCHS),
            {"durability": "SNAPSHOT", "backups": 0, "partition_bytes": 4096},
        )
        status = c.wait(job)
        check(status["digest"] == undisturbed(EPOCHS), f"digest {status['digest']}, undisturbed {undisturbed(EPOCHS)}")
        before = exported(c, job, "before.safetensors")
        for names in (["ps-0"], ["ps-1"], ["ps-0", "ps-1", "coordinator"]):
            restart(c, *names)
            check(
                exported(c, job, "after.safetensors") == before, f"the weights are other ones after kill -9 of {names}"
            )
        print("kept after the end", flush=True)


MIB = 1 << 20


def memory(c, name):
    with open(f"/proc/{c.processes[name].pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("VmRSS:"))


def disk(c, name):
    """The disk space of its store's files."""
    total = 0
    for folder, _, files in os.walk(os.path.join(c.dir, name, "store")):
        for file in files:
            try:
                total += os.stat(os.path.join(folder, file)).st_blocks * 512
            except FileNotFoundError:
                pass  # removed meanwhile
    return total


def weights(file):
    """Reads a .safetensors file, whose header names the job."""
    return file[8 + int.from_bytes(file[:8], "little") :]


def nothing_but_its_values():
    """Of ended jobs only the values are kept, and only on the disk, even after a restart; the log, older images and
    slots are gone."""
    with Cluster(ps=1, workers=1) as c:
        path = os.path.join(c.dir, "large.textproto")
        with open(path, "w") as f:
            f.write(LARGE % {"data": make_glyphs(c.dir, count=500), "units": 2048})
        before = memory(c, "ps-0")
        jobs = [c.submit(path, {"backups": 0}) for _ in range(4)]
        for job in jobs:
            c.wait(job)
        values = len(exported(c, jobs[0], "values.safetensors"))
        check(values > 20 * MIB, f"{values} bytes are too few to see a difference")

        def small():
            # Memory that belongs to no job, such as the store's buffers, is less than another job's values. The open
            # files, one of each kind, may be full of deleted data.
            return memory(c, "ps-0") < before + 2 * values and disk(c, "ps-0") < len(jobs) * values + 3 * 32 * MIB

        c.until(small, "memory and disk are given back")
        print(
            f"ended: {memory(c, 'ps-0') / MIB:.0f} MiB in memory, {disk(c, 'ps-0') / MIB:.0f} MiB on disk, "
            f"values {values / MIB:.0f} MiB each",
            flush=True,
        )
        files = [exported(c, job, f"{job}.safetensors") for job in jobs]
        check(weights(files[0]) == weights(files[1]), "two equal jobs have other weights")
        c.until(small, "memory is given back after the export")
        c.kill("ps-0")
        c.restart("ps-0")
        c.wait_for_nodes(2)
        check(exported(c, jobs[1], "again.safetensors") == files[1], "other weights after a restart")
        c.until(small, "memory is given back after the restart")
        check(memory(c, "ps-0") < before + 2 * values, "ended jobs are loaded by a restart")


def killed_while_it_ends(times):
    """ps-0 is killed while it writes the last values: the steps since its image are repeated, and the job ends as if
    nothing had happened."""
    with Cluster(ps=2, workers=1) as c:
        path = os.path.join(c.dir, "large.textproto")
        with open(path, "w") as f:
            f.write(LARGE % {"data": make_glyphs(c.dir, count=500), "units": 2048 * times})
        settings = {"durability": "SNAPSHOT", "backups": 0}
        digest = c.wait(c.submit(path, settings))["digest"]
        job = c.submit(path, settings)

        def writes():
            status = c.job(job)
            if status["state"] == "SUCCEEDED":
                raise TooLate("its last values were written")
            return status["state"] == "FINALIZING" and "writes the last values" in status.get("reason", "")

        c.until(writes, "its last values are being written", timeout=300)
        c.kill("ps-0")
        check(c.job(job)["state"] == "FINALIZING", "it ended without ps-0")
        c.restart("ps-0")
        check(c.wait(job)["digest"] == digest, "another digest")
        if "falls back" not in c.log("coordinator"):
            raise TooLate("ps-0 had written")
        print("killed while it ends", flush=True)


if __name__ == "__main__":
    kept_when_it_has_succeeded()
    nothing_but_its_values()
    attempts(killed_while_it_ends)
