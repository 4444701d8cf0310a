"""Texts from a user's point of view, against a second implementation in Python (of Keras' documentation and sources:
collections.Counter, numpy; nothing of Cairn).

- `cairn data adapt` finds the vocabulary, the bins and the means that Keras' adapt() finds.
- The example of texts is trained on real daemons to an accuracy of 0.95 and more, with the same bits for 1 and 2
  workers; it is evaluated and predicts, from a CSV file, from TFRECORD and from a folder of text files alike.
- What a linear model predicts of a text is its weights times the tf-idf numbers of its tokens, computed here.
- Its export can be read again, with its vocabulary; as ONNX it is refused by name.
- A model without a vocabulary, a number where a text is due and bytes that are no text are refused by name.
"""

import collections
import csv
import json
import math
import os
import shutil
import string
import subprocess
import tempfile
import zipfile

import numpy

from cluster import BIN, SOURCE, Cluster, check
from keras_files import read_safetensors
from predict_test import read_npy
from tfrecords import frame

EXAMPLE = f"{SOURCE}/examples/sentences/job.textproto"


def cairn(*args):
    done = subprocess.run([os.path.join(BIN, "cairn"), *args], capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def run(*args):
    code, said = cairn(*args)
    check(code == 0, f"{args}: exit {code}: {said}")
    return said


def refused(text, *args):
    code, said = cairn(*args)
    check(code != 0 and text in said, f"{args}: exit {code}: {said}\nwanted: {text}")


def submit(c, *args):
    return str(json.loads(c.cairn("submit", *args, as_json=True).stdout)["job_id"])


def rows_of(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


# ---- Keras' layers, a second time ----


def tokens_of(text):
    lower = "".join(chr(ord(c) + 32) if "A" <= c <= "Z" else c for c in text)
    return "".join(c for c in lower if c not in string.punctuation).split()


def by_frequency(counts):
    """As numpy.lexsort((tokens, counts))[::-1]: ties from the largest token on, by its bytes."""
    return [t for t, _ in sorted(counts.items(), key=lambda item: (item[1], item[0].encode()), reverse=True)]


def compress(summary, epsilon):
    if summary.shape[1] * epsilon < 1:
        return summary
    percents = epsilon + numpy.arange(0.0, 1.0, epsilon)
    sums = summary[1].cumsum()
    shares = sums / sums[-1]
    bins = numpy.interp(percents, shares, summary[0])
    sums = numpy.interp(percents, shares, sums)
    weights = sums - numpy.concatenate((numpy.array([0]), sums[:-1]))
    return numpy.stack((bins, weights)).astype("float32")


def boundaries(values, epsilon, bins):
    values = numpy.sort(numpy.array(values, dtype="float32"))
    increment = values.size / (1.0 / epsilon)
    step = max(increment, 1)
    taken = values[int(increment) :: int(step)]
    summary = numpy.stack([taken, numpy.ones_like(taken) * numpy.float32(step)])
    return compress(compress(summary, epsilon), 1.0 / bins)[0, :-1]


# ---- the parts ----


def layer_of(model, name):
    return next(layer["config"] for layer in model["config"]["layers"] if layer["config"]["name"] == name)


KERAS_DEFAULTS = {"standardize": "lower_and_strip_punctuation", "split": "whitespace", "ngrams": None}


def keras_functional(layers, outputs):
    """A Functional model of Keras 3. layers: (class, name, config, inputs); an input's config has its dtype."""
    out = []
    for type_name, name, config, inputs in layers:
        entry = {"module": "keras.layers", "class_name": type_name, "registered_name": None, "name": name}
        entry["config"] = {"name": name, "trainable": True, **config}
        tensors = [{"class_name": "__keras_tensor__", "config": {"keras_history": [i, 0, 0]}} for i in inputs]
        args = [tensors] if type_name == "Concatenate" else tensors
        entry["inbound_nodes"] = [{"args": args, "kwargs": {}}] if inputs else []
        out.append(entry)
    ins = [[name, 0, 0] for type_name, name, _, _ in layers if type_name == "InputLayer"]
    config = {"name": "m", "trainable": True, "layers": out, "input_layers": ins}
    config["output_layers"] = [[name, 0, 0] for name in outputs]
    return {"module": "keras", "class_name": "Functional", "config": config, "registered_name": "Functional"}


def text_input(name, shape):
    return ("InputLayer", name, {"batch_shape": [None, *shape], "dtype": "string"}, [])


def check_adapt(directory):
    """Every layer that has a state, of one table, compared with Python."""
    generator = numpy.random.default_rng(11)
    words = ["ab", "Ab", "b", "\u00e4b", "\u00c4b", "z!", "[UNK]", "", "d-e", "y"]
    rows = []
    for _ in range(300):
        chosen = generator.choice(words, size=generator.integers(0, 6))
        number, count, town = generator.normal(), int(generator.integers(-2, 9)), str(generator.choice(words))
        rows.append([" ".join(chosen), town, f"{number:.6f}", str(count), str(int(generator.integers(0, 2)))])
    with open(f"{directory}/table.csv", "w", newline="") as f:
        csv.writer(f).writerows([["said", "town", "size", "count", "y"], *rows])
    number_input = {"batch_shape": [None, 1], "dtype": "float32"}
    model = keras_functional(
        [
            text_input("said", [1]),
            text_input("town", [1]),
            ("InputLayer", "size", number_input, []),
            ("InputLayer", "count", number_input, []),
            ("TextVectorization", "words", {**KERAS_DEFAULTS, "output_mode": "tf_idf", "max_tokens": 7}, ["said"]),
            ("StringLookup", "towns", {"output_mode": "one_hot", "mask_token": ""}, ["town"]),
            ("Discretization", "bins", {"num_bins": 5, "epsilon": 0.01, "output_mode": "one_hot"}, ["size"]),
            ("Normalization", "scaled", {"axis": [-1]}, ["size"]),
            ("IntegerLookup", "counts", {"output_mode": "one_hot"}, ["count"]),
            ("Concatenate", "all", {"axis": -1}, ["words", "towns", "bins", "scaled", "counts"]),
            ("Dense", "out", {"units": 1, "activation": "sigmoid"}, ["all"]),
        ],
        ["out"],
    )
    with open(f"{directory}/model.json", "w") as f:
        json.dump(model, f)
    sets = []
    for i, name in enumerate(["said", "town", "size", "count"]):
        sets += ["--set", f"data.inputs[..]={{ input: '{name}' columns: '{name}' }}"]
    run("data", "adapt", f"{directory}/model.json", f"{directory}/table.csv", "-o", f"{directory}/out.json", *sets)
    with open(f"{directory}/out.json") as f:
        adapted = json.load(f)

    documents = [tokens_of(row[0]) for row in rows]
    counts = collections.Counter(t for d in documents for t in d)
    vocabulary = by_frequency(counts)[:6]  # and one for those that are not known
    check(
        layer_of(adapted, "words")["vocabulary"] == vocabulary, (layer_of(adapted, "words")["vocabulary"], vocabulary)
    )
    with_token = [sum(t in d for d in documents) for t in vocabulary]
    weights = [math.log(1 + len(documents) / (1 + n)) for n in with_token]
    check(numpy.allclose(layer_of(adapted, "words")["idf_weights"], weights, rtol=1e-6), weights)
    towns = collections.Counter(row[1] for row in rows)
    for special in ("", "[UNK]"):
        del towns[special]
    check(layer_of(adapted, "towns")["vocabulary"] == by_frequency(towns), by_frequency(towns))
    numbers = collections.Counter(int(row[3]) for row in rows)
    del numbers[-1]
    wanted = [n for n, _ in sorted(numbers.items(), key=lambda item: (item[1], item[0]), reverse=True)]
    check(layer_of(adapted, "counts")["vocabulary"] == wanted, wanted)
    sizes = numpy.array([row[2] for row in rows], dtype="float32")
    wanted = boundaries(sizes, 0.01, 5)
    check(numpy.array(layer_of(adapted, "bins")["bin_boundaries"], dtype="float32").tolist() == wanted.tolist(), wanted)
    scaled = layer_of(adapted, "scaled")
    check(abs(scaled["mean"] - sizes.mean(dtype="float64")) < 1e-6, scaled)
    check(abs(scaled["variance"] - sizes.var(dtype="float64")) < 1e-6, scaled)
    return adapted, rows, sets


def check_predictions(c, directory, adapted, rows, sets):
    """The numbers that reach the model are those of the second implementation: its only dense layer's weights times
    them are what it predicts."""
    with open(f"{directory}/out.json", "w") as f:
        json.dump(adapted, f)
    with open(f"{directory}/linear.textproto", "w") as f:
        f.write(
            'name: "linear" loss { kind: BINARY_CROSSENTROPY } optimizer { sgd { } learning_rate: 0.1 } batch_size: 50 '
            f'epochs: 1 replicas: 2 data {{ path: "{directory}/table.csv" label_column: "y" test_split: 0.2 }}'
        )
    job = submit(c, f"{directory}/linear.textproto", "--model", f"{directory}/out.json", *sets)
    c.wait(job)
    c.cairn("export", job, "-o", f"{directory}/linear.safetensors")
    tensors = read_safetensors(f"{directory}/linear.safetensors")
    kernel, bias = (numpy.array(tensors[f"out/{name}"], dtype="float64") for name in ("kernel", "bias"))
    c.cairn("predict", job, "--split", "train", "-o", f"{directory}/linear.npy")
    c.cairn("predict", job, "--split", "test", "-o", f"{directory}/linear_test.npy")
    predicted = [n for name in ("linear", "linear_test") for n in read_npy(f"{directory}/{name}.npy")[1]]

    words, towns = layer_of(adapted, "words"), layer_of(adapted, "towns")
    counts, bins = layer_of(adapted, "counts"), layer_of(adapted, "bins")
    scaled = layer_of(adapted, "scaled")
    wanted = []
    for said_, town, size, count, _ in rows:
        idf = [numpy.mean(numpy.array(words["idf_weights"])), *words["idf_weights"]]
        found = [0.0] * len(idf)
        for token in tokens_of(said_):
            place = 1 + words["vocabulary"].index(token) if token in words["vocabulary"] else 0
            found[place] += idf[place]
        place_of = [0.0] * (1 + len(towns["vocabulary"]))
        if town != "":  # the mask
            place_of[1 + towns["vocabulary"].index(town) if town in towns["vocabulary"] else 0] = 1
        bin_of = [0.0] * (1 + len(bins["bin_boundaries"]))
        number = numpy.float32(size)
        bin_of[int(numpy.digitize(number, numpy.array(bins["bin_boundaries"], dtype="float32")))] = 1
        normal = [(float(number) - scaled["mean"]) / math.sqrt(scaled["variance"])]
        count_of = [0.0] * (1 + len(counts["vocabulary"]))
        whole = int(count)
        count_of[1 + counts["vocabulary"].index(whole) if whole in counts["vocabulary"] else 0] = 1
        x = numpy.array(found + place_of + bin_of + normal + count_of)
        wanted.append(1 / (1 + math.exp(-(float(x @ kernel[:, 0]) + float(bias[0])))))
    check(len(predicted) == len(wanted), f"{len(predicted)} of {len(wanted)}")
    # The splits are other orders of the same examples.
    check(numpy.allclose(sorted(predicted), sorted(wanted), atol=1e-5), "predictions")


def as_records(rows, topics, path):
    def field(number, data):
        return bytes([number << 3 | 2]) + length(len(data)) + data

    def length(n):
        return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + length(n >> 7)

    with open(path, "wb") as f:
        for row in rows:
            text = field(1, field(1, row["text"].encode()))
            topic = field(3, field(1, bytes([topics.index(row["topic"])])))
            entries = [
                field(1, field(1, name) + field(2, feature)) for name, feature in ((b"text", text), (b"label", topic))
            ]
            f.write(frame(field(1, b"".join(entries))))


def check_example(c, directory):
    data = f"{directory}/sentences"
    run("data", "make", "sentences", data, "--count", "6000", "--test-count", "1000")
    model = f"{directory}/sentences.json"
    said = run("data", "adapt", EXAMPLE, data, "-o", model)
    check("words (text_vectorization): " in said, said)
    done = c.cairn("submit", EXAMPLE, "--set", f"data.path={data}", ok=False)
    check('layer "words": vocabulary is empty; give its tokens, or let `cairn data adapt`' in done.stderr, done.stderr)
    digests = []
    for workers in (2, 1):
        more = ["--set", f"data.path={data}", "--set", f"max_workers={workers}"]
        job = submit(c, EXAMPLE, "--model", model, *more)
        digests.append(c.wait(job)["digest"])
    check(digests[0] == digests[1], digests)
    accuracy = c.evaluate(job)["accuracy"]
    check(accuracy >= 0.95, accuracy)

    # The same texts in other formats.
    rows = rows_of(f"{data}/test.csv")
    topics = ["food", "music", "space", "sport"]
    folder = f"{directory}/folder"
    for i, row in enumerate(rows):
        for split in ("train", "test"):
            os.makedirs(f"{folder}/{split}/{row['topic']}", exist_ok=True)
            with open(f"{folder}/{split}/{row['topic']}/{i:05}.txt", "w") as f:
                f.write(row["text"])
    os.makedirs(f"{directory}/records")
    for split in ("train", "test"):
        as_records(rows, topics, f"{directory}/records/{split}.tfrecord")
    for more in ([], ["--data", data]):
        check(c.evaluate_with(job, *more)["accuracy"] == accuracy, "another accuracy")
    with open(EXAMPLE) as f:
        text = f.read()
    for line in ('inputs { input: "text" columns: "text" }', 'label_column: "topic"'):
        check(line in text, line)
        text = text.replace(line, "")
    with open(f"{directory}/folder.textproto", "w") as f:
        f.write(text)
    plain = ["--model", model, "--set", f"data.path={folder}", "--set", "epochs=1"]
    other = submit(c, f"{directory}/folder.textproto", *plain)
    c.wait(other)
    c.cairn("export", job, "-o", f"{directory}/w.safetensors")
    weights = ["--weights", f"{directory}/w.safetensors"]
    for path in (folder, f"{directory}/records"):
        said = c.evaluate_with(other, "--data", path, *weights)
        check(abs(said["accuracy"] - accuracy) < 1e-9, f"{path}: {said}, {accuracy}")
    classes = c.cairn("predict", job, "--classes", as_json=True).stdout.splitlines()
    right = sum(json.loads(line)["class"] == row["topic"] for line, row in zip(classes, rows))
    check(abs(right / len(rows) - accuracy) < 1e-9, f"{right} of {len(rows)}")
    # Each prediction names its file, or its line in the file of the split.
    check([json.loads(line)["input"] for line in classes] == [str(i + 2) for i in range(len(rows))], classes[0])
    done = c.cairn("predict", other, "--data", folder, *weights, "--classes", as_json=True)
    found = {row["input"]: row["class"] for row in map(json.loads, done.stdout.splitlines())}
    check(sorted(found) == sorted(f"test/{row['topic']}/{i:05}.txt" for i, row in enumerate(rows)), list(found)[:3])
    right = sum(name.split("/")[1] == topic for name, topic in found.items())
    check(abs(right / len(rows) - accuracy) < 1e-9, f"{right} of {len(rows)}, by their files")
    # A folder without splits is one of training: it is taken, and said.
    done = c.cairn("predict", other, "--data", f"{folder}/test", *weights, "--classes", as_json=True)
    again = {"test/" + row["input"]: row["class"] for row in map(json.loads, done.stdout.splitlines())}
    check(again == found, "the same files, named from another folder")
    said = f"cairn: {folder}/test has only a train split: its examples were taken, as with --split train\n"
    check(done.stderr == said, done.stderr)

    # Texts alone can be predicted, and nothing else.
    with open(f"{directory}/unlabelled.csv", "w", newline="") as f:
        csv.writer(f).writerows([["text"], *([row["text"]] for row in rows)])
    done = c.cairn("predict", job, "--data", f"{directory}/unlabelled.csv", "--classes", as_json=True)
    without = [json.loads(line)["class"] for line in done.stdout.splitlines()]
    check(without == [json.loads(line)["class"] for line in classes], "the same texts without their topics")
    for refused in (
        ["evaluate", job, "--data", f"{directory}/unlabelled.csv"],
        ["submit", EXAMPLE, "--model", model, "--set", f"data.path={directory}/unlabelled.csv"],
    ):
        done = c.cairn(*refused, ok=False)
        check(done.returncode == 2 and 'no column "topic"' in done.stderr, f"{refused}: {done.stderr}")
    # A file that is named as the test split is it, also alone.
    os.makedirs(f"{directory}/alone")
    shutil.copy(f"{data}/test.csv", f"{directory}/alone")
    check(c.evaluate_with(job, "--data", f"{directory}/alone")["accuracy"] == accuracy, "of the test split alone")
    done = c.cairn("submit", EXAMPLE, "--model", model, "--set", f"data.path={directory}/alone", ok=False)
    said = f"there is {directory}/alone/test.csv, but no train.csv[.gz] beside it"
    check(done.returncode == 2 and said in done.stderr, done.stderr)

    # Exports.
    c.cairn("export", job, "-o", f"{directory}/out.keras")
    with zipfile.ZipFile(f"{directory}/out.keras") as archive:
        config = json.loads(archive.read("config.json"))
    with open(model) as f:
        adapted = json.load(f)
    check(layer_of(config, "words") == layer_of(adapted, "words"), "another vocabulary")
    check(layer_of(config, "text")["dtype"] == "string", "an input of texts")
    check(c.evaluate_with(job, "--weights", f"{directory}/out.keras")["accuracy"] == accuracy, "from .keras")
    said = run("models", f"{directory}/out.keras")
    check("TextVectorization" in said, said)
    done = c.cairn("export", job, "-o", f"{directory}/out.onnx", ok=False)
    check("it takes texts, which ONNX's operators do not" in done.stderr, done.stderr)


def check_refusals(c, directory):
    data = f"{directory}/sentences"
    with open(f"{directory}/bytes.csv", "wb") as f:
        f.write(b"text,topic\nfine,food\nb\xc3(,music\n")
    model = f"{directory}/sentences.json"
    more = ["--set", f"data.path={directory}/bytes.csv"]
    done = c.cairn("submit", EXAMPLE, "--model", model, *more, ok=False)
    check('line 3, column 0 ("text"): the text is not UTF-8' in done.stderr, done.stderr)
    with open(f"{directory}/numbers.textproto", "w") as f:
        f.write(
            'name: "n" model { layers { input { shape: 1 } } layers { dense { units: 4 activation: SOFTMAX } } } '
            f'data {{ path: "{data}" label_column: "topic" header: true }} batch_size: 8 epochs: 1 '
            "optimizer { sgd { } } loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }"
        )
    done = c.cairn("submit", f"{directory}/numbers.textproto", ok=False)
    check("is not a number; features are numbers: let the model take texts" in done.stderr, done.stderr)
    refused("no layer lacks its state", "data", "adapt", model, data, "-o", f"{directory}/again.json")
    refused("a model is written as .json", "data", "adapt", EXAMPLE, data, "-o", f"{directory}/x.keras")


def main():
    with tempfile.TemporaryDirectory(prefix="cairn-texts-") as directory:
        adapted, rows, sets = check_adapt(directory)
        with Cluster(ps=1, workers=2) as c:
            check_predictions(c, directory, adapted, rows, sets)
            check_example(c, directory)
            check_refusals(c, directory)


if __name__ == "__main__":
    main()
