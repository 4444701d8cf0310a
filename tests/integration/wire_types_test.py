"""Promise 3 for every wire_dtype and values_wire_dtype: one digest for any number of workers and ps, any partition size
and every synchronous strategy, even if a worker and a ps are killed. The model is as good as with FLOAT32, also on
unscaled pictures, whose sums over a batch, and the variances computed from them, are large."""

import functools
import os

from cluster import Cluster, attempts, check
from jobs import make_glyphs, small_job

EPOCHS = 12
TYPES = {
    **{name: {"wire_dtype": name} for name in ("FLOAT32", "BFLOAT16", "FLOAT16", "INT8")},
    # 1.6 and 1.4 bytes of a number's gradient and value together, in place of 8
    **{f"{name}, values INT8": {"wire_dtype": name, "values_wire_dtype": "INT8"} for name in ("INT4", "INT2")},
    "BFLOAT16, values INT8": {"wire_dtype": "BFLOAT16", "values_wire_dtype": "INT8"},
}

# How far a model may be from that of FLOAT32, in shares of its loss, and of accuracy. Two bits are noise.
LOSS_OFF, ACCURACY_OFF = 0.1, 0.03
NOISY = {"INT2, values INT8": 5}  # times as far

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


def run(types, ps, workers, settings=None):
    with Cluster(ps=ps, workers=workers) as c:
        return c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir)), {**TYPES[types], **(settings or {})}))["digest"]


@functools.cache
def undisturbed(types, epochs):
    """Digest, and accuracy on the test split."""
    with Cluster(ps=1, workers=1) as c:
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), TYPES[types])
        return c.wait(job)["digest"], c.evaluate(job)["accuracy"]


def disturbed(types, epochs, settings):
    expected = undisturbed(types, epochs)[0]
    with Cluster(ps=3, workers=3) as c:
        job = c.submit(
            small_job(c.dir, make_glyphs(c.dir), epochs), {**TYPES[types], "partition_bytes": 4096, **settings}
        )
        c.wait_for_step(job, epochs * 30 // 6)
        c.kill("worker-1")
        c.kill("ps-1")
        step = int(c.job(job)["step"])
        c.restart("ps-1")
        c.while_running(job, lambda status: int(status["step"]) > step + 1, "steps without worker-1")
        digest = c.wait(job)["digest"]
        check(
            digest == expected,
            f"{types}, {settings}: digest {digest} with a worker and a ps killed, {expected} without",
        )
        print(f"{types}, {settings}: killed, same digest", flush=True)


def one_digest(types):
    digests = {
        "1 ps, 1 worker": run(types, 1, 1),
        "3 ps, 2 workers, 4 KiB partitions": run(types, 3, 2, {"partition_bytes": 4096}),
        "1 ps, 4 workers, 1 KiB partitions": run(types, 1, 4, {"partition_bytes": 1024}),
        "mirrored": run(types, 1, 2, {"strategy": "MIRRORED"}),
        "central storage": run(types, 2, 2, {"strategy": "CENTRAL_STORAGE"}),
        "staleness bound 0": run(types, 2, 2, {"strategy": "PARAMETER_SERVER", "staleness_bound": 0}),
    }
    print(types, digests, flush=True)
    check(len(set(digests.values())) == 1, f"{types}: digests differ: {digests}")
    pieces = {"accumulate_steps": 2}
    check(run(types, 1, 1, pieces) == run(types, 1, 4, pieces), f"{types}: digests differ with {pieces}")


def unscaled(types, layers, batch, epochs):
    """Digests with one worker and with two, and the first run's loss and accuracy."""
    digests = []
    for workers in (2, 1):
        with Cluster(ps=1, workers=workers) as c:
            path = os.path.join(c.dir, "unscaled.textproto")
            with open(path, "w") as f:
                f.write(UNSCALED % {"layers": layers, "data": make_glyphs(c.dir), "batch": batch, "epochs": epochs})
            job = c.submit(path, TYPES[types])
            digests.append(c.wait(job)["digest"])
            result = c.evaluate(job)
    check(len(set(digests)) == 1, f"{types}: digests differ: {digests}")
    print(f"{types}, pictures that are not scaled, batches of {batch}: {result}", flush=True)
    return result


def check_accuracy(types, accuracy, exact):
    check(abs(accuracy - exact) < ACCURACY_OFF * NOISY.get(types, 1), f"{types}: accuracy {accuracy}, FLOAT32 {exact}")


def large_numbers():
    sums = {types: unscaled(types, "", 1800, 5)["loss"] for types in TYPES}
    for types, loss in sums.items():
        check(
            loss is not None and abs(loss - sums["FLOAT32"]) < LOSS_OFF * NOISY.get(types, 1) * sums["FLOAT32"],
            f"{types}: loss {loss}, FLOAT32 {sums['FLOAT32']}",
        )
    variances = {types: unscaled(types, NORMALIZED, 120, 3)["accuracy"] for types in TYPES}
    for types, accuracy in variances.items():
        check_accuracy(types, accuracy, variances["FLOAT32"])


def main():
    large_numbers()
    for types in list(TYPES)[1:]:
        one_digest(types)
    for types, settings in (
        ("INT8", {"backups": 0}),
        ("INT4, values INT8", {"backups": 0}),
        ("INT2, values INT8", {"backups": 1}),
    ):
        attempts(lambda times: disturbed(types, EPOCHS * times, settings))
    accuracies = {types: undisturbed(types, EPOCHS)[1] for types in TYPES}
    print(accuracies)
    for types, accuracy in accuracies.items():
        check_accuracy(types, accuracy, accuracies["FLOAT32"])


if __name__ == "__main__":
    main()
