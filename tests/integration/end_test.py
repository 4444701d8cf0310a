"""What a job leaves behind: it has succeeded only when its last values are on the disks of its ps, whatever ends them next.

Jobs with durability SNAPSHOT and no backups, whose images are 100 steps apart: nothing else holds their last values.
"""

import os

from cluster import Cluster, TooLate, attempts, check
from jobs import make_glyphs, small_job, undisturbed

EPOCHS = 5  # of 30 steps

# Its last images take long enough to be caught in the middle of them.
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
    """The bytes of the exported file, once the ps serve it."""
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
    """Each ps, then everything is killed after the end: the exported file stays the same."""
    with Cluster(ps=2, workers=1) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), EPOCHS), {"durability": "SNAPSHOT", "backups": 0, "partition_bytes": 4096})
        status = c.wait(job)
        check(status["digest"] == undisturbed(EPOCHS), f"digest {status['digest']}, undisturbed {undisturbed(EPOCHS)}")
        before = exported(c, job, "before.safetensors")
        for names in (["ps-0"], ["ps-1"], ["ps-0", "ps-1", "coordinator"]):
            restart(c, *names)
            check(exported(c, job, "after.safetensors") == before, f"the weights are other ones after kill -9 of {names}")
        print("kept after the end", flush=True)


def killed_while_it_ends(times):
    """ps-0 is killed while it writes the last values: the steps since its image are done again, and the job ends as if nothing had been."""
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
    attempts(killed_while_it_ends)
