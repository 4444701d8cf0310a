"""The parts of the package `cairn` that need no cluster: importing loads little; jobs are the same from a file, a text,
a dict or a message; what Keras was given becomes the right fields; records have the bytes that their definition says.
"""

import os
import struct
import subprocess
import sys
import tempfile
import tracemalloc
import unittest
from pathlib import Path

import numpy
from google.protobuf import text_format

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

import keras_like as k  # noqa: E402
from tfrecords import crc32c, read_varint, records as read_records  # noqa: E402

import cairn  # noqa: E402
from cairn import arrays, fit, keras_callbacks, keras_compile, records, safetensors, settings, spec  # noqa: E402
from cairn.v1 import job_pb2, optimizer_pb2  # noqa: E402


def one_line(message):
    return text_format.MessageToString(message, as_one_line=True, float_format=".6g")


class Importing(unittest.TestCase):
    def test_loads_nothing_that_is_large(self):
        code = (
            "import sys, time\nbegin = time.perf_counter()\nimport cairn\nseconds = time.perf_counter() - begin\n"
            "print([m for m in ('grpc', 'numpy', 'google.protobuf', 'pandas', 'matplotlib') if m in sys.modules])\n"
            "cairn.Client\ncairn.NotFound\nprint('numpy' in sys.modules)\n"
            "print(f'{seconds:.3f} s, with Client {time.perf_counter() - begin:.3f} s', file=sys.stderr)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        print("import cairn:", done.stderr.strip())
        self.assertEqual(done.stdout, "[]\nFalse\n")

    def test_every_name_is_there(self):
        import cairn

        for name in cairn.__all__:
            self.assertIsNotNone(getattr(cairn, name))
            self.assertIn(name, dir(cairn))
        self.assertRegex(cairn.__version__, r"^\d+\.\d+\.\d+$")


JOB = """
name: "small"
model { layers { input { shape: [4] } } layers { dense { units: 3 } } }
data { path: "/data" }
loss { kind: MEAN_SQUARED_ERROR }
metrics { kind: AUC }
optimizer { adam { beta_1: 0.8 } learning_rate: 0.5 }
strategy: PARAMETER_SERVER
epochs: 2
"""
AS_DICT = {
    "name": "small",
    "model": {"layers": [{"input": {"shape": [4]}}, {"dense": {"units": 3}}]},
    "data": {"path": "/data"},
    "loss": "mse",
    "metrics": ["auc"],
    "optimizer": {"adam": {"beta_1": 0.8}, "learning_rate": 0.5},
    "strategy": "ParameterServerStrategy",
    "epochs": 2,
}
# What is set -> a part of the job after it, as text.
SETTINGS = [
    ({"epochs": 7}, "epochs: 7"),
    ({"epochs": numpy.int64(7)}, "epochs: 7"),
    ({"epochs": None}, "strategy: PARAMETER_SERVER"),
    ({"optimizer": "rmsprop"}, "optimizer { rmsprop { } }"),
    ({"optimizer.sgd.momentum": 0.5}, "optimizer { sgd { momentum: 0.5 } learning_rate: 0.5 }"),
    ({"optimizer": {"learning_rate": 2}}, "optimizer { adam { beta_1: 0.8 } learning_rate: 2 }"),
    ({"loss": "{ kind: HUBER delta: 2 }"}, "loss { kind: HUBER delta: 2 }"),
    ({"loss": "SparseCategoricalCrossentropy"}, "loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }"),
    ({"metrics": ["acc", {"kind": "recall", "threshold": 0.25}]}, "metrics { kind: RECALL threshold: 0.25 }"),
    ({"metrics[..]": "mae"}, "metrics { kind: AUC } metrics { kind: MEAN_ABSOLUTE_ERROR }"),
    ({"metrics[0].num_thresholds": 5}, "metrics { kind: AUC num_thresholds: 5 }"),
    ({"model.layers[1].dense.units": 9}, "dense { units: 9 }"),
    ({"model.layers[0].input.shape[0]": 5}, "input { shape: 5 }"),
    ({"model.layers[..].flatten": {}}, "layers { flatten { } }"),
    ({"callbacks": ["terminate_on_nan"]}, "callbacks { terminate_on_nan { } }"),
    ({"strategy": "mirrored"}, "strategy: MIRRORED"),
    ({"fsync": True, "initial_weights": Path("/w.keras")}, 'fsync: true initial_weights: "/w.keras"'),
    ({"loss": optimizer_pb2.Loss(kind=9)}, "loss { kind: LOG_COSH }"),
]


class Jobs(unittest.TestCase):
    def test_one_job_in_four_forms(self):
        wanted = text_format.Parse(JOB, job_pb2.JobSpec())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "job.textproto"
            path.write_bytes(b"\xef\xbb\xbf" + JOB.encode())
            for form in (JOB, AS_DICT, wanted, path, str(path)):
                self.assertEqual(spec.read(form), wanted, type(form))

    def test_settings(self):
        for setting, wanted in SETTINGS:
            job = spec.read(JOB)
            settings.apply(job, setting)
            self.assertIn(wanted, one_line(job), setting)
        self.assertNotIn("epochs", one_line(spec_with({"epochs": None})))

    def test_paths_are_of_this_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            here = os.getcwd()
            os.chdir(folder)
            try:
                os.mkdir("data")
                job = spec_with({"data.path": "data", "checkpoints.dir": "c", "callbacks": ["tensorboard"]})
                spec.make_paths_absolute(job)
            finally:
                os.chdir(here)
            real = os.path.realpath(folder)
            self.assertEqual(os.path.realpath(job.data.path), f"{real}/data")
            self.assertEqual(os.path.basename(job.checkpoints.dir), "c")
            self.assertTrue(os.path.isabs(job.callbacks[0].tensorboard.log_dir))
        for named in ("data:/x", "s3://bucket/x"):  # what lies there, workers know
            job = spec_with({"data.path": named, "checkpoints.dir": "runs:/c"})
            spec.make_paths_absolute(job)
            self.assertEqual((job.data.path, job.checkpoints.dir), (named, "runs:/c"))


def spec_with(setting):
    job = spec.read(JOB)
    settings.apply(job, setting)
    return job


DECAY = k.ExponentialDecay(initial_learning_rate=0.5, decay_steps=10, decay_rate=0.25)
LOSSES = [
    ("mse", "kind: MEAN_SQUARED_ERROR"),
    ("sparse_categorical_crossentropy", "kind: SPARSE_CATEGORICAL_CROSSENTROPY"),
    (k.SparseCategoricalCrossentropy(from_logits=True), "kind: SPARSE_CATEGORICAL_CROSSENTROPY from_logits: true"),
    (k.CategoricalCrossentropy(label_smoothing=0.25), "kind: CATEGORICAL_CROSSENTROPY label_smoothing: 0.25"),
    (k.Huber(delta=2.0), "kind: HUBER delta: 2"),
    ({"class_name": "Huber", "config": {"delta": 2.0, "reduction": "auto"}}, "kind: HUBER delta: 2"),
    (k.CTC(), "kind: CTC"),
    (k.Circle(gamma=40.0, margin=0.25), "kind: CIRCLE gamma: 40 margin: 0.25 remove_diagonal: true"),
]
METRICS = [
    ("accuracy", "kind: ACCURACY"),
    ("mse", 'kind: MEAN_SQUARED_ERROR name: "mse"'),
    (k.SparseTopKCategoricalAccuracy(k=2, name="top2"), 'kind: TOP_K_ACCURACY k: 2 name: "top2"'),
    (k.Precision(class_id=1, thresholds=[0.75]), "kind: PRECISION threshold: 0.75 class_id: 1"),
    (k.Accuracy(name="exact"), 'kind: EXACT_ACCURACY name: "exact"'),
    (
        k.MeanIoU(num_classes=3, ignore_class=0, name="mean_io_u"),
        'kind: MEAN_IOU num_classes: 3 name: "mean_io_u" ignore_class: 0',
    ),
    (k.AUC(curve="PR"), "kind: AUC num_thresholds: 200 curve: PR summation_method: INTERPOLATION"),
]
OPTIMIZERS = [
    ("adam", "optimizer { adam { } }"),
    (k.SGD(momentum=0.5, nesterov=True), "optimizer { sgd { momentum: 0.5 nesterov: true } learning_rate: 0.01 }"),
    (k.SGD(learning_rate=DECAY), "exponential_decay { decay_steps: 10 decay_rate: 0.25 }"),
    (k.SGD(learning_rate=DECAY), "learning_rate: 0.5"),
    (k.AdamW(weight_decay=0.25), "adamw { beta_1: 0.9 beta_2: 0.999 epsilon: 1e-07 weight_decay: 0.25 }"),
    (k.Adam(weight_decay=0.5, clipnorm=1.0), "learning_rate: 0.001 weight_decay: 0.5 clipnorm: 1"),
    (k.SGD(use_ema=True, ema_momentum=0.75), "ema { momentum: 0.75 }"),
    (k.SGD(gradient_accumulation_steps=4), "accumulate_steps: 4"),
    ("lamb", "optimizer { lamb { } }"),
    (k.Lamb(beta_1=0.75), "learning_rate: 0.001 lamb { beta_1: 0.75 beta_2: 0.999 epsilon: 1e-07 } }"),
    (
        k.Adafactor(clip_threshold=0.5, relative_step=False),
        "adafactor { beta_2_decay: -0.8 epsilon_1: 1e-30 epsilon_2: 0.001 clip_threshold: 0.5 relative_step: false }",
    ),
    (
        k.Muon(exclude_layers=["out-1", "^head/|kernel$"], weight_decay=None, rms_rate=None),
        "muon { weight_decay: 0 adam_weight_decay: 0.004 adam_beta_1: 0.9 adam_beta_2: 0.999 epsilon: 1e-07 "
        "adam_lr_ratio: 1 momentum: 0.95 nesterov: true ns_steps: 5 muon_a: 3.4445 muon_b: -4.775 muon_c: 2.0315 "
        'rms_rate: 0 exclude_layers: "out-1" exclude_layers: "^head/|kernel$" exclude_embeddings: true }',
    ),
    (
        k.LossScaleOptimizer(inner_optimizer={"class_name": "Lamb", "config": k.Lamb().config}, initial_scale=1024.0),
        "lamb { beta_1: 0.9 beta_2: 0.999 epsilon: 1e-07 } } loss_scaling { initial_scale: 1024 "
        "dynamic_growth_steps: 2000 }",
    ),
]
# Of a job of 4 epochs.
CALLBACKS = [
    (
        k.EarlyStopping(patience=3, mode="max", min_delta=-0.5, restore_best_weights=True),
        'early_stopping { monitor: "val_loss" min_delta: 0.5 patience: 3 mode: MODE_MAX restore_best_weights: true }',
    ),
    (k.ReduceLROnPlateau(factor=0.5), 'reduce_lr_on_plateau { monitor: "val_loss" factor: 0.5 patience: 10'),
    (k.ModelCheckpoint(filepath="/m.keras", save_freq=5), 'filepath: "/m.keras" monitor: "val_loss" save_freq: "5"'),
    (k.ModelCheckpoint(filepath=Path("/m.keras"), best=0.5), "initial_value_threshold: 0.5"),
    (k.CSVLogger(filename="/l.csv", append=True), 'csv_logger { filename: "/l.csv" separator: "," append: true }'),
    (
        k.TensorBoard(log_dir="/l", update_freq="batch"),
        'tensorboard { log_dir: "/l" write_graph: true update_freq: "1" }',
    ),
    (k.BackupAndRestore(backup_dir="/b"), 'backup_and_restore { backup_dir: "/b" save_freq: "epoch" delete_check'),
    (k.TerminateOnNaN(), "terminate_on_nan { }"),
    (k.LearningRateScheduler(schedule=lambda epoch: 0.5), "learning_rate: 0.5"),
    (
        k.LearningRateScheduler(schedule=lambda epoch, rate: rate if epoch < 2 else rate / 2),
        "piecewise_constant_decay { boundaries: 1 boundaries: 2 values: 1 values: 0.5 values: 0.25 }",
    ),
]


class Keras(unittest.TestCase):
    def test_losses(self):
        for given, wanted in LOSSES:
            loss = optimizer_pb2.Loss()
            keras_compile.put_loss(loss, given)
            self.assertEqual(one_line(loss), wanted)

    def test_metrics(self):
        for given, wanted in METRICS:
            metric = optimizer_pb2.Metric()
            keras_compile.put_metric(metric, given, "metrics[0]")
            text = one_line(metric)
            self.assertEqual(text, wanted)

    def test_optimizers(self):
        for given, wanted in OPTIMIZERS:
            job = job_pb2.JobSpec()
            keras_compile.put_optimizer(job, given)
            self.assertIn(wanted, one_line(job))

    def test_callbacks(self):
        for given, wanted in CALLBACKS:
            job = job_pb2.JobSpec(epochs=4)
            job.optimizer.learning_rate = 1
            keras_callbacks.put(job, [k.History(), given])
            self.assertEqual(len(job.callbacks), 1)
            self.assertIn(wanted, one_line(job))

    def test_a_whole_job(self):
        model = k.two_ended().compile(
            k.Adam(),
            {"price": "mse", "kind": "sparse_categorical_crossentropy"},
            metrics={"kind": ["accuracy"]},
            loss_weights=[0.5, 1],
        )
        x = {"a": numpy.zeros((10, 3)), "b": numpy.zeros((10, 2))}
        y = [numpy.zeros(10), numpy.arange(10) % 3]
        with tempfile.TemporaryDirectory() as folder:
            options = {"epochs": 3, "validation_split": 0.25, "strategy": "MirroredStrategy", "class_weight": {1: 2}}
            job = fit.job_of(model, x, y, options, lambda name: Path(tempfile.mkdtemp(dir=folder)))
            train, validation = (list(read_records(f"{job.data.path}/{s}.tfrecord")) for s in ("train", "validation"))
            self.assertEqual((len(train), len(validation)), (7, 3))  # the last ones
            self.assertTrue(os.path.getsize(job.initial_weights) > 0)
        self.assertEqual([o.output for o in job.outputs], ["price", "kind"])
        self.assertEqual([o.weight for o in job.outputs], [0.5, 1])
        self.assertEqual([(i.input, i.feature) for i in job.data.inputs], [("a", "x/a"), ("b", "x/b")])
        self.assertIn("strategy: MIRRORED epochs: 3 class_weight { class_id: 1 weight: 2 }", one_line(job))
        self.assertEqual(job.model.keras_json, model.to_json())


class Names(unittest.TestCase):
    """A model's own name is a user's, whose names are unique among unfinished jobs."""

    def submitted(self, taken, name):
        tried = []

        def submit(job):
            tried.append(job.name)
            if job.name in taken:
                raise cairn.AlreadyExists("name: taken")
            return job.name

        client = cairn.Client.__new__(cairn.Client)
        client._submit = submit
        return client._submit_numbered(job_pb2.JobSpec(name=name)), tried

    def test_a_number_follows_where_the_name_is_taken(self):
        self.assertEqual(self.submitted(set(), "sequential")[0], "sequential")
        name, tried = self.submitted({"sequential", "sequential-2"}, "sequential")
        self.assertEqual((name, tried), ("sequential-3", ["sequential", "sequential-2", "sequential-3"]))
        self.assertEqual(self.submitted({"x" * 63}, "x" * 63)[0], "x" * 56 + "-2")
        every = {"a", *(f"a-{i}" for i in range(2, 101))}
        with self.assertRaisesRegex(cairn.AlreadyExists, "name: taken"):
            self.submitted(every, "a")


def fields(data):
    """[(number, bytes)] of a message whose fields have all a length."""
    at, found = 0, []
    while at < len(data):
        tag, at = read_varint(data, at)
        size, at = read_varint(data, at)
        found.append((tag >> 3, data[at : at + size]))
        at += size
    return found


def features(record):
    """name -> (kind of the list, its bytes)"""
    ((_, entries),) = fields(record)
    found = {}
    for _, entry in fields(entries):
        (_, name), (_, feature) = fields(entry)
        ((kind, values),) = fields(feature)
        ((_, packed),) = fields(values)
        found[name.decode()] = (kind, packed)
    return found


class Records(unittest.TestCase):
    def test_crc32c(self):
        random = numpy.random.default_rng(7)
        for length in (0, 1, 2, 3, 4, 5, 8, 63, 64, 1000, 4097):
            rows = random.integers(0, 256, (3, length), dtype=numpy.uint8)
            self.assertEqual([crc32c(row.tobytes()) for row in rows], records.crc32c(rows).tolist(), length)

    def test_records_by_their_definition(self):
        x = numpy.arange(24, dtype=numpy.uint8).reshape(2, 3, 4)
        y, w = numpy.array([-1, 300]), numpy.array([0.5, 2], numpy.float32)
        columns = [records.Feature("y", 3, y), records.Feature("x", 1, x), records.Feature("w", 2, w)]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "a.tfrecord"
            records.write(path, columns)
            read = [features(record) for record in read_records(path)]
        for i, record in enumerate(read):
            self.assertEqual(list(record), ["w", "x", "y"])
            self.assertEqual(record["x"], (1, x[i].tobytes()))
            self.assertEqual(record["w"], (2, struct.pack("<f", w[i])))
            self.assertEqual(read_varint(record["y"][1], 0)[0], int(y[i]) % 2**64)

    def test_chunks_make_one_file(self):
        x, y = numpy.random.default_rng(3).random((50, 6), dtype=numpy.float32), numpy.arange(50) * 7
        columns = [records.Feature("x", 2, x), records.Feature("y", 3, y)]
        with tempfile.TemporaryDirectory() as folder:
            whole, parts = Path(folder) / "a.tfrecord", Path(folder) / "b.tfrecord"
            records.write(whole, columns)
            size, records.CHUNK_BYTES = records.CHUNK_BYTES, 100
            try:
                records.write(parts, columns)
            finally:
                records.CHUNK_BYTES = size
            self.assertEqual(whole.read_bytes(), parts.read_bytes())

    def test_layouts(self):
        of = lambda x, y: arrays.layout_of(arrays.Examples({"": x}, {"": y}), Path("/d")).data  # noqa: E731
        pictures = of(numpy.zeros((2, 5, 5, 1), numpy.uint8), numpy.zeros((2, 1)))
        self.assertIn('input: "x" label: "y" encoding: RAW_UINT8 shape: 5 shape: 5 shape: 1', one_line(pictures))
        numbers = of(numpy.zeros((2, 7)), numpy.zeros((2, 3)))
        self.assertIn("encoding: RAW_FLOAT32 shape: 7", one_line(numbers))
        self.assertIn('targets { feature: "y" shape: 3 }', one_line(numbers))

    def test_safetensors(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "w.safetensors"
            safetensors.write(path, {"a": numpy.arange(3), "b": numpy.ones((2, 2))})
            data = path.read_bytes()
        length = int.from_bytes(data[:8], "little")
        self.assertEqual(length % 8, 0)
        self.assertEqual(data[8 + length :], struct.pack("<7f", 0, 1, 2, 1, 1, 1, 1))

    def test_safetensors_are_in_memory_once(self):
        tensors = {f"t{i}": numpy.full((1 << 17,), i, "<f4") for i in range(8)} | {"scalar": numpy.float32(7)}
        size = sum(t.nbytes for t in tensors.values())
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "w.safetensors"
            written = peak_of(lambda: safetensors.write(path, tensors))[1]
            read, peak = peak_of(lambda: safetensors.read(path))
            path.write_bytes(path.read_bytes()[:-8])
            with self.assertRaisesRegex(ValueError, "'scalar' is cut off|'t7' is cut off"):
                safetensors.read(path)
        self.assertLess(written, size / 4)
        self.assertLess(peak, size * 1.25)
        self.assertEqual(read.keys(), tensors.keys())
        for name, tensor in tensors.items():
            numpy.testing.assert_array_equal(read[name], tensor)
            self.assertTrue(read[name].flags.writeable)


def peak_of(call):
    """(what it gives, the most bytes that it has allocated meanwhile)"""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    unittest.main()
