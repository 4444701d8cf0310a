"""Models as tutorials build them (tutorials_*.py), in Keras 3's JSON: each is accepted, trained for two steps,
exported, read again, and predicts the same. Rejected models are listed in REFUSED below, with the message that says
why; a model that is no longer rejected must be removed from the list.

    tutorial_models_test.py [--all] [NAME]...

  NAME    only these models
  --all   each in all four strategies; otherwise each in one strategy, which alternates
"""

import json
import os
import struct
import sys

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

import keras3  # noqa: E402
import tutorials_images  # noqa: E402
import tutorials_sequences  # noqa: E402
import tutorials_tables  # noqa: E402
import tutorials_vision  # noqa: E402
from cluster import Cluster, check  # noqa: E402
from tfrecords import frame  # noqa: E402

MODELS = {**tutorials_vision.MODELS, **tutorials_images.MODELS, **tutorials_sequences.MODELS, **tutorials_tables.MODELS}
STRATEGIES = ("MULTI_WORKER_MIRRORED", "PARAMETER_SERVER", "MIRRORED", "CENTRAL_STORAGE")
EXAMPLES = 16
# Name of the model -> a part of Cairn's message, either when the model is read or when it is to be trained.
REFUSED = {}
NOT_TRAINED = {}


def message(number, data):
    """Encodes a length-delimited field."""
    head, size = bytes([number << 3 | 2]), len(data)
    while size >= 0x80:
        head += bytes([size & 0x7F | 0x80])
        size >>= 7
    return head + bytes([size]) + data


def example(features):
    """A tf.train.Example of lists of floats."""
    entries = b""
    for name, numbers in features.items():
        floats = message(1, struct.pack(f"<{len(numbers)}f", *numbers))
        entries += message(1, message(1, name.encode()) + message(2, message(2, floats)))
    return message(1, entries)


def layers_of(description):
    return description["config"]["layers"]


def input_layers(description):
    """[(name, shape, whether it takes ids)]"""
    found = []
    for layer in layers_of(description):
        if layer["class_name"] == "InputLayer":
            config = layer["config"]
            found.append((config["name"], config["batch_shape"][1:], config["dtype"].startswith("int")))
    return found


def outputs_of(c, path):
    """[(name, shape)] as `cairn models` prints them."""
    model = json.loads(c.cairn("models", path, as_json=True).stdout)
    layers = {layer["name"]: layer for layer in model["layers"]}
    names = model.get("outputs") or [model["layers"][-1]["name"]]
    return [(name, layers[name]["output_shape"]) for name in names]


def trained_layer(c, path):
    """The last layer with a kernel, by its name in Cairn."""
    layers = json.loads(c.cairn("models", path, as_json=True).stdout)["layers"]
    return [layer["name"] for layer in layers if layer["parameters"] and not layer["type"].endswith("Normalization")][
        -1
    ]


def target_numbers(rng, kind, shape):
    """(numbers of one example's target, its shape)"""
    if kind == "classes":
        return rng.integers(0, shape[-1], 1), [1]
    if kind == "classes of each position":
        return rng.integers(0, shape[-1], shape[:-1]).reshape(-1), shape[:-1]
    if kind == "binary":
        return rng.integers(0, 2, 1), [1]
    if kind == "signs":
        return rng.integers(0, 2, shape).reshape(-1) * 2.0 - 1, shape
    return rng.random(shape).reshape(-1), shape


def write_data(path, inputs, outputs, kind, seed):
    """Writes examples with random numbers. One input: records with a feature for it and one for each output, "target of
    NAME". Several inputs: lines of CSV with the inputs' numbers in order, and the label. Returns the shapes of the
    targets."""
    rng = numpy.random.default_rng(seed)
    shapes, records = {}, []
    for _ in range(EXAMPLES):
        features = {}
        for name, shape, ids in inputs:
            numbers = rng.integers(1, 12, shape) if ids else rng.random(shape)
            features[name] = [float(n) for n in numbers.reshape(-1)]
        for name, shape in outputs:
            numbers, shapes[name] = target_numbers(rng, kind, list(shape))
            features["target of " + name] = [float(n) for n in numbers]
        records.append(features)
    with open(path, "wb") as f:
        for features in records:
            line = ",".join(f"{n:g}" for numbers in features.values() for n in numbers) + "\n"
            f.write(line.encode() if len(inputs) > 1 else frame(example(features)))
    return shapes


def numbers_text(numbers):
    return "[" + ", ".join(str(n) for n in numbers) + "]"


def columns_text(begin, count):
    return numbers_text([f'"{i}"' for i in range(begin, begin + count)])


def data_of_outputs(path, inputs, outputs, shapes):
    """data.inputs and data.targets: features of records for one input, columns of lines for several."""
    text, column = f'path: "{path}" ', 0
    if len(inputs) == 1:
        text += f'format: TFRECORD inputs {{ input: "{inputs[0][0]}" feature: "{inputs[0][0]}" }}'
        for name, _ in outputs:
            shape = numbers_text(shapes[name])
            text += f' targets {{ output: "{name}" feature: "target of {name}" shape: {shape} }}'
        return text
    text += "format: CSV header: false"
    for name, shape, _ in inputs:
        count = int(numpy.prod(shape))
        text += f' inputs {{ input: "{name}" columns: {columns_text(column, count)} }}'
        column += count
    for name, _ in outputs:
        count = int(numpy.prod(shapes[name]))
        text += f' targets {{ output: "{name}" columns: {columns_text(column, count)} }}'
        column += count
    return text


def data_text(path, inputs, outputs, shapes, kind):
    if len(outputs) > 1:
        return data_of_outputs(path, inputs, outputs, shapes)
    if len(inputs) > 1:
        return f'path: "{path}" format: CSV header: false'
    output = outputs[0][0]
    label = f'label: "target of {output}" ' if kind in ("classes", "binary") else ""
    shape = numbers_text(inputs[0][1])
    text = f'path: "{path}" format: TFRECORD '
    text += f'tfrecord {{ input: "{inputs[0][0]}" {label}encoding: NUMBERS shape: {shape} }}'
    if not label:
        text += f' targets {{ feature: "target of {output}" shape: {numbers_text(shapes[output])} }}'
    return text


def job_text(name, data, loss, outputs):
    loss, *options = loss.split()
    of_loss = f"loss {{ kind: {loss} {'from_logits: true' if options else ''} }}"
    if len(outputs) > 1:
        of_loss = " ".join(f'outputs {{ output: "{output}" {of_loss} weight: 0.5 }}' for output, _ in outputs)
    return f"""
name: "{name}"
replicas: 2 batch_size: 8 epochs: 1 steps_per_epoch: 2 seed: 7
optimizer {{ sgd {{ }} learning_rate: 0.001 }}
{of_loss}
data {{ {data} }}
"""


def description_of(name):
    keras3.clear_names()
    return json.loads(MODELS[name][0]().to_json())


def inputs_of(description):
    if description["class_name"] == "Functional":
        return input_layers(description)
    first = layers_of(description)[0]["config"]
    return [(first["name"], first["batch_shape"][1:], first["dtype"].startswith("int"))]


class Tutorial:
    """One model: its file, its data, its job."""

    def __init__(self, c, name):
        self.c, self.name = c, name
        _, self.loss, self.kind = MODELS[name]
        self.description = description_of(name)
        text = json.dumps(self.description)
        self.constrained = '_constraint": {' in text
        self.model = self.write(".json", text)

    def path(self, ending):
        return os.path.join(self.c.dir, self.name + ending)

    def write(self, ending, text):
        with open(self.path(ending), "w") as f:
            f.write(text)
        return self.path(ending)

    def refusal(self):
        """Cairn's message for the model, or None if it is accepted."""
        done = self.c.cairn("models", self.model, ok=False)
        return None if done.returncode == 0 else done.stderr.strip()

    def submit(self, model, name, strategy, **settings):
        sets = [f"{key}={value}" for key, value in {"name": name, "strategy": strategy, **settings}.items()]
        job = self.path(".textproto")
        done = self.c.cairn("submit", job, "--model", model, *[a for s in sets for a in ("--set", s)], ok=False)
        check(done.returncode == 0, f"{self.name}: {done.stderr}")
        status = self.c.wait(name)
        check(status["state"] == "SUCCEEDED", f"{self.name}: {status.get('reason')}")
        return status

    def predict(self, job):
        self.c.cairn("predict", job, "--split", "train", "-o", self.path(".npy"))
        if len(self.outputs) > 1:
            return numpy.concatenate([numpy.load(self.path(f".{name}.npy")) for name in self.outputs], axis=1)
        return numpy.load(self.path(".npy"))

    def run(self, strategies):
        inputs, outputs = inputs_of(self.description), outputs_of(self.c, self.model)
        path = self.path(".csv" if len(inputs) > 1 else ".tfrecord")
        shapes = write_data(path, inputs, outputs, self.kind, seed=len(self.name))
        data = data_text(path, inputs, outputs, shapes, self.kind)
        self.write(".textproto", job_text(self.name, data, self.loss, outputs))
        self.outputs = [name for name, _ in outputs]
        for strategy in strategies:
            job = f"{self.name}-{strategy.lower()}"
            status = self.submit(self.model, job, strategy)
            check(int(status["step"]) == 2, f"{self.name}: {status['step']} steps")
            exported = self.path(".keras")
            self.c.cairn("export", job, "-o", exported)
            predicted = self.predict(job)
            check(numpy.isfinite(predicted).all(), f"{self.name}: predictions that are not finite")
            # A job must train something: one layer, with a rate that changes no number. Batch normalizations are
            # frozen.
            still = {"initial_weights": exported, "optimizer.learning_rate": "1e-30", "steps_per_epoch": 1}
            still["model.trainable_layers"] = trained_layer(self.c, exported)
            self.submit(exported, job + "-again", strategy, **still)
            again = self.predict(job + "-again")
            # The job's single step applies constraints once more, which may round the norms again.
            tolerance = 1e-6 if self.constrained else 0
            same = numpy.allclose(predicted, again, rtol=0, atol=tolerance)
            check(same, f"{self.name}: the exported model predicts something else")
            os.remove(exported)
            for done in (job, job + "-again"):  # a coordinator keeps at most 1000 of them
                self.c.cairn("delete", done)


def main():
    names = [a for a in sys.argv[1:] if not a.startswith("-")] or sorted(MODELS)
    wrong, accepted, trained = [], 0, 0
    with Cluster(ps=1, workers=2) as c:
        for i, name in enumerate(names):
            tutorial = Tutorial(c, name)
            refusal = tutorial.refusal()
            if refusal is not None:
                expected = REFUSED.get(name)
                if expected is None or expected not in refusal:
                    wrong.append(f"{name} is refused: {refusal}")
                continue
            if name in REFUSED:
                wrong.append(f"{name} is no longer refused: take it from REFUSED")
            accepted += 1
            try:
                tutorial.run(STRATEGIES if "--all" in sys.argv else [STRATEGIES[i % len(STRATEGIES)]])
                trained += 1
                if name in NOT_TRAINED:
                    wrong.append(f"{name} is trained now: take it from NOT_TRAINED")
            except Exception as error:
                if name not in NOT_TRAINED or NOT_TRAINED[name] not in str(error):
                    wrong.append(str(error))
    print(f"of {len(names)} models {accepted} are read, {trained} trained; {len(wrong)} are not as they should be")
    print("\n".join(wrong))
    sys.exit(1 if wrong else 0)


main()
