"""TensorFlow's tutorials of tf.distribute, as translated in Cairn's README, end to end and short: real clusters, few
steps.

  mirrored            "Distributed training with Keras": a CNN with MirroredStrategy; checkpoints, TensorBoard and a
                      schedule by epoch; evaluated from the latest checkpoint; exported, and loaded again with and
                      without a strategy: the same accuracy to the last digit
  multi_worker        "Multi-worker training with Keras": the same job on two workers: the same digest
  parameter_server    "Parameter server training": 2 ps, 4 workers
  resnet              CIFAR-10 with a residual network: every synchronous strategy, the same digest
  text                "Text classification with a Transformer": embedding, attention, the mean over the words; mirrored
                      and two workers

    tutorials_test.py [CASE]...
"""

import glob
import os
import subprocess
import sys

from cluster import BIN, Cluster, check
from jobs import make_glyphs

CNN = """
name: "tutorial"
model { ready_made { name: "mnist_cnn" } }
data { path: "%(data)s" validation_split: 0.1 }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
metrics { kind: ACCURACY }
optimizer { adam { } learning_rate: 0.001 }
callbacks { learning_rate_scheduler { schedule {
  piecewise_constant_decay { boundaries: [0, 1] values: [0.001, 0.0005, 0.0001] } } } }
callbacks { tensorboard { log_dir: "%(dir)s/logs" } }
callbacks { csv_logger { filename: "%(dir)s/log.csv" } }
checkpoints { dir: "%(dir)s/checkpoints" every_epochs: 1 }
batch_size: 64
epochs: 3
replicas: 2
seed: 5
"""
RESNET = """
name: "resnet"
model { ready_made { name: "resnet18" input_shape: [32, 32, 3] classes: 10 } }
data { path: "%(data)s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
metrics { kind: ACCURACY }
optimizer { sgd { momentum: 0.9 } learning_rate: 0.02 }
batch_size: 8
steps_per_epoch: 4
epochs: 1
replicas: 2
seed: 5
"""


def write_job(c, name, text, data):
    path = os.path.join(c.dir, f"{name}.textproto")
    with open(path, "w") as f:
        f.write(text % {"data": data, "dir": os.path.join(c.dir, name)})
    return path


def figures(evaluated):
    return evaluated["loss"], evaluated["accuracy"]


def mirrored():
    with Cluster(ps=1, workers=1, slots=2) as c:
        data = make_glyphs(c.dir)
        job = c.submit(write_job(c, "mirrored", CNN, data), {"strategy": "MIRRORED"})
        status = c.wait(job)
        rates = [round(e["learning_rate"], 7) for e in status["epochs"]]
        check(rates == [0.001, 0.0005, 0.0001], f"learning rates {rates}")
        wanted = figures(c.evaluate(job))
        check(wanted[1] > 0.6, f"it learned little: {wanted}")

        latest = os.path.join(c.dir, "mirrored/checkpoints")
        check(figures(c.evaluate_with(job, "--weights", latest)) == wanted, "the latest checkpoint: another accuracy")
        # One after each of the three epochs. While the first is still being written, the second waits for it: then it
        # is of a later step, or the last one takes its place.
        written = sorted(int(name.removeprefix("step-")) for name in os.listdir(latest))
        second = written[1:-1]
        check(written[0] == 29 and written[-1] == 87, written)
        check(len(second) <= 1 and all(58 <= step < 87 for step in second), written)
        check(glob.glob(os.path.join(c.dir, "mirrored/logs/train/events.out.tfevents.*")), "no TensorBoard files")
        with open(os.path.join(c.dir, "mirrored/log.csv")) as f:
            check(len(f.readlines()) == 4, "log.csv: a head and three epochs")

        without_callbacks = "\n".join(line for line in CNN.splitlines() if not line.startswith(("callbacks", " ")))
        for name in ("model.keras", "model.onnx", "model.safetensors"):
            path = os.path.join(c.dir, name)
            c.cairn("export", job, "-o", path)
            check(figures(c.evaluate_with(job, "--weights", path)) == wanted, f"{name}: another accuracy")
            for strategy in ("MIRRORED", "PARAMETER_SERVER"):
                # One step with a tiny learning rate leaves every bit unchanged.
                again = c.submit(
                    write_job(c, f"again-{name}-{strategy}", without_callbacks, data),
                    {
                        "strategy": strategy,
                        "initial_weights": path,
                        "steps_per_epoch": 1,
                        "epochs": 1,
                        "optimizer": "{ sgd { } learning_rate: 1e-30 }",
                    },
                )
                c.wait(again)
                check(figures(c.evaluate(again)) == wanted, f"{name}, {strategy}: another accuracy")
        return status["digest"]


def multi_worker():
    with Cluster(ps=2, workers=2) as c:
        return c.wait(c.submit(write_job(c, "multi", CNN, make_glyphs(c.dir))))["digest"]


def parameter_server():
    with Cluster(ps=2, workers=4) as c:
        job = c.submit(
            write_job(c, "ps", CNN, make_glyphs(c.dir)),
            {"strategy": "PARAMETER_SERVER", "replicas": 4, "batch_size": 128},
        )
        status = c.wait(job)
        check(c.evaluate(job)["accuracy"] > 0.5, c.evaluate(job))
        check(
            all(e["staleness_max"] != "0" for e in status["epochs"]),
            f"four replicas at once, and no staleness: {status['epochs']}",
        )


def resnet():
    digests = {}
    with Cluster(ps=2, workers=2) as c:
        data = os.path.join(c.dir, "colour-glyphs")
        subprocess.run(
            [os.path.join(BIN, "cairn"), "data", "make", "colour-glyphs", data, "--count", "200", "--test-count", "20"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        path = write_job(c, "resnet", RESNET, data)
        for strategy in ("MIRRORED", "MULTI_WORKER_MIRRORED", "CENTRAL_STORAGE"):
            digests[strategy] = c.wait(c.submit(path, {"strategy": strategy}))["digest"]
    print(digests, flush=True)
    check(len(set(digests.values())) == 1, f"digests differ: {digests}")


TEXT = """
name: "text"
model {
  layers { input { shape: [64] } }
  layers { name: "words" embedding { input_dim: 2000 output_dim: 16 } }
  layers { name: "attention" inputs: ["words", "words"] multi_head_attention { num_heads: 2 key_dim: 8 dropout: 0.1 } }
  layers { name: "sum" inputs: ["words", "attention"] add { } }
  layers { layer_normalization { epsilon: 1e-6 } }
  layers { global_average_pooling1d { } }
  layers { dropout { rate: 0.1 } }
  layers { dense { units: 4 activation: SOFTMAX } }
}
data { path: "%(data)s" format: TFRECORD validation_split: 0.1 }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
metrics { kind: ACCURACY }
optimizer { adam { } learning_rate: 0.01 }
batch_size: 50
epochs: 2
replicas: 2
seed: 5
"""


def text():
    results = {}
    for strategy, ps, workers, slots in (("MIRRORED", 1, 1, 2), ("MULTI_WORKER_MIRRORED", 2, 2, 1)):
        with Cluster(ps=ps, workers=workers, slots=slots) as c:
            data = os.path.join(c.dir, "texts")
            subprocess.run(
                [os.path.join(BIN, "cairn"), "data", "make", "texts", data, "--count", "2000", "--test-count", "400"],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            job = c.submit(write_job(c, "text", TEXT, data), {"strategy": strategy, "partition_bytes": 16384})
            status = c.wait(job)
            results[strategy] = (status["digest"], c.evaluate(job)["accuracy"])
    print(results, flush=True)
    check(len({digest for digest, _ in results.values()}) == 1, f"digests differ: {results}")
    check(results["MIRRORED"][1] > 0.9, f"it learned little: {results}")


def main():
    wanted = sys.argv[1:]
    digests = []
    for case in (mirrored, multi_worker, parameter_server, resnet, text):
        if not wanted or case.__name__ in wanted:
            digest = case()
            print(f"{case.__name__}: ok", flush=True)
            digests += [digest] if digest else []
    check(len(set(digests)) <= 1, f"mirrored and multi_worker: {digests}")


if __name__ == "__main__":
    main()
