"""Goal: legacy .h5 files are read as Keras reads them. The files are written here with h5py by the rules of
tf_keras/src/saving/legacy/hdf5_format.py (layer_names, weight_names, arrays below the layer's group), and read by
h5_driver. Covers models and weights alone, by name and by order, nested models, long lists in parts, and names with any
character. Damaged files and files of other kinds are rejected with the reason."""

import json
import os
import subprocess
import sys
import tempfile

import h5py
import numpy

DRIVER = sys.argv[1]
rng = numpy.random.default_rng(7)


def layer(kind, name, **config):
    return {"class_name": kind, "config": {"name": name, "trainable": True, "dtype": "float32", **config}}


def sequential(layers, shape=(4,)):
    first = {
        "class_name": "InputLayer",
        "config": {"batch_input_shape": [None, *shape], "dtype": "float32", "name": "in"},
    }
    return {"class_name": "Sequential", "config": {"name": "net", "layers": [first, *layers]}, "backend": "tensorflow"}


def call(name):
    return [[[name, 0, 0, {}]]]


def functional(name, layers, shape, chain):
    """Layers in a sequence."""
    listed = [
        {
            "class_name": "InputLayer",
            "name": f"{name}_in",
            "config": {"batch_input_shape": [None, *shape], "dtype": "float32", "name": f"{name}_in"},
            "inbound_nodes": [],
        }
    ]
    before = f"{name}_in"
    for one in layers:
        listed.append({**one, "name": one["config"]["name"], "inbound_nodes": call(before)})
        before = one["config"]["name"]
    return {
        "class_name": "Functional",
        "config": {
            "name": name,
            "layers": listed,
            "input_layers": [[f"{name}_in", 0, 0]],
            "output_layers": [[before, 0, 0]],
        },
    }


def numbers(*shape):
    return rng.standard_normal(shape).astype(numpy.float32)


def save_names(group, attribute, names, parts=1):
    """As Keras: fixed-size bytes; an empty list becomes an array of float64; a long one is split."""
    if parts == 1:
        group.attrs[attribute] = [n.encode() for n in names]
        return
    for i, part in enumerate(numpy.array_split(numpy.array([n.encode() for n in names]), parts)):
        group.attrs[f"{attribute}{i}"] = part


def save_weights(group, layers, parts=1, **array):
    """layers: [(layer, [(weight, values)])]"""
    save_names(group, "layer_names", [name for name, _ in layers], parts)
    group.attrs["backend"] = b"tensorflow"
    group.attrs["keras_version"] = b"2.15.0"
    for name, weights in layers:
        of_layer = group.create_group(name)
        save_names(of_layer, "weight_names", [w for w, _ in weights], min(parts, max(1, len(weights))))
        for weight, values in weights:
            of_layer.create_dataset(weight, data=values, **array)


def save_model(path, model, layers, text=lambda t: t.encode(), **how):
    with h5py.File(path, "w") as f:
        f.attrs["backend"], f.attrs["keras_version"] = text("tensorflow"), text("2.15.0")
        f.attrs["model_config"] = text(json.dumps(model))
        f.attrs["training_config"] = text("{}")
        save_weights(f.create_group("model_weights"), layers, **how)
        f["model_weights"].create_group("top_level_model_weights").attrs["weight_names"] = []
        f.create_group("optimizer_weights").create_dataset("Adam/iter:0", data=numpy.int64(3))


def read(path, model=None):
    arguments = [DRIVER, path]
    if model is not None:
        with open(path + ".json", "w") as f:
            json.dump(model, f)
        arguments.append(path + ".json")
    return json.loads(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)


def expect(path, wanted, model=None):
    got = read(path, model)
    assert "values" in got, got
    assert sorted(got["values"]) == sorted(wanted), (sorted(got["values"]), sorted(wanted))
    for name, values in wanted.items():
        numpy.testing.assert_array_equal(numpy.float32(got["values"][name]), values.astype(numpy.float32).ravel(), name)
    return got


def expect_error(path, *words, model=None):
    got = read(path, model)
    assert "error" in got, got
    for word in words:
        assert word in got["error"], got["error"]


IMAGE = [
    layer("Conv2D", "conv", filters=2, kernel_size=[3, 3]),
    layer("BatchNormalization", "bn"),
    layer("Activation", "act", activation="relu"),
    layer("Flatten", "flat"),
    layer("Dense", "out", units=3),
]


def image_weights(names):
    """By layer of IMAGE, with the variables of each, named by this function."""
    shapes = {"conv": [(3, 3, 1, 2), (2,)], "bn": [(2,)] * 4, "out": [(32, 3), (3,)]}
    return [
        (name, [(w, numbers(*s)) for w, s in zip(names(name), shapes.get(name, []))])
        for name in ("conv", "bn", "act", "flat", "out")
    ]


KEYS = {
    "conv": ["kernel", "bias"],
    "bn": ["gamma", "beta", "moving_mean", "moving_variance"],
    "out": ["kernel", "bias"],
}


def keras2_names(name):
    return [f"{name}/{k}:0" for k in KEYS.get(name, [])]


def wanted_of(layers):
    return {
        f"{name}/{key}": values for name, weights in layers for key, (_, values) in zip(KEYS.get(name, []), weights)
    }


def whole_models(folder):
    model = sequential(IMAGE, (6, 6, 1))
    layers = image_weights(keras2_names)
    wanted = wanted_of(layers)
    path = os.path.join(folder, "m.h5")
    save_model(path, model, layers)
    expect(path, wanted)
    for ending in ("keras", "hdf5"):  # extensions that Keras 2 up to 2.11 also uses
        other = os.path.join(folder, "m." + ending)
        os.rename(path, other)
        expect(other, wanted)
        os.rename(other, path)
    save_model(path, model, layers, text=lambda t: t)  # attributes of variable length
    expect(path, wanted)
    save_model(path, model, layers, parts=2)
    expect(path, wanted)
    save_model(path, model, layers, compression="gzip", shuffle=True)
    expect(path, wanted)
    save_model(path, model, [(n, [(w, v.astype(numpy.float64)) for w, v in ws]) for n, ws in layers])
    expect(path, wanted)
    # Keras 3: the variables' paths.
    layers = image_weights(lambda name: [f"net/{name}/{k}" for k in KEYS.get(name, [])])
    save_model(path, model, layers)
    expect(path, wanted_of(layers))
    # A layer that has more variables in the file: matched by name.
    layers[1][1].append(("bn/count:0", numbers(1)))
    save_model(path, model, layers)
    expect(path, wanted_of(layers))


def weights_alone(folder):
    model = sequential(IMAGE, (6, 6, 1))
    path = os.path.join(folder, "w.h5")
    layers = image_weights(keras2_names)
    with h5py.File(path, "w") as f:
        save_weights(f, layers)
    expect(path, wanted_of(layers), model)
    alone = os.path.join(folder, "w.weights.h5")  # Keras 2 up to 2.12
    os.rename(path, alone)
    expect(alone, wanted_of(layers), model)
    expect_error(alone, "holds weights without a model")
    # Other names: matched by order.
    renamed = [(f"{n}_7", [(w.replace("/", "_7/", 1), v) for w, v in ws]) for n, ws in layers]
    with h5py.File(path, "w") as f:
        save_weights(f, renamed)
    expect(path, wanted_of(layers), model)
    # A single matching name is ignored if the others do not match.
    mixed = renamed[:-1] + [("out", layers[-1][1])]
    with h5py.File(path, "w") as f:
        save_weights(f, mixed)
    expect(path, wanted_of(layers), model)
    # In another order: matched by name.
    with h5py.File(path, "w") as f:
        save_weights(f, layers[::-1])
    expect(path, wanted_of(layers), model)


def nested(folder):
    inner = functional("inner", IMAGE[:2], (6, 6, 1), None)
    outer = functional("outer", [inner, layer("Flatten", "flat"), layer("Dense", "out", units=3)], (6, 6, 1), None)
    of = dict(image_weights(keras2_names))
    trainable_first = of["conv"] + of["bn"][:2] + of["bn"][2:]
    path = os.path.join(folder, "nested.h5")
    save_model(path, outer, [("outer_in", []), ("inner", trainable_first), ("flat", []), ("out", of["out"])])
    expect(path, wanted_of([(n, of[n]) for n in ("conv", "bn", "out")]))


def operations(folder):
    """Keras 3 leaves modules out: x + 3 is told from a layer Add by its config."""

    def of(name, *more):
        tensor = {"shape": [None, 4], "dtype": "float32", "keras_history": [name, 0, 0]}
        return [{"args": [{"class_name": "__keras_tensor__", "config": tensor}, *more], "kwargs": {}}]

    model = functional("net", [], (4,), None)
    model["config"]["layers"] += [
        {**layer("Dense", "d", units=4), "name": "d", "inbound_nodes": of("net_in")},
        {"class_name": "Add", "config": {"name": "add"}, "name": "add", "inbound_nodes": of("d", 3.0)},
    ]
    model["config"]["output_layers"] = [["add", 0, 0]]
    kernel, bias = numbers(4, 4), numbers(4)
    path = os.path.join(folder, "operations.h5")
    save_model(path, model, [("d", [("d/kernel", kernel), ("d/bias", bias)]), ("add", [])])
    assert expect(path, {"d/kernel": kernel, "d/bias": bias})["layers"] == ["net_in", "d", "add"]


def attention(folder):
    model = functional("net", [], (3, 4), None)
    config = {"num_heads": 2, "key_dim": 2, "name": "mha", "trainable": True, "dtype": "float32"}
    nodes = [[["net_in", 0, 0, {"value": ["net_in", 0, 0]}]]]
    model["config"]["layers"].append(
        {"class_name": "MultiHeadAttention", "name": "mha", "config": config, "inbound_nodes": nodes}
    )
    model["config"]["output_layers"] = [["mha", 0, 0]]
    shapes = {"query": [(4, 2, 2), (2, 2)], "key": [(4, 2, 2), (2, 2)], "value": [(4, 2, 2), (2, 2)]}
    shapes["attention_output"] = [(2, 2, 4), (4,)]
    weights = [
        (f"mha/{part}/{key}:0", numbers(*shape))
        for part, both in shapes.items()
        for key, shape in zip(("kernel", "bias"), both)
    ]
    path = os.path.join(folder, "attention.h5")
    save_model(path, model, [("net_in", []), ("mha", weights)])
    expect(path, {name[:-2]: values for name, values in weights})


def conv_lstm(folder):
    """Keras 2 leaves the cell out of the names of its weights; they are told by their order."""
    model = sequential([layer("ConvLSTM2D", "conv_lst_m2d", filters=2, kernel_size=[3, 3])], (4, 6, 6, 1))
    shapes = {"kernel": (3, 3, 1, 8), "recurrent_kernel": (3, 3, 2, 8), "bias": (8,)}
    values = {key: numbers(*shape) for key, shape in shapes.items()}
    path = os.path.join(folder, "film.h5")
    save_model(path, model, [("conv_lst_m2d", [(f"conv_lst_m2d/{key}:0", v) for key, v in values.items()])])
    expect(path, {f"conv_lst_m2d/conv_lstm_cell/{key}": v for key, v in values.items()})


def model_on_steps(folder):
    """A TimeDistributed has the weights of the model within it, its trainable ones first, named as in that model."""
    frames = layer("TimeDistributed", "frames", layer=functional("cnn", IMAGE[:4], (6, 6, 1), None))
    model = sequential([frames, layer("GRU", "gru", units=2, reset_after=True)], (5, 6, 6, 1))
    of = dict(image_weights(keras2_names))
    gru = {"kernel": numbers(32, 6), "recurrent_kernel": numbers(2, 6), "bias": numbers(2, 6)}
    path = os.path.join(folder, "steps.h5")
    weights = of["conv"] + of["bn"]
    save_model(path, model, [("frames", weights), ("gru", [(f"gru/gru_cell/{k}:0", v) for k, v in gru.items()])])
    wanted = {f"{n}/{n}/{k}": v for n in ("conv", "bn") for k, (_, v) in zip(KEYS[n], of[n])}
    got = expect(path, {**wanted, **{f"gru/gru_cell/{k}": v for k, v in gru.items()}})
    assert got["layers"] == ["in", "conv", "bn", "act", "flat", "gru"], got["layers"]


def any_name(folder):
    names = ["a b", "block/conv/x", "d\u00e9j\u00e0", 'q"uote', "d.1", "\u5c42"]
    model = sequential([layer("Dense", n, units=4) for n in names])
    layers = [(n, [(f"{n}/kernel:0", numbers(4, 4)), (f"{n}/bias:0", numbers(4))]) for n in names]
    path = os.path.join(folder, "names.h5")
    save_model(path, model, layers)
    got = expect(path, {w[:-2]: v for _, ws in layers for w, v in ws})
    assert got["layers"][1:] == names, got["layers"]


def bad_files(folder):
    model = sequential(IMAGE, (6, 6, 1))
    layers = image_weights(keras2_names)
    path = os.path.join(folder, "bad.h5")
    save_model(path, model, layers)
    with open(path, "rb") as f:
        good = f.read()
    for cut in range(0, len(good), len(good) // 24):
        with open(path, "wb") as f:
            f.write(good[:cut])
        expect_error(path, "bad.h5")

    def altered(change):
        save_model(path, model, layers)
        with h5py.File(path, "a") as f:
            change(f)

    def drop(f):
        del f["model_weights/out/out/bias:0"]

    altered(drop)
    expect_error(path, 'variable "out/bias"', "is missing")

    def shorter(f):
        drop(f)
        f["model_weights/out/out/bias:0"] = numbers(4)

    altered(shorter)
    expect_error(path, 'variable "out/bias"', "shape [4], [3] in the model")

    def link(f):
        drop(f)
        f["model_weights/out/out/bias:0"] = h5py.ExternalLink("/etc/passwd", "/x")

    altered(link)
    expect_error(path, "is a link to somewhere else, which is not followed")

    def one_layer_less(f):
        f["model_weights"].attrs["layer_names"] = [b"conv", b"bn"]

    altered(one_layer_less)
    expect_error(path, 'layer "out": its 2 variables are not in', "2 have weights there, 3 in the model")

    def of_numbers(f):
        f["model_weights"].attrs["layer_names"] = [1, 2]

    altered(of_numbers)
    expect_error(path, 'attribute "layer_names" of model_weights is not text')

    def config_of_number(f):
        f.attrs["model_config"] = 3

    altered(config_of_number)
    expect_error(path, "bad.h5", "model_config", "is not text")

    def without_names(f):
        del f["model_weights"].attrs["layer_names"]

    altered(without_names)
    expect_error(path, "bad.h5")
    for attribute, value in (("keras_version", b"1.2.2"), ("backend", b"theano")):

        def of_keras1(f):
            f["model_weights"].attrs[attribute] = value

        altered(of_keras1)
        expect_error(path, attribute, "load it in Keras 2 with TensorFlow and save it again")

    def not_a_group(f):
        del f["model_weights/bn"]
        f["model_weights/bn"] = numbers(2)

    altered(not_a_group)
    expect_error(path, "bad.h5")
    with h5py.File(path, "w") as f:
        f["x"] = numbers(3)
    expect_error(path, "holds weights without a model")
    expect_error(path, "bad.h5", model=model)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for test in (
            whole_models,
            weights_alone,
            nested,
            operations,
            attention,
            conv_lstm,
            model_on_steps,
            any_name,
            bad_files,
        ):
            test(folder)
            print(test.__name__, "ok")


main()
