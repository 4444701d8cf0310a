"""Recurrent layers as torch.onnx.export writes nn.RNN, nn.LSTM and nn.GRU: [steps, batch, features] with or without a
Transpose before it, states of zeros computed of the batch's size, one operator for each of num_layers, outputs joined
by Squeeze or by Transpose and Reshape, and heads that take the last step, h_n, or all steps."""

import itertools

import numpy as np
from onnx import helper

from graph_builder import Builder

STEPS, FEATURES, UNITS, CLASSES = 4, 5, 6, 3
LAST = 2**63 - 1
GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}


class Torch(Builder):
    """What PyTorch writes in the way of its opset: axes are attributes before opset 13."""

    def __init__(self, seed, opset):
        super().__init__(seed)
        self.opset = opset

    def ints(self, *values):
        return self.constant(np.array(values, np.int64))

    def on_axes(self, kind, x, *axes):
        return self.op(kind, x, self.ints(*axes)) if self.opset >= 13 else self.op(kind, x, axes=list(axes))

    def part(self, x, axis, start, end):
        if self.opset >= 10:
            return self.op("Slice", x, self.ints(start), self.ints(end), self.ints(axis))
        return self.op("Slice", x, axes=[axis], starts=[start], ends=[end])

    def pick(self, x, axis, place):
        if self.opset >= 13:
            return self.op("Gather", x, self.constant(np.int64(place)), axis=axis)
        return self.on_axes("Squeeze", self.part(x, axis, place, place + 1 or LAST), axis)

    def swap(self, x):
        return self.op("Transpose", x, perm=[1, 0, 2])


def zeros(b, x, batch_axis, states):
    batch = b.op("Gather", b.op("Shape", x), b.constant(np.int64(batch_axis)), axis=0)
    shape = b.op("Concat", b.ints(states), b.on_axes("Unsqueeze", batch, 0), b.ints(UNITS), axis=0)
    return b.op("ConstantOfShape", shape, value=helper.make_tensor("z", 1, [1], [0.0]))


def recurrence(b, cell, x, layers, both, batch_first):
    """Returns y and h_n."""
    directions, width = 2 if both else 1, GATES[cell] * UNITS
    z = zeros(b, x, 0 if batch_first else 1, layers * directions)
    x = b.swap(x) if batch_first else x
    last, features = [], FEATURES
    for layer in range(layers):
        weights = [
            b.weight(f"{name}{layer}", directions, *shape)
            for name, shape in (("w", (width, features)), ("r", (width, UNITS)), ("b", (2 * width,)))
        ]
        state = z if layers == 1 else b.part(z, 0, layer * directions, (layer + 1) * directions)
        attributes = {"direction": "bidirectional"} if both else {}
        attributes.update({"linear_before_reset": 1} if cell == "GRU" else {})
        attributes.update({"activations": ["Tanh"] * directions} if cell == "RNN" else {})
        outputs = [f"y{layer}", f"h{layer}"] + ([f"c{layer}"] if cell == "LSTM" else [])
        states = [state, state] if cell == "LSTM" else [state]
        y = b.op(cell, x, *weights, "", *states, outputs=outputs, hidden_size=UNITS, **attributes)
        if both:
            x = b.op("Reshape", b.op("Transpose", y, perm=[0, 2, 1, 3]), b.ints(0, 0, -1))
        else:
            x = b.on_axes("Squeeze", y, 1)
        last.append(outputs[1])
        features = directions * UNITS
    h = last[0] if layers == 1 else b.op("Concat", *last, axis=0)
    return (b.swap(x) if batch_first else x), h


def head(b, kind, y, h, both, batch_first):
    """[batch, features], or all steps for "all"."""
    steps = 1 if batch_first else 0
    if kind == "last":
        return b.pick(y, steps, -1)
    if kind == "mean":
        return b.op("ReduceMean", y, axes=[steps], keepdims=0)
    if kind == "state":
        return b.op("Concat", b.pick(h, 0, -2), b.pick(h, 0, -1), axis=1) if both else b.pick(h, 0, -1)
    if kind == "steps_and_state":
        state = b.op("Concat", b.pick(h, 0, -2), b.pick(h, 0, -1), axis=1) if both else b.pick(h, 0, -1)
        return b.op("Concat", b.pick(y, steps, 0), state, b.pick(y, steps, -1), axis=1)
    return b.op("Tanh", y)


HEADS = ("last", "mean", "state", "steps_and_state", "all")


def layers_of(cell, layers, both, batch_first, kind, opset):
    """The expected layers where they are as few as Keras' model would have."""
    kinds = ["bidirectional" if both else {"RNN": "simple_rnn"}.get(cell, cell.lower())] * layers
    if kind == "state" or (kind == "last" and not both):
        return ["input_layer", *kinds, "dense"]
    if kind == "mean":
        return ["input_layer", *kinds, "global_average_pooling1d", "dense"]
    if kind == "all":
        return ["input_layer", *kinds, "activation", "dense"]
    return None


def graph(seed, cell, layers, both, batch_first, kind):
    opset = (9, 11, 13, 16)[seed % 4]
    b = Torch(seed, opset)
    y, h = recurrence(b, cell, "input", layers, both, batch_first)
    x = head(b, kind, y, h, both, batch_first)
    width = (2 if both else 1) * UNITS * (3 if kind == "steps_and_state" else 1)
    if kind == "all":
        x = b.op("Add", b.op("MatMul", x, b.weight("fc", width, CLASSES)), b.weight("fc.bias", CLASSES))
    else:
        x = b.gemm(x, "fc", CLASSES, width)
    names = [
        cell.lower(),
        f"{layers}",
        "both" if both else "one",
        "batch_first" if batch_first else "steps_first",
        kind,
    ]
    return b.graph(
        "_".join(names),
        x,
        [STEPS, FEATURES],
        False,
        [STEPS, CLASSES] if kind == "all" else [CLASSES],
        opset=opset,
        examples=3,
        batch_axis=0 if batch_first else 1,
        out_batch_axis=1 if kind == "all" and not batch_first else 0,
        layers=layers_of(cell, layers, both, batch_first, kind, opset),
    )


def without_open_axis(g):
    """An export without dynamic_axes: the batch has the size of the example."""
    g.model.graph.input[0].type.tensor_type.shape.dim[g.batch_axis].dim_value = g.input.shape[g.batch_axis]
    g.name += "_fixed"
    return g


def reversed_operator():
    """A sequence that one operator computes backwards, which ONNX keeps in its own order; its last state as well."""
    b = Torch(900, 13)
    weights = [b.weight(n, 1, *s) for n, s in (("w", (18, 5)), ("r", (18, 6)), ("b", (36,)))]
    y = b.op("GRU", b.swap("input"), *weights, outputs=["y", "h"], hidden_size=6, direction="reverse")
    y = b.op("Squeeze", y, b.ints(1))
    x = b.op("Concat", b.op("Squeeze", "h", b.ints(0)), b.pick(y, 0, 1), b.pick(y, 0, 0), axis=1)
    return b.graph("reversed_operator", b.gemm(x, "fc", 3, 18), [4, 5], False, [3], examples=3)


def decoder():
    """The last state of one operator is the first one of another, which reads the same steps."""
    b = Torch(901, 13)
    first = [b.weight(n, 1, *s) for n, s in (("w", (18, 5)), ("r", (18, 6)), ("b", (36,)))]
    second = [b.weight(n, 1, *s) for n, s in (("w2", (18, 6)), ("r2", (18, 6)), ("b2", (36,)))]
    y = b.op("GRU", "input", *first, outputs=["y", "h"], hidden_size=6, linear_before_reset=1)
    y = b.op("Squeeze", y, b.ints(1))
    z = b.op("GRU", y, *second, "", "h", outputs=["y2", "h2"], hidden_size=6, linear_before_reset=1)
    x = b.op("Sub", b.op("Relu", b.op("Squeeze", z, b.ints(1))), y)  # steps first, in both
    x = b.op("ReduceMean", x, axes=[0], keepdims=0)
    return b.graph("decoder", b.gemm(x, "fc", 3, 6), [4, 5], False, [3], examples=3, batch_axis=1)


def cell_states(both, with_steps):
    """The last cell states of an LSTM whose first states are constants, the same for each example: beside its last
    states, and beside steps of what it gives."""
    b = Torch(902 + 2 * both + with_steps, 13)
    directions = 2 if both else 1
    weights = [b.weight(n, directions, *s) for n, s in (("w", (24, 5)), ("r", (24, 6)), ("b", (48,)))]
    first = [b.constant(np.repeat(b.random.uniform(-1, 1, (directions, 1, 6)), 3, 1).astype(np.float32)) for _ in "hc"]
    attributes = {"direction": "bidirectional"} if both else {}
    y = b.op("LSTM", "input", *weights, "", *first, outputs=["y", "h", "c"], hidden_size=6, **attributes)
    parts = [b.pick(state, 0, d) for state in ("c", "h") for d in range(directions)]
    if with_steps:
        y = b.op("Transpose", y, perm=[0, 2, 1, 3])
        parts.append(b.pick(b.op("Reshape", y, b.ints(0, 0, -1)), 0, 1))
    x = b.op("Concat", *parts, axis=1)
    names = ["cell_states", "both" if both else "one", *(["steps"] if with_steps else [])]
    width = 6 * directions * (3 if with_steps else 2)
    return b.graph("_".join(names), b.gemm(x, "fc", 3, width), [4, 5], False, [3], examples=3, batch_axis=1)


def graphs():
    cases = itertools.product(GATES, (1, 2), (False, True), (True, False), HEADS)
    made = [graph(seed, *case) for seed, case in enumerate(cases)]
    made += [without_open_axis(graph(800 + i, "LSTM", 2, True, bool(i), "state")) for i in range(2)]
    made += [cell_states(both, steps) for both in (False, True) for steps in (False, True)]
    return made + [reversed_operator(), decoder()]
