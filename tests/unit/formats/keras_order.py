"""Where the weights of a layer are in a .weights.h5 file depends on the shape of the model's graph and on how its
layers are called. Models of many shapes (branches, diamonds, keyword arguments, nested models, random shapes) are laid
out here by Keras' rule, which keras_files.py implements a second time. keras_driver reads them and writes them again:
each layer must have its own weights afterwards, in both directions."""

import io
import json
import os
import random
import subprocess
import sys
import tempfile
import zipfile

import h5py
import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../integration"))
from keras_files import keras_order, snake_case  # noqa: E402

SEED = 20
WIDTH = 4
STEPS = 3
ATTENTION = {"num_heads": 1, "key_dim": 2}


def tensor(name):
    return {
        "class_name": "__keras_tensor__",
        "config": {"shape": [None, STEPS, WIDTH], "dtype": "float32", "keras_history": [name, 0, 0]},
    }


class Model:
    """A Functional model under construction: each method adds a layer and returns its name."""

    def __init__(self, prefix=""):
        self.prefix, self.layers = prefix, []
        self.input = self.add("InputLayer", {"batch_shape": [None, STEPS, WIDTH]}, None, None)

    def add(self, kind, config, args, kwargs, **more):
        name = f"{self.prefix}{snake_case(kind)}{len(self.layers)}"
        nodes = [] if args is None else [{"args": args, "kwargs": {k: tensor(v) for k, v in (kwargs or {}).items()}}]
        self.layers.append(
            {
                "module": "keras.layers",
                "class_name": kind,
                "config": {**config, "name": name},
                "registered_name": None,
                "name": name,
                "inbound_nodes": nodes,
                **more,
            }
        )
        return name

    def dense(self, x):
        return self.add("Dense", {"units": WIDTH}, [tensor(x)], None)

    def norm(self, x):
        return self.add("LayerNormalization", {}, [tensor(x)], None)

    def sum(self, *xs):
        return self.add("Add", {}, [[tensor(x) for x in xs]], None)

    def attention(self, *xs, **named):
        return self.add("MultiHeadAttention", ATTENTION, [tensor(x) for x in xs], named)

    def inner(self, model, x):
        """Adds a model as a layer of this one."""
        name = f"{self.prefix}{model['prefix']}model"
        layer = {**model, "name": name, "inbound_nodes": [{"args": [tensor(x)], "kwargs": {}}]}
        layer["config"] = {**layer["config"], "name": name}
        self.layers.append(layer)
        return name

    def json(self, output, shuffle=None):
        config = {
            "name": "m",
            "trainable": True,
            "layers": self.layers[:],
            "input_layers": [[self.input, 0, 0]],
            "output_layers": [[output, 0, 0]],
        }
        config["layers"] = keras_order(config)
        if shuffle is not None:
            shuffle.shuffle(config["layers"])
        return {
            "module": "keras.src.models.functional",
            "class_name": "Functional",
            "config": config,
            "registered_name": "Functional",
            "prefix": self.prefix,
        }


def chain(m, x, n):
    for _ in range(n):
        x = m.dense(x)
    return x


def attention_with(positional, *order):
    """attention(query, value, key) with this many positional arguments; each is the output of its own layer, which are
    created in this order."""

    def build(m):
        made = {argument: m.dense(m.input) for argument in order}
        names = ["query", "value", "key"]
        return m.attention(
            *[made[n] for n in names[:positional]], **{n: made[n] for n in order if n in names[positional:]}
        )

    return build


def deep_keywords(m):
    x = m.attention(query=m.input, value=chain(m, m.input, 3), key=chain(m, m.input, 3))
    return m.attention(query=m.norm(x), key=chain(m, x, 2), value=chain(m, x, 2))


def nested(m):
    inside = Model("inner_")
    body = inside.json(
        inside.attention(query=inside.input, value=inside.dense(inside.input), key=inside.dense(inside.input))
    )
    return m.sum(m.inner(body, m.dense(m.input)), m.dense(m.input))


def sequential_inside(m):
    layers = [
        {"module": "keras.layers", "class_name": kind, "config": {**config, "name": f"s{i}"}, "registered_name": None}
        for i, (kind, config) in enumerate(
            [("Dense", {"units": WIDTH}), ("LayerNormalization", {}), ("Dense", {"units": WIDTH})]
        )
    ]
    body = {
        "module": "keras",
        "class_name": "Sequential",
        "config": {"name": "s", "layers": layers},
        "registered_name": None,
        "prefix": "s",
    }
    return m.sum(m.dense(m.dense(m.input)), m.inner(body, m.dense(m.input)))


def twice_nested(m):
    innermost = Model("b_")
    body = innermost.json(innermost.sum(chain(innermost, innermost.input, 2), innermost.dense(innermost.input)))
    middle = Model("a_")
    x = middle.dense(middle.input)
    return m.inner(middle.json(middle.sum(middle.inner(body, x), middle.dense(x))), m.dense(m.input))


def diamond(m):
    x = m.dense(m.input)
    return m.dense(m.sum(m.dense(x), m.dense(x)))


def two_diamonds(m):
    x = m.dense(m.input)
    a, b = m.dense(x), m.dense(x)
    c, d = m.dense(a), m.sum(a, b)
    return m.sum(m.sum(c, d), m.dense(b))


def residual(m):
    x = m.input
    for _ in range(3):
        x = m.sum(chain(m, x, 2), m.dense(x))
    return x


def crossed(m):
    a, b = m.dense(m.input), m.dense(m.input)
    return m.sum(m.sum(b, a), m.sum(m.dense(a), m.dense(b)))


def of_unequal_length(m):
    return m.sum(chain(m, m.input, 4), m.dense(m.input), chain(m, m.input, 2))


def met_from_behind(m):
    late = m.dense(m.input)
    return m.sum(m.dense(m.dense(m.input)), late, m.norm(late))


def at_random(seed):
    def build(m):
        rng = random.Random(seed)
        made = [m.input]
        for _ in range(14):
            pick = lambda: rng.choice(made[-5:])  # noqa: E731
            kind = rng.randrange(4)
            if kind == 0:
                made.append(m.sum(pick(), pick(), pick()))
            elif kind == 1:
                arguments = {"query": pick(), "value": pick(), "key": pick()}
                positional = rng.randrange(4)
                names = list(arguments)
                keywords = names[positional:]
                rng.shuffle(keywords)
                made.append(
                    m.attention(*[arguments[n] for n in names[:positional]], **{n: arguments[n] for n in keywords})
                )
            else:
                made.append(m.dense(pick()))
        used = {
            t["config"]["keras_history"][0]
            for layer in m.layers
            for node in layer["inbound_nodes"]
            for value in node["args"] + list(node["kwargs"].values())
            for t in (value if isinstance(value, list) else [value])
        }
        return m.sum(m.input, *[name for name in made if name not in used])

    return build


SHAPES = {
    "chain": lambda m: chain(m, m.input, 4),
    "diamond": diamond,
    "two_diamonds": two_diamonds,
    "residual": residual,
    "crossed": crossed,
    "of_unequal_length": of_unequal_length,
    "met_from_behind": met_from_behind,
    "deep_keywords": deep_keywords,
    "nested": nested,
    "sequential_inside": sequential_inside,
    "twice_nested": twice_nested,
    "attention_by_place": attention_with(3, "key", "query", "value"),
    "attention_two_by_place": attention_with(2, "key", "value", "query"),
    "attention_one_by_place": attention_with(1, "value", "key", "query"),
    "attention_by_name": attention_with(0, "query", "value", "key"),
    "attention_by_name_backwards": attention_with(0, "value", "query", "key"),
    **{f"random_{seed}": at_random(SEED + seed) for seed in range(8)},
}


def groups(model, path=""):
    """(group, layer's name, class) of every layer without inner layers, in Keras' order."""
    config = model["config"]
    layers = (
        keras_order(config)
        if model["class_name"] == "Functional"
        else [x for x in config["layers"] if x["class_name"] != "InputLayer"]
    )
    used = {}
    for layer in layers:
        snake = snake_case(layer["class_name"])
        used[snake] = used.get(snake, -1) + 1
        group = f"{path}layers/{snake}" + (f"_{used[snake]}" if used[snake] else "")
        if "layers" in layer["config"]:
            yield from groups(layer, group + "/")
        else:
            yield group, layer["config"]["name"], layer["class_name"]


def variables(kind):
    """By group below the layer's: the shapes of its variables."""
    if kind == "Dense":
        return {"vars": [(WIDTH, WIDTH), (WIDTH,)]}
    if kind == "LayerNormalization":
        return {"vars": [(WIDTH,), (WIDTH,)]}
    if kind == "MultiHeadAttention":
        dim = ATTENTION["key_dim"]
        return {
            **{f"{part}_dense/vars": [(WIDTH, 1, dim), (1, dim)] for part in ("query", "key", "value")},
            "output_dense/vars": [(1, dim, WIDTH), (WIDTH,)],
        }
    return {}


def weights_of(model, numbers):
    """A .weights.h5 file in which every variable of a layer is filled with the layer's number."""
    buffer = io.BytesIO()
    with h5py.File(buffer, "w") as f:
        for group, name, kind in groups(model):
            for below, shapes in variables(kind).items():
                for i, shape in enumerate(shapes):
                    f[f"{group}/{below}/{i}"] = numpy.full(shape, numbers[name], dtype="<f4")
    return buffer.getvalue()


def write(path, model, numbers):
    """Writes the archive. For a model without nested models also the weights alone, whose layout the user's own model
    determines."""
    weights = weights_of(model, numbers)
    with zipfile.ZipFile(path + ".keras", "w") as archive:
        archive.writestr("metadata.json", json.dumps({"keras_version": "3.9.0", "date_saved": "2025-01-01@00:00:00"}))
        archive.writestr("config.json", json.dumps(model))
        archive.writestr("model.weights.h5", weights)
    if is_flat(model):
        with open(path + ".weights.h5", "wb") as f:
            f.write(weights)


def is_flat(model):
    return not any("layers" in layer["config"] for layer in model["config"]["layers"])


def expect_layers(weights, model, numbers, what):
    for group, name, kind in groups(model):
        for below in variables(kind):
            stored = weights[f"{group}/{below}"]["0"][()].ravel()[0]
            assert (
                stored == numbers[name]
            ), f"{what}: {group} has the numbers of layer {stored:g}, not {numbers[name]} ({name})"


def main(driver):
    assert len(SHAPES) >= 20
    with tempfile.TemporaryDirectory() as directory:
        models, numbers = {}, {}
        for name, build in SHAPES.items():
            m = Model()
            output = build(m)
            # The order in which Keras lists the layers, or any other, makes no difference.
            models[name] = m.json(output, random.Random(SEED) if name.startswith("random") else None)
            numbers[name] = {layer: i + 1 for i, (_, layer, _) in enumerate(groups(models[name]))}
            write(os.path.join(directory, name), models[name], numbers[name])
        done = subprocess.run([driver, directory, *models], check=True, stdout=subprocess.PIPE, text=True)
        found = {file: layers for line in done.stdout.splitlines() for file, layers in json.loads(line).items()}
        files = [f for name in models for f in [name + ".keras"] + [name + ".weights.h5"] * is_flat(models[name])]
        assert sorted(found) == sorted(files), sorted(found)
        for file, read in found.items():
            name = file.split(".")[0]
            wanted = {layer: numbers[name][layer] for _, layer, kind in groups(models[name]) if variables(kind)}
            assert read == wanted, f"{file}: read {read}, wanted {wanted}"
        for name in models:
            path = os.path.join(directory, name + ".out")
            with zipfile.ZipFile(path + ".keras") as archive:
                written = json.loads(archive.read("config.json"))
                weights = h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r")
            expect_layers(weights, written, numbers[name], f"{name}.keras")
            if is_flat(models[name]):  # as model.load_weights of the user's own model expects it
                expect_layers(h5py.File(path + ".weights.h5", "r"), models[name], numbers[name], f"{name}.weights.h5")
    print(f"{len(models)} shapes, read and written")


if __name__ == "__main__":
    main(sys.argv[1])
