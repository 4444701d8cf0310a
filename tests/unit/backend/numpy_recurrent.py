"""Recurrent layers and step masks in numpy, from Keras' documentation: SimpleRNN, LSTM, GRU, ConvLSTM, Bidirectional,
Masking, and layers that use a mask. A layer is a function: (spec, inputs, variables, context) -> y and dy -> [dx...].
Gradients are central differences of the layer's own float64 output, so that there is no second derivation that could be
wrong."""

import numpy as np

from numpy_axes import Axes, numbers
from numpy_common import activated

STEP = 1e-6


class Values(dict):
    def __missing__(self, name):
        return None


def by_differences(forward, xs, v):
    """forward: (inputs, variables by name) -> y."""
    values = Values({name: value.copy() for name, value in v.values.items()})
    inputs = [x.copy() for x in xs]
    y = forward(inputs, values)

    def derivative(array, dy):
        d = np.zeros_like(array)
        for place in np.ndindex(*array.shape):
            kept = array[place]
            array[place] = kept + STEP
            above = forward(inputs, values)
            array[place] = kept - STEP
            below = forward(inputs, values)
            array[place] = kept
            d[place] = (dy * (above - below)).sum() / (2 * STEP)
        return d

    def backward(dy):
        for name in values:
            v.add(name, derivative(values[name], dy))
        return [derivative(x, dy) for x in inputs]

    return y, backward


def f(kind, x):
    return activated(kind, x)[0]


def simple_rnn_step(spec, x, h, c, masked_h, w):
    return f(spec["activation"], x @ w["kernel"] + w["bias"] + masked_h @ w["recurrent_kernel"]), c


def lstm_step(spec, x, h, c, masked_h, w):
    i, g, a, o = np.split(x @ w["kernel"] + w["bias"] + masked_h @ w["recurrent_kernel"], 4, axis=-1)
    gate = lambda z: f(spec["recurrent_activation"], z)
    c = gate(g) * c + gate(i) * f(spec["activation"], a)
    return gate(o) * f(spec["activation"], c), c


def gru_step(spec, x, h, c, masked_h, w):
    gate = lambda z: f(spec["recurrent_activation"], z)
    kz, kr, ka = np.split(w["kernel"], 3, axis=-1)
    uz, ur, ua = np.split(w["recurrent_kernel"], 3, axis=-1)
    bias = w["bias"] if spec["reset_after"] else np.stack([w["bias"], np.zeros_like(w["bias"])])
    (bz, br, ba), (sz, sr, sa) = np.split(bias[0], 3), np.split(bias[1], 3)
    z = gate(x @ kz + bz + masked_h @ uz + sz)
    r = gate(x @ kr + br + masked_h @ ur + sr)
    inner = r * (masked_h @ ua + sa) if spec["reset_after"] else (r * masked_h) @ ua
    return z * h + (1 - z) * f(spec["activation"], x @ ka + ba + inner), c


def windows(spec, x):
    """Of a ConvLSTM: the windows over a step of the input, [examples, sides.., channels], and over the state. x: the
    sequence."""
    rank = x.ndim - 3
    kernel, ones = numbers(spec["kernel_size"], rank), (1,) * rank
    strides, dilation = numbers(spec["strides"], rank), numbers(spec["dilation_rate"], rank)
    of_input = Axes(x.shape[2:-1], kernel, strides, dilation, spec["padding"])
    return of_input, Axes(of_input.outs, kernel, ones, ones, "SAME")


def convolved(axes, x, kernel):
    """The sum over the places of the kernel, [sides.., in, out], of what is under them."""
    padded = axes.pad(x)
    return sum(padded[cut] @ kernel[place] for place, cut in axes.places())


def conv_lstm_step(spec, x, h, c, masked_h, w):
    of_input, of_state = windows(spec, x[:, None])
    parts = convolved(of_input, x, w["kernel"]) + w["bias"] + convolved(of_state, masked_h, w["recurrent_kernel"])
    i, g, a, o = np.split(parts, 4, axis=-1)
    gate = lambda z: f(spec["recurrent_activation"], z)
    c = gate(g) * c + gate(i) * f(spec["activation"], a)
    return gate(o) * f(spec["activation"], c), c


CONV = ("conv_lstm1d", "conv_lstm2d", "conv_lstm3d")
STEPS = {"simple_rnn": (simple_rnn_step, 1), "lstm": (lstm_step, 2), "gru": (gru_step, 1)}
STEPS.update({kind: (conv_lstm_step, 2) for kind in CONV})


def cell_name(kind):
    return "conv_lstm_cell/" if kind in CONV else kind + "_cell/"


def state_shape(kind, spec, x):
    """Without the examples."""
    return (*windows(spec, x)[0].outs, spec["filters"]) if kind in CONV else (spec["units"],)


def walk(kind, spec, x, states, w, steps, dropped, zero_masked):
    """Returns the outputs of all steps, or of the last, in the order of computation. steps: [examples, steps], whether
    each counts."""
    step, _ = STEPS[kind]
    n, count = x.shape[:2]
    shape = (n, *state_shape(kind, spec, x))
    w = dict(w)
    if w.get("bias") is None:
        gates = w["kernel"].shape[-1]
        w["bias"] = np.zeros((2, gates) if kind == "gru" and spec["reset_after"] else gates)
    h = states[0] if states else np.zeros(shape)
    c = states[1] if len(states) > 1 else np.zeros(shape)
    last, outputs = np.zeros(shape), []
    order = range(count - 1, -1, -1) if spec["go_backwards"] else range(count)
    for s in order:
        h_new, c_new = step(spec, x[:, s] * dropped[0], h, c, h * dropped[1], w)
        counts = steps[:, s].reshape(n, *(1 for _ in shape[1:]))
        last = np.where(counts, h_new, 0.0 if zero_masked else last)
        h, c = np.where(counts, h_new, h), np.where(counts, c_new, c)
        outputs.append(np.concatenate([last, h, c], axis=-1) if spec.get("return_cell") else last)
    return np.stack(outputs, axis=1) if spec["return_sequences"] else outputs[-1]


def whole(n):
    return (n + 3) // 4 * 4


def factors(context, before, x, state):
    """Dropout factors of the inputs and of the states. before: numbers of a state of the previous recurrence in the
    layer; 0: it is the first. state: the shape of a state."""
    n, step = x.shape[0], x.shape[2:]
    if not context["training"] or context["mask"] is None:
        return np.ones((n, *step)), np.ones((n, *state))
    features, units = int(np.prod(step)), int(np.prod(state))
    inputs = whole(n * features)
    begin = inputs + whole(n * before) if before else 0
    mask = context["mask"]
    return (
        mask[begin : begin + n * features].reshape(n, *step),
        mask[begin + inputs : begin + inputs + n * units].reshape(n, *state),
    )


def counting(context, x, i=0):
    mask = context["step_masks"][i]
    return np.ones(x.shape[:2], bool) if mask is None else mask


def within(values, prefix):
    return {name.removeprefix(prefix): value for name, value in values.items() if name.startswith(prefix)}


def recurrent(kind):
    def layer(spec, xs, v, context):
        def forward(inputs, values):
            own = within(values, cell_name(kind))
            dropped = factors(context, 0, inputs[0], state_shape(kind, spec, inputs[0]))
            return walk(kind, spec, inputs[0], inputs[1:], own, counting(context, inputs[0]), dropped, False)

        return by_differences(forward, xs, v)

    return layer


def bidirectional(spec, xs, v, context):
    def forward(inputs, values):
        outputs, states, before = [], inputs[1:], 0
        for inner in [spec["layer"], spec["backward_layer"]]:
            kind = next(k for k in STEPS if k in inner)
            own = within(values, f"{inner['name']}/{cell_name(kind)}")
            taken, states = states[: STEPS[kind][1]], states[STEPS[kind][1] :]
            s = inner[kind]
            state = state_shape(kind, s, inputs[0])
            dropped = factors(context, before, inputs[0], state)
            before = int(np.prod(state))
            steps = counting(context, inputs[0])
            outputs.append(walk(kind, s, inputs[0], taken, own, steps, dropped, s["return_sequences"]))
        one, two = outputs
        if s["return_sequences"]:
            two = two[:, ::-1]
        joins = {
            "CONCAT": lambda: np.concatenate([one, two], axis=-1),
            "SUM": lambda: one + two,
            "MUL": lambda: one * two,
            "AVE": lambda: (one + two) / 2,
        }
        return joins[spec["merge_mode"]]()

    return by_differences(forward, xs, v)


def masking(spec, xs, v, context):
    counts = (xs[0] != spec["mask_value"]).any(axis=-1, keepdims=True)
    return xs[0] * counts, lambda dy: [dy * counts]


def made_mask(kind, spec, x):
    """Which steps count for later layers, if the layer makes a mask."""
    if kind == "masking":
        return (x != spec["mask_value"]).any(axis=-1)
    return x != 0 if kind == "embedding" and spec["mask_zero"] else None


def masked_average(plain):
    def layer(spec, xs, v, context):
        mask = context["step_masks"][0]
        if mask is None:
            return plain(spec, xs, v, context)
        share = mask / np.maximum(mask.sum(axis=1, keepdims=True), 1)
        y = (xs[0] * share[:, :, None]).sum(axis=1, keepdims=spec["keepdims"])
        return y, lambda dy: [dy.reshape(len(dy), 1, -1) * share[:, :, None]]

    return layer


def masked_attention(plain):
    """As in Keras: a query sees the keys that count, a masked query none."""

    def layer(spec, xs, v, context):
        masks = context["step_masks"]
        if all(m is None for m in masks):
            return plain(spec, xs, v, context)
        query = counting(context, xs[0])[:, None, :, None]
        seen = query & counting(context, xs[1], 1)[:, None, None] & counting(context, xs[-1], -1)[:, None, None]
        if spec["use_causal_mask"]:
            seen = seen & np.tril(np.ones(seen.shape[-2:], bool))

        def forward(inputs, w):
            bias = lambda name: 0 if w[name] is None else w[name]
            q = np.einsum("btf,fhd->bhtd", inputs[0], w["query/kernel"]) + bias("query/bias")[None, :, None]
            k = np.einsum("btf,fhd->bhtd", inputs[-1], w["key/kernel"]) + bias("key/bias")[None, :, None]
            a = np.einsum("btf,fhd->bhtd", inputs[1], w["value/kernel"]) + bias("value/bias")[None, :, None]
            scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(spec["key_dim"])
            e = np.where(seen, np.exp(scores), 0.0)
            weights = e / np.maximum(e.sum(axis=-1, keepdims=True), 1e-30)
            return np.einsum("bhtd,hdf->btf", weights @ a, w["attention_output/kernel"]) + bias("attention_output/bias")

        return by_differences(forward, xs, v)

    return layer
