"""Models as Keras 3 describes them: a small recorder with the interface of Keras' functional API. It computes nothing.
It writes what model.to_json() writes for the same lines (Keras 3.x, keras.src.models.functional), by the rules of
Keras' serialization, implemented here a second time. Uses nothing of Cairn.

    x = Input((28, 28, 1))
    y = Dense(10, activation="softmax")(Flatten()(x))
    text = Model(x, y).to_json()
"""

import json
import re

from keras3_layers import CLASSES, constraint, initializer, l1, l2, max_norm, obj, orthogonal_regularizer  # noqa: F401

COUNTS = {}


def clear_names():
    COUNTS.clear()


def snake_case(name):
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


def unique(base):
    COUNTS[base] = COUNTS.get(base, -1) + 1
    return base if COUNTS[base] == 0 else f"{base}_{COUNTS[base]}"


TUPLES = ("kernel_size", "strides", "dilation_rate", "pool_size")
RANK = re.compile(r"(\d)D")


class Tensor:
    def __init__(self, layer, node, index=0):
        self.layer, self.node, self.index = layer, node, index

    def history(self):
        config = {"shape": [None], "dtype": "float32", "keras_history": [self.layer.name, self.node, self.index]}
        return {"class_name": "__keras_tensor__", "config": config}

    def __add__(self, other):
        return Operation("Add")(self, other)

    def __radd__(self, other):
        return Operation("Add")(other, self)

    def __sub__(self, other):
        return Operation("Subtract")(self, other)

    def __rsub__(self, other):
        return Operation("Subtract")(other, self)

    def __mul__(self, other):
        return Operation("Multiply")(self, other)

    def __rmul__(self, other):
        return Operation("Multiply")(other, self)

    def __truediv__(self, other):
        return Operation("TrueDivide")(self, other)

    def __neg__(self):
        return Operation("Negative")(self)

    def __matmul__(self, other):
        return Operation("Matmul")(self, other)

    def __getitem__(self, key):
        return Operation("GetItem")(self, key)


def serialized(value):
    """An argument of a call."""
    if isinstance(value, Tensor):
        return value.history()
    if isinstance(value, slice):
        return {"class_name": "__slice__", "config": {"start": value.start, "stop": value.stop, "step": value.step}}
    if value is Ellipsis:
        return {"class_name": "__ellipsis__", "config": {}}
    if isinstance(value, tuple) and any(isinstance(v, slice) or v is Ellipsis for v in value):
        return {"class_name": "__tuple__", "items": [serialized(v) for v in value]}
    if isinstance(value, (list, tuple)):
        return [serialized(v) for v in value]
    return value


def tensors_of(value):
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in tensors_of(v)]
    return []


class Recorded:
    """An entry of a model's list of layers."""

    def __init__(self, name):
        self.name, self.calls = name, []

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return Tensor(self, len(self.calls) - 1)

    def inbound_nodes(self):
        return [
            {"args": [serialized(a) for a in args], "kwargs": {k: serialized(v) for k, v in kwargs.items()}}
            for args, kwargs in self.calls
        ]

    def entry(self):
        return {**self.description(), "name": self.name, "inbound_nodes": self.inbound_nodes()}


class Operation(Recorded):
    """keras.ops on a symbolic tensor."""

    def __init__(self, class_name, **config):
        super().__init__(unique(snake_case(class_name)))
        self.class_name, self.config = class_name, config

    def description(self):
        module = "keras.src.ops.numpy"
        return {
            "module": module,
            "class_name": self.class_name,
            "config": {"name": self.name, **self.config},
            "registered_name": self.class_name,
        }


class Layer(Recorded):
    def __init__(self, class_name, config, name=None):
        super().__init__(name or unique(snake_case(class_name)))
        self.class_name, self.config = class_name, config

    def description(self):
        indices = self.config.get("output_mode") == "int"  # for category layers
        dtype = obj("DTypePolicy", {"name": "int64" if indices else "float32"}, "keras")
        config = {"name": self.name, "trainable": True, "dtype": dtype, **self.config}
        return obj(self.class_name, config, "keras.layers")


def maker(class_name):
    names, defaults = CLASSES[class_name]

    def make(*args, name=None, **kwargs):
        config = {**defaults, **dict(zip(names, args)), **kwargs}
        rank = RANK.search(class_name)
        for key in TUPLES:
            if rank and isinstance(config.get(key), int):
                config[key] = [config[key]] * int(rank.group(1))
        if "Pooling" in class_name and "pool_size" in config and config["strides"] is None:
            config["strides"] = config["pool_size"]
        if class_name == "UpSampling2D" and isinstance(config["size"], int):
            config["size"] = [config["size"]] * 2
        if class_name in ("ZeroPadding2D", "Cropping2D"):
            key = "padding" if class_name == "ZeroPadding2D" else "cropping"
            if isinstance(config[key], int):
                config[key] = [[config[key]] * 2] * 2
        for key in list(config):
            if key.endswith("_initializer"):
                config[key] = initializer(config[key])
        return Layer(class_name, config, name)

    return make


globals().update({class_name: maker(class_name) for class_name in CLASSES})


def Bidirectional(layer, merge_mode="concat", name=None):
    backward = json.loads(json.dumps(layer.description()))
    backward["config"]["name"] = "backward_" + layer.name
    backward["config"]["go_backwards"] = True
    forward = layer.description()
    forward["config"]["name"] = "forward_" + layer.name
    config = {"merge_mode": merge_mode, "layer": forward, "backward_layer": backward}
    return Layer("Bidirectional", config, name)


def TimeDistributed(layer, name=None):
    return Layer("TimeDistributed", {"layer": layer.description()}, name)


def Input(shape, name=None, dtype="float32"):
    config = {"batch_shape": [None, *shape], "dtype": dtype, "sparse": False, "ragged": False}
    layer = Recorded(name or unique("input_layer"))
    layer.calls.append(((), {}))
    layer.description = lambda: obj("InputLayer", {**config, "name": layer.name}, "keras.layers")
    return Tensor(layer, 0)


class Model(Recorded):
    def __init__(self, inputs, outputs, name=None):
        super().__init__(name or unique("functional"))
        self.single = (isinstance(inputs, Tensor), isinstance(outputs, Tensor))
        self.inputs = tensors_of([inputs])
        self.outputs = tensors_of([outputs])

    def layers(self):
        met, order = set(), []

        def visit(tensor):
            key = (tensor.layer.name, tensor.node)
            if key in met:
                return
            met.add(key)
            args, kwargs = tensor.layer.calls[tensor.node]
            if tensor not in self.inputs:
                for before in tensors_of([args, list(kwargs.values())]):
                    visit(before)
            if tensor.layer not in order:
                order.append(tensor.layer)

        for tensor in self.inputs + self.outputs:
            visit(tensor)
        return order

    def description(self):
        ends = [[[t.layer.name, t.node, t.index] for t in ends] for ends in (self.inputs, self.outputs)]
        ends = [e[0] if single else e for e, single in zip(ends, self.single)]
        config = {"name": self.name, "trainable": True, "layers": [layer.entry() for layer in self.layers()]}
        config.update(input_layers=ends[0], output_layers=ends[1])
        return {
            "module": "keras.src.models.functional",
            "class_name": "Functional",
            "config": config,
            "registered_name": "Functional",
        }

    def to_json(self):
        return json.dumps(self.description())


class Sequential(Recorded):
    def __init__(self, layers, name=None):
        super().__init__(name or unique("sequential"))
        self.members = [part.layer if isinstance(part, Tensor) else part for part in layers]

    def description(self):
        dtype = obj("DTypePolicy", {"name": "float32"}, "keras")
        layers = [layer.description() for layer in self.members]
        config = {"name": self.name, "trainable": True, "dtype": dtype, "layers": layers}
        return {"module": "keras", "class_name": "Sequential", "config": config, "registered_name": None}

    def to_json(self):
        return json.dumps(self.description())
