"""An independent reader of .keras archives and safetensors files: uses Python's zip and json, h5py and numpy, by the
rules of Keras 3's saving_lib.py, implemented here a second time. Uses nothing of Cairn."""

import functools
import io
import json
import re
import struct
import zipfile

import h5py
import numpy

VARIABLES = {  # by class, in the order in which Keras' layers create them: trainable ones first
    "Dense": ["kernel", "bias"],
    "Conv2D": ["kernel", "bias"],
    "DepthwiseConv2D": ["kernel", "bias"],
    "BatchNormalization": ["gamma", "beta", "moving_mean", "moving_variance"],
}


def snake_case(name):
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def tensors_of(value):
    """The names of the layers whose outputs occur in a call's arguments."""
    if isinstance(value, dict) and value.get("class_name") == "__keras_tensor__":
        return [value["config"]["keras_history"][0]]
    if isinstance(value, dict):  # keyword arguments: Keras visits them sorted by name
        return [name for _, v in sorted(value.items()) for name in tensors_of(v)]
    if isinstance(value, list):
        return [name for v in value for name in tensors_of(v)]
    return []


def keras_order(config):
    """Functional: layers by depth; those of equal depth in the order of a depth-first search from the output."""
    layers = {layer["name"]: layer for layer in config["layers"]}
    inputs = {
        name: [t for node in layer["inbound_nodes"] for t in tensors_of([node["args"], node["kwargs"]])]
        for name, layer in layers.items()
    }
    output = config["output_layers"][0][0]
    met = {}

    def visit(name):
        if name not in met:
            met[name] = len(met)
            for before in inputs[name]:
                visit(before)

    visit(output)
    users = {name: [user for user in layers if name in inputs[user]] for name in layers}

    @functools.cache
    def depth(name):
        return max([1 + depth(user) for user in users[name]], default=0)

    return sorted(layers.values(), key=lambda layer: (-depth(layer["name"]), met[layer["name"]]))


def read_keras(path):
    """Returns (config, {variable: array}) of an archive; raises an error if it is not as Keras writes it."""
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == ["metadata.json", "config.json", "model.weights.h5"], archive.namelist()
        assert archive.testzip() is None
        metadata = json.loads(archive.read("metadata.json"))
        assert metadata["keras_version"].startswith("3.") and metadata["date_saved"], metadata
        model = json.loads(archive.read("config.json"))
        weights = h5py.File(io.BytesIO(archive.read("model.weights.h5")), "r")
    assert (model["module"], model["class_name"], model["registered_name"]) in (
        ("keras", "Sequential", None),
        ("keras.src.models.functional", "Functional", "Functional"),
    ), model["class_name"]
    config = model["config"]
    if model["class_name"] == "Sequential":
        assert config["layers"][0]["class_name"] == "InputLayer"
        layers = config["layers"][1:]
    else:
        layers = keras_order(config)
    arrays, used, groups = {}, {}, set()
    for layer in layers:
        snake = snake_case(layer["class_name"])
        used[snake] = used.get(snake, -1) + 1
        group = f"layers/{snake}" + (f"_{used[snake]}" if used[snake] else "")
        groups.add(group.split("/")[1])
        name = layer["config"]["name"]
        stored = weights[group]["vars"]
        assert stored.attrs["name"] == name, (group, stored.attrs["name"], name)
        wanted = [
            v for v in VARIABLES.get(layer["class_name"], []) if v != "bias" or layer["config"].get("use_bias", True)
        ]
        assert sorted(stored) == [str(i) for i in range(len(wanted))], (group, list(stored))
        for i, variable in enumerate(wanted):
            assert stored[str(i)].dtype == numpy.float32
            arrays[f"{name}/{variable}"] = stored[str(i)][()]
    assert set(weights["layers"]) == groups, set(weights["layers"]) ^ groups
    return model, arrays


def read_safetensors(path):
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        data = f.read()
    header.pop("__metadata__", None)
    return {
        name: numpy.frombuffer(data[t["data_offsets"][0] : t["data_offsets"][1]], "<f4").reshape(t["shape"])
        for name, t in header.items()
    }
