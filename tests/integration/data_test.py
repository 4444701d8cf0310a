"""The input pipeline from a user's point of view: TFRecord files that the tests write and read independently
(tfrecords.py, protobuf by hand), and jobs on real daemons whose digest shows that every worker computed the same
examples.

- The output of `cairn data convert` is read here; files written here are read by `cairn data info` and trained on.
- A job on TFRecords, plain and gzip, ends with the bits of the same job on the original IDX files.
- Augmentation, class weights, label smoothing, drop_remainder and more steps than a pass: the same bits with 1 and with
  3 workers, and each of these settings changes them. A cache in a file instead of memory changes nothing, nor does a
  worker that is killed in the middle.
- A damaged record ends the job with the file and the record's number.
- A Keras model that begins with a RandomCrop trains at the size of the crop, is evaluated on what Keras' layer returns
  outside training, and is the same from model.to_json() and from a .keras archive.
"""

import gzip
import io
import json
import os
import struct
import subprocess
import zipfile

import h5py
import numpy

from cluster import BIN, Cluster, attempts, check
from jobs import make_glyphs, small_job
from keras_files import read_safetensors
from tfrecords import frame, read_varint, records

# ---- tf.train.Example ----


def varint(value):
    out = b""
    value &= (1 << 64) - 1
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def example(features):
    """features: name -> bytes, or a list of ints or floats. Ints are written one by one, floats packed."""
    entries = b""
    for name, value in features.items():
        if isinstance(value, bytes):
            feature = field(1, field(1, value))
        elif isinstance(value[0], int):
            feature = field(3, b"".join(varint(1 << 3) + varint(v) for v in value))
        else:
            feature = field(2, field(1, struct.pack(f"<{len(value)}f", *value)))
        entries += field(1, field(1, name.encode()) + field(2, feature))
    return field(1, entries)


def fields(data):
    at = 0
    while at < len(data):
        tag, at = read_varint(data, at)
        check(tag & 7 == 2, "only messages are expected here")
        length, at = read_varint(data, at)
        yield tag >> 3, data[at : at + length]
        at += length


def parse(record):
    found = {}
    for _, features in fields(record):
        for _, entry in fields(features):
            (_, name), (_, feature) = fields(entry)
            ((kind, values),) = fields(feature)
            ((_, packed),) = fields(values)
            if kind == 1:
                found[name.decode()] = packed
            elif kind == 2:
                found[name.decode()] = list(struct.unpack(f"<{len(packed) // 4}f", packed))
            else:
                numbers, at = [], 0
                while at < len(packed):
                    number, at = read_varint(packed, at)
                    numbers.append(number)
                found[name.decode()] = numbers
    return found


# ---- data ----


def read_idx(path, dims):
    with gzip.open(path, "rb") as f:
        data = f.read()
    return data[4 + 4 * dims :]


def cairn(*args, ok=True):
    done = subprocess.run([os.path.join(BIN, "cairn"), *args], capture_output=True, text=True)
    check((done.returncode == 0) == ok, f"cairn {' '.join(args)}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def test_convert(directory, idx):
    pixels = read_idx(f"{idx}/train-images-idx3-ubyte.gz", 3)
    labels = read_idx(f"{idx}/train-labels-idx1-ubyte.gz", 1)
    out = f"{directory}/converted"
    cairn("data", "convert", idx, out, "--shards", "3")
    check(
        sorted(os.listdir(out))
        == sorted(f"{s}.tfrecord-0000{i}-of-00003" for s in ("train", "test") for i in range(3)),
        f"files: {os.listdir(out)}",
    )
    for shard in range(3):
        written = records(f"{out}/train.tfrecord-0000{shard}-of-00003")
        for n in range(20):  # computing the CRC of all of them in Python takes a while
            i = shard + 3 * n
            found = parse(next(written))
            check(
                found
                == {
                    "image_raw": pixels[784 * i : 784 * i + 784],
                    "label": [labels[i]],
                    "height": [28],
                    "width": [28],
                    "depth": [1],
                },
                f"shard {shard}, record {n}: {found}",
            )
    info = json.loads(cairn("data", "info", out, "--json"))
    check(
        int(info["train_examples"]) == len(labels) and info["example_shape"] == [28, 28, 1] and info["classes"] == 10,
        f"{info}",
    )
    text = cairn("data", "convert", idx, f"{directory}/all.tfrecord", ok=False)
    check("one file for a data set of 2 splits; give a folder, or choose with --split train" in text, text)
    text = cairn("data", "convert", out, f"{directory}/again", ok=False)
    check("holds TFRecords already" in text, text)


def write_by_hand(directory, idx, count):
    """Writes the first `count` training examples, plain and gzip, to separate folders."""
    pixels = read_idx(f"{idx}/train-images-idx3-ubyte.gz", 3)
    labels = read_idx(f"{idx}/train-labels-idx1-ubyte.gz", 1)
    all_of_it = b"".join(
        frame(example({"label": [labels[i]], "note": [0.5, -1.0], "image": pixels[784 * i : 784 * i + 784]}))
        for i in range(count)
    )
    os.makedirs(f"{directory}/plain")
    os.makedirs(f"{directory}/packed")
    with open(f"{directory}/plain/train.tfrecord", "wb") as f:
        f.write(all_of_it)
    with gzip.open(f"{directory}/packed/train.tfrecord.gz", "wb") as f:
        f.write(all_of_it)
    return f"{directory}/plain", f"{directory}/packed"


AUGMENTATION = """augmentation { random_rotation { factor: 0.05 } } augmentation { random_zoom { height_factor: 0.1 } }
  augmentation { random_translation { height_factor: 0.1 width_factor: 0.1 fill_mode: FILL_CONSTANT } }
  augmentation { random_crop { height: 26 width: 26 padding: 1 } } augmentation { random_flip { mode: HORIZONTAL } }
  augmentation { random_brightness { factor: 0.1 } } augmentation { random_contrast { factor: 0.2 } }
  augmentation { cutout { size: 6 } }"""


class Jobs:
    """Jobs on one cluster, by their text."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.count = 0

    def write(self, data, of_data="", of_loss="", more="", epochs=2):
        self.count += 1
        path = small_job(self.cluster.dir, data, epochs=epochs, more=more, name=f"job{self.count}.textproto")
        with open(path) as f:
            text = f.read()
        text = text.replace("validation_split: 0.1", "validation_split: 0.1 " + of_data)
        text = text.replace("kind: SPARSE_CATEGORICAL_CROSSENTROPY", "kind: SPARSE_CATEGORICAL_CROSSENTROPY " + of_loss)
        with open(path, "w") as f:
            f.write(text)
        return path

    def run(self, *args, state="SUCCEEDED", **options):
        return self.cluster.wait(self.cluster.submit(self.write(*args, **options)), state=state)


def test_jobs():
    count = 1500  # of 784 bytes: more than fits with cache_mib: 1
    with Cluster(ps=1, workers=1) as one, Cluster(ps=2, workers=3) as three:
        idx = make_glyphs(one.dir, count=count, test_count=50)
        test_convert(one.dir, idx)
        plain, packed = write_by_hand(one.dir, idx, count)
        a, b = Jobs(one), Jobs(three)
        base = a.run(idx)["digest"]
        for other in (plain, packed):
            check(a.run(other)["digest"] == base, f"{other}: another digest than the IDX files")
        check(
            b.run(plain, f'cache_mib: 1 cache_dir: "{one.dir}/cache" prefetch: 1')["digest"] == base,
            "a cache in a file",
        )
        check(os.listdir(f"{one.dir}/cache") == [], "the cache's file has a name")

        variants = {
            "augmentation": dict(of_data=AUGMENTATION),
            "class weights": dict(more="class_weight { class_id: 3 weight: 4 } class_weight { class_id: 5 weight: 0 }"),
            "label smoothing": dict(of_loss="label_smoothing: 0.2"),
            "drop_remainder": dict(of_data="drop_remainder: true"),
            "more steps than a pass": dict(more="steps_per_epoch: 30"),
        }
        digests = {"plain": base}
        for name, options in variants.items():
            first = a.run(idx, **options)
            digests[name] = first["digest"]
            check(b.run(plain, **options)["digest"] == first["digest"], f"{name}: another digest on 3 workers")
            steps = {"drop_remainder": 22, "more steps than a pass": 30}.get(name, 23)  # 1350 examples in batches of 60
            check(int(first["steps_per_epoch"]) == steps, f"{name}: {first['steps_per_epoch']} steps")
        check(len(set(digests.values())) == len(digests), f"something does not matter: {digests}")
        print(digests)

        def killed_and_not(times):
            killed = with_a_worker_killed(three, b.write(plain, AUGMENTATION, epochs=12 * times))
            return killed, a.run(idx, AUGMENTATION, epochs=12 * times)["digest"]

        killed, whole = attempts(killed_and_not)
        check(killed == whole, f"a killed worker: digest {killed}, undisturbed {whole}")

        # An altered pixel of record 5: found when the record is read, or at submission if that reads it.
        with open(f"{plain}/train.tfrecord", "r+b") as f:
            data = f.read()
            (length,) = struct.unpack_from("<Q", data, 0)
            at = 5 * (16 + length) + 300
            f.seek(at)
            f.write(bytes([data[at] ^ 1]))
        status = a.run(plain, state="FAILED")
        check("train.tfrecord: record 5: its data has a wrong CRC" in status["reason"], f"reason: {status['reason']}")


# ---- a RandomCrop at the head of a Keras model ----

CROP = 24


def cropping_model():
    layers = [
        ("InputLayer", {"batch_shape": [None, 28, 28, 1]}),
        ("RandomCrop", {"height": CROP, "width": CROP}),
        ("Rescaling", {"scale": 1 / 255, "offset": 0}),
        ("Flatten", {}),
        ("Dense", {"units": 10, "activation": "softmax"}),
    ]
    return {
        "module": "keras",
        "class_name": "Sequential",
        "registered_name": None,
        "config": {
            "name": "crop",
            "layers": [
                {
                    "module": "keras.layers",
                    "class_name": kind,
                    "config": {"name": kind.lower(), **config},
                    "registered_name": None,
                }
                for kind, config in layers
            ],
        },
    }


def write_cropping_archive(path):
    weights = io.BytesIO()
    with h5py.File(weights, "w") as f:
        f["layers/dense/vars/0"] = numpy.zeros((CROP * CROP, 10), "<f4")
        f["layers/dense/vars/1"] = numpy.zeros(10, "<f4")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("metadata.json", '{"keras_version": "3.9.0"}')
        archive.writestr("config.json", json.dumps(cropping_model()))
        archive.writestr("model.weights.h5", weights.getvalue())


def shown_outside_training(pictures):
    """For a square, the whole picture resized: bilinear, with half-pixel centers."""
    at = numpy.clip((numpy.arange(CROP) + 0.5) * 28 / CROP - 0.5, 0, 27)
    low, share = at.astype(int), at - at.astype(int)
    high = numpy.minimum(low + 1, 27)
    rows = pictures[:, low] * (1 - share)[None, :, None] + pictures[:, high] * share[None, :, None]
    return rows[:, :, low] * (1 - share) + rows[:, :, high] * share


def test_cropping_model():
    with Cluster(ps=1, workers=2) as c:
        idx = make_glyphs(c.dir, count=600, test_count=200)
        job_file = small_job(c.dir, idx, epochs=2)
        with open(f"{c.dir}/crop.json", "w") as f:
            json.dump(cropping_model(), f)
        write_cropping_archive(f"{c.dir}/crop.keras")
        digests = {}
        for model, flags in (("crop.json", ["--set", f"initial_weights={c.dir}/crop.keras"]), ("crop.keras", [])):
            job = str(
                json.loads(c.cairn("submit", job_file, "--model", f"{c.dir}/{model}", *flags, as_json=True).stdout)[
                    "job_id"
                ]
            )
            status = c.wait(job)
            digests[model] = status["digest"]
        check(len(set(digests.values())) == 1, f"digests differ: {digests}")
        check(int(status["parameters"]) == CROP * CROP * 10 + 10, f"{status['parameters']} parameters")
        noted = c.cairn("export", job, "-o", f"{c.dir}/whole.keras").stderr
        check(
            "takes what random_crop left of the examples, [24,24,1] of [28,28,1]" in noted,
            f"the export says nothing of the crop: {noted}",
        )
        c.cairn("export", job, "-o", f"{c.dir}/crop.safetensors")
        weights = read_safetensors(f"{c.dir}/crop.safetensors")
        pixels = (
            numpy.frombuffer(read_idx(f"{idx}/t10k-images-idx3-ubyte.gz", 3), "u1").reshape(-1, 28, 28).astype("f8")
        )
        labels = numpy.frombuffer(read_idx(f"{idx}/t10k-labels-idx1-ubyte.gz", 1), "u1")
        logits = (
            shown_outside_training(pixels).reshape(len(labels), -1) / 255 @ weights["dense/kernel"]
            + weights["dense/bias"]
        )
        chances = numpy.exp(logits - logits.max(axis=1, keepdims=True))
        chances /= chances.sum(axis=1, keepdims=True)
        loss = -numpy.log(chances[numpy.arange(len(labels)), labels]).mean()
        found = c.evaluate(job)
        check(abs(found["loss"] - loss) < 1e-4 * loss, f"loss {found['loss']}, by hand {loss}")
        elsewhere = c.evaluate_with(job, "--data", idx)
        check(
            elsewhere["loss"] == found["loss"],
            f"the same data given by its path: {elsewhere['loss']}, not {found['loss']}",
        )


def with_a_worker_killed(cluster, path):
    job = cluster.submit(path)
    cluster.wait_for_step(job, 20)
    cluster.kill("worker-2")
    try:
        cluster.while_running(
            job,
            lambda status: all(r["worker"] != "worker-2" for r in status["replicas"]),
            "others compute its replicas",
        )
    finally:
        cluster.restart("worker-2")
    return cluster.wait(job)["digest"]


if __name__ == "__main__":
    test_jobs()
    test_cropping_model()
