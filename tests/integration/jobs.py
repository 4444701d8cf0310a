"""Jobs and data that several tests use."""

import functools
import os
import shutil
import subprocess

from cluster import BIN, Cluster

SMALL_CNN = """
name: "small"
model {
  layers { input { shape: [28, 28, 1] } }
  layers { rescaling { scale: 0.003921569 } }
  layers { conv2d { filters: 8 kernel_size: 3 strides: 2 padding: SAME } }
  layers { batch_normalization { momentum: 0.9 } }
  layers { activation { activation: RELU } }
  layers { max_pooling2d { } }
  layers { conv2d { filters: 16 kernel_size: 3 activation: RELU } }
  layers { dropout { rate: 0.1 } }
  layers { flatten { } }
  layers { dense { units: 10 activation: SOFTMAX } }
}
data { path: "%(data)s" validation_split: 0.1 }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
metrics { kind: ACCURACY }
optimizer { adam { } learning_rate: 0.003 }
batch_size: 60
epochs: %(epochs)d
replicas: 4
seed: 7
%(more)s
"""


def make_glyphs(directory, count=2000, test_count=400, kind="glyphs"):
    path = os.path.join(directory, kind)
    subprocess.run(
        [
            os.path.join(BIN, "cairn"),
            "data",
            "make",
            kind,
            path,
            "--count",
            str(count),
            "--test-count",
            str(test_count),
            "--seed",
            "1",
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return path


def small_job(directory, data, epochs=2, more="", name="job.textproto"):
    path = os.path.join(directory, name)
    with open(path, "w") as f:
        f.write(SMALL_CNN % {"data": data, "epochs": epochs, "more": more})
    return path


@functools.cache
def undisturbed(epochs, **settings):
    """The digest of an undisturbed small_job with this length and these settings. Each is trained once."""
    with Cluster(ps=1, workers=1) as c:
        return c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"backups": 0, **settings}))["digest"]


def restart_all(cluster):
    """Kills the daemons at the same time and restarts them, each ps without what it had stored."""
    names = ["coordinator", "ps-0", "ps-1", "worker-0", "worker-1"]
    for name in names:
        cluster.kill(name, wait=False)
    for name in names:
        cluster.processes[name].wait()
        if name.startswith("ps"):
            shutil.rmtree(f"{cluster.dir}/{name}")
        cluster.restart(name)


def restart_alone(c):
    """Worker-0 is the only one, and has joined again: a job that is submitted while there is no worker is not tried."""
    c.kill("worker-0")
    joined = c.log("worker-0").count("joined the cluster")
    c.restart("worker-0")
    c.until(lambda: c.log("worker-0").count("joined the cluster") > joined, "worker-0 joins again")
    c.until(lambda: {n["name"] for n in c.nodes() if n.get("alive")} == {"ps-0", "worker-0"}, "one worker")
