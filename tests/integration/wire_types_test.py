"""Promise 3 for every wire_dtype: one digest for any number of workers and ps, any partition size and every synchronous
strategy, even if a worker and a ps are killed. The model is as good as with FLOAT32, also on unscaled pictures, whose
sums over a batch, and the variances computed from them, are large."""

import functools
import os

from cluster import Cluster, attempts, check
from jobs import make_glyphs, small_job

EPOCHS = 12
WIRES = ("FLOAT32", "BFLOAT16", "FLOAT16", "INT8")

# Sums of 1800 gradients, and variances, of numbers up to 255.
UNSCALED = """
name: "unscaled"
model { layers { input { shape: [28, 28, 1] } } %(layers)s layers { flatten { } }
  layers { dense { units: 10 activation: SOFTMAX } } }
data { path: "%(data)s" validation_split: 0.1 }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
metrics { kind: ACCURACY }
optimizer { adam { } learning_rate: 0.003 }
batch_size: %(batch)d
epochs: %(epochs)d
replicas: 4
seed: 7
"""
NORMALIZED = """
layers { conv2d { filters: 8 kernel_size: 3 strides: 2 padding: SAME } }
layers { batch_normalization { momentum: 0.9 } }
layers { activation { activation: RELU } }
"""


def run(wire, ps, workers, settings=None):
    with Cluster(ps=ps, workers=workers) as c:
        return c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir)), {"wire_dtype": wire, **(settings or {})}))[
            "digest"
        ]


@functools.cache
def undisturbed(wire, epochs):
    """Digest, and accuracy on the test split."""
    with Cluster(ps=1, workers=1) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {"wire_dtype": wire})
        return c.wait(job)["digest"], c.evaluate(job)["accuracy"]


def disturbed(wire, epochs, settings):
    expected = undisturbed(wire, epochs)[0]
    with Cluster(ps=3, workers=3) as c:
        job = c.submit(
            small_job(c.dir, make_glyphs(c.dir), epochs), {"wire_dtype": wire, "partition_bytes": 4096, **settings}
        )
        c.wait_for_step(job, epochs * 30 // 6)
        c.kill("worker-1")
        c.kill("ps-1")
        step = int(c.job(job)["step"])
        c.restart("ps-1")
        c.while_running(job, lambda status: int(status["step"]) > step + 1, "steps without worker-1")
        digest = c.wait(job)["digest"]
        check(
            digest == expected, f"{wire}, {settings}: digest {digest} with a worker and a ps killed, {expected} without"
        )
        print(f"{wire}, {settings}: killed, same digest", flush=True)


def one_digest(wire):
    digests = {
        "1 ps, 1 worker": run(wire, 1, 1),
        "3 ps, 2 workers, 4 KiB partitions": run(wire, 3, 2, {"partition_bytes": 4096}),
        "1 ps, 4 workers, 1 KiB partitions": run(wire, 1, 4, {"partition_bytes": 1024}),
        "mirrored": run(wire, 1, 2, {"strategy": "MIRRORED"}),
        "central storage": run(wire, 2, 2, {"strategy": "CENTRAL_STORAGE"}),
        "staleness bound 0": run(wire, 2, 2, {"strategy": "PARAMETER_SERVER", "staleness_bound": 0}),
    }
    print(wire, digests, flush=True)
    check(len(set(digests.values())) == 1, f"{wire}: digests differ: {digests}")
    pieces = {"accumulate_steps": 2}
    check(run(wire, 1, 1, pieces) == run(wire, 1, 4, pieces), f"{wire}: digests differ with {pieces}")


def unscaled(wire, layers, batch, epochs):
    """Digests with one worker and with two, and the first run's loss and accuracy."""
    digests = []
    for workers in (2, 1):
        with Cluster(ps=1, workers=workers) as c:
            path = os.path.join(c.dir, "unscaled.textproto")
            with open(path, "w") as f:
                f.write(UNSCALED % {"layers": layers, "data": make_glyphs(c.dir), "batch": batch, "epochs": epochs})
            job = c.submit(path, {"wire_dtype": wire})
            digests.append(c.wait(job)["digest"])
            result = c.evaluate(job)
    check(len(set(digests)) == 1, f"{wire}: digests differ: {digests}")
    print(f"{wire}, pictures that are not scaled, batches of {batch}: {result}", flush=True)
    return result


def large_numbers():
    sums = {wire: unscaled(wire, "", 1800, 5)["loss"] for wire in WIRES}
    for wire, loss in sums.items():
        check(
            loss is not None and abs(loss - sums["FLOAT32"]) < 0.1 * sums["FLOAT32"],
            f"{wire}: loss {loss}, FLOAT32 {sums['FLOAT32']}",
        )
    variances = {wire: unscaled(wire, NORMALIZED, 120, 3)["accuracy"] for wire in WIRES}
    for wire, accuracy in variances.items():
        check(
            abs(accuracy - variances["FLOAT32"]) < 0.03, f"{wire}: accuracy {accuracy}, FLOAT32 {variances['FLOAT32']}"
        )


def main():
    large_numbers()
    for wire in ("BFLOAT16", "FLOAT16", "INT8"):
        one_digest(wire)
    for wire, settings in (("BFLOAT16", {"backups": 0}), ("INT8", {"backups": 0}), ("INT8", {"backups": 1})):
        attempts(lambda times: disturbed(wire, EPOCHS * times, settings))
    accuracies = {wire: undisturbed(wire, EPOCHS)[1] for wire in WIRES}
    print(accuracies)
    for wire, accuracy in accuracies.items():
        check(
            abs(accuracy - accuracies["FLOAT32"]) < 0.03,
            f"{wire}: accuracy {accuracy}, FLOAT32 {accuracies['FLOAT32']}",
        )


if __name__ == "__main__":
    main()
