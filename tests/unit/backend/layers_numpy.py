"""Goal: every layer computes what its definition says, forward and backward, on both CPU backends.

The definitions are written here once more, in numpy and float64, from Keras' and TensorFlow's documentation and the
papers, without a look at the backends: shapes, SAME pads and defaults too. layers_driver prints models, values, batches
and what the backends make of them; this compares loss, prediction, evaluation and every variable's gradient.

usage: layers_numpy.py PATH/TO/layers_driver
"""

import json
import math
import subprocess
import sys

import numpy as np

TOLERANCE = {"reference": 2e-6, "onednn": 5e-5}  # of a vector's norm; the numbers come as float32
ERF = np.vectorize(math.erf)


class Variables:
    """A layer's variables by their name within it, and where their gradients go: nowhere where the layer is frozen."""

    def __init__(self, case, node):
        self.values, self.gradients = {}, {}
        self.frozen = not case["model"][node]["layer"].get("trainable", True)
        for v in case["variables"]:
            if v["node"] != node:
                continue
            name = v["name"].split("/", 1)[1]
            size = int(np.prod(v["shape"]))
            flat = np.array(case["values"][v["offset"]:v["offset"] + size], dtype=np.float64)
            self.values[name] = flat.reshape(v["shape"])
            self.gradients[name] = np.zeros(v["shape"])

    def __getitem__(self, name):
        return self.values.get(name)

    def add(self, name, gradient):
        if name in self.gradients and not self.frozen:
            self.gradients[name] += gradient


# ---- activations: f and f' ----

def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu_inner(x):
    return np.sqrt(2 / np.pi) * (x + 0.044715 * x ** 3)


def gelu_tanh_derivative(x):
    t = np.tanh(gelu_inner(x))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t ** 2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x ** 2)


def activation_of(layer, slope=0.2, alpha=1.0):
    return {
        "LINEAR": (lambda x: x, np.ones_like),
        "RELU": (lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0),
        "RELU6": (lambda x: np.minimum(np.maximum(x, 0), 6), lambda x: ((x > 0) & (x < 6)) * 1.0),
        "LEAKY_RELU": (lambda x: np.where(x > 0, x, slope * x), lambda x: np.where(x > 0, 1.0, slope)),
        "ELU": (lambda x: np.where(x > 0, x, alpha * (np.exp(x) - 1)), lambda x: np.where(x > 0, 1.0, alpha * np.exp(x))),
        "SIGMOID": (sigmoid, lambda x: sigmoid(x) * sigmoid(-x)),
        "TANH": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
        "GELU": (lambda x: x * 0.5 * (1 + ERF(x / np.sqrt(2))),
                 lambda x: 0.5 * (1 + ERF(x / np.sqrt(2))) + x * np.exp(-x ** 2 / 2) / np.sqrt(2 * np.pi)),
        "GELU_TANH": (lambda x: 0.5 * x * (1 + np.tanh(gelu_inner(x))), gelu_tanh_derivative),
        "SILU": (lambda x: x * sigmoid(x), lambda x: sigmoid(x) + x * sigmoid(x) * sigmoid(-x)),
        "SOFTPLUS": (lambda x: np.log(1 + np.exp(x)), sigmoid),
    }[layer]


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_backward(y, dy):
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


def activated(kind, x, slope=0.2, alpha=1.0):
    """f(x) and the function dy -> dx."""
    if kind == "SOFTMAX":
        y = softmax(x)
        return y, lambda dy: softmax_backward(y, dy)
    f, derivative = activation_of(kind, slope, alpha)
    return f(x), lambda dy: dy * derivative(x)


# ---- windows ----

def pads(size, kernel, stride, dilation, same):
    """TensorFlow's: output size and pads before and after."""
    reach = (kernel - 1) * dilation + 1
    if not same:
        return (size - reach) // stride + 1, 0, 0
    out = -(-size // stride)
    total = max(0, (out - 1) * stride + reach - size)
    return out, total // 2, total - total // 2


class Window:
    """Cuts a padded image [n, h, w, c] into the pixels under each kernel place, and puts gradients back."""

    def __init__(self, h, w, kernel, strides, dilation, same):
        self.kernel, self.strides, self.dilation = kernel, strides, dilation
        self.size = (h, w)
        (self.oh, *self.pad_h), (self.ow, *self.pad_w) = (
            pads(s, k, t, d, same) for s, k, t, d in zip((h, w), kernel, strides, dilation))

    def pad(self, x, value=0.0):
        return np.pad(x, ((0, 0), self.pad_h, self.pad_w, (0, 0)), constant_values=value)

    def unpad(self, x):
        return x[:, self.pad_h[0]:self.pad_h[0] + self.size[0], self.pad_w[0]:self.pad_w[0] + self.size[1]]

    def places(self):
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                y, x = ky * self.dilation[0], kx * self.dilation[1]
                yield ky, kx, (slice(None), slice(y, y + (self.oh - 1) * self.strides[0] + 1, self.strides[0]),
                               slice(x, x + (self.ow - 1) * self.strides[1] + 1, self.strides[1]))


def conv(x, kernel, window):
    """y and dy -> (dx, dkernel); kernel [h, w, in, out]."""
    padded = window.pad(x)
    y = sum(np.einsum("nhwi,io->nhwo", padded[cut], kernel[ky, kx]) for ky, kx, cut in window.places())

    def backward(dy):
        dx, dkernel = np.zeros_like(padded), np.zeros_like(kernel)
        for ky, kx, cut in window.places():
            dx[cut] += np.einsum("nhwo,io->nhwi", dy, kernel[ky, kx])
            dkernel[ky, kx] = np.einsum("nhwi,nhwo->io", padded[cut], dy)
        return window.unpad(dx), dkernel
    return y, backward


def depthwise(x, kernel, window):
    """kernel [h, w, channels, multiplier]."""
    padded = window.pad(x)
    shape = (x.shape[0], window.oh, window.ow, -1)
    y = sum(np.einsum("nhwc,cm->nhwcm", padded[cut], kernel[ky, kx]) for ky, kx, cut in window.places())

    def backward(dy):
        dy = dy.reshape(y.shape)
        dx, dkernel = np.zeros_like(padded), np.zeros_like(kernel)
        for ky, kx, cut in window.places():
            dx[cut] += np.einsum("nhwcm,cm->nhwc", dy, kernel[ky, kx])
            dkernel[ky, kx] = np.einsum("nhwc,nhwcm->cm", padded[cut], dy)
        return window.unpad(dx), dkernel
    return y.reshape(shape), backward


def window_of(x, spec, kernel="kernel_size"):
    def pair(name, default=1):
        return tuple(spec.get(name) or (default, default))
    return Window(x.shape[1], x.shape[2], pair(kernel), pair("strides"), pair("dilation_rate"), spec["padding"] == "SAME")


def with_bias_and_activation(spec, v, linear, linear_backward):
    """Adds what stands behind a linear map: bias and activation. linear_backward: dy -> dx."""
    z = linear if v["bias"] is None else linear + v["bias"]
    y, activation_backward = activated(spec["activation"], z)

    def backward(dy):
        dz = activation_backward(dy)
        v.add("bias", dz.reshape(-1, dz.shape[-1]).sum(axis=0))
        return [linear_backward(dz)]
    return y, backward


# ---- layers: (spec, inputs, variables, context) -> y and dy -> [dx...] ----

def conv2d(spec, xs, v, _):
    y, back = conv(xs[0], v["kernel"], window_of(xs[0], spec))

    def linear_backward(dz):
        dx, dkernel = back(dz)
        v.add("kernel", dkernel)
        return dx
    return with_bias_and_activation(spec, v, y, linear_backward)


def conv1d(spec, xs, v, _):
    x = xs[0][:, None]
    window = Window(1, x.shape[2], (1, spec["kernel_size"]), (1, spec["strides"]), (1, spec["dilation_rate"]),
                    spec["padding"] == "SAME")
    y, back = conv(x, v["kernel"][None], window)

    def linear_backward(dz):
        dx, dkernel = back(dz[:, None])
        v.add("kernel", dkernel[0])
        return dx[:, 0]
    return with_bias_and_activation(spec, v, y[:, 0], linear_backward)


def depthwise_conv2d(spec, xs, v, _):
    y, back = depthwise(xs[0], v["kernel"], window_of(xs[0], spec))

    def linear_backward(dz):
        dx, dkernel = back(dz)
        v.add("kernel", dkernel)
        return dx
    return with_bias_and_activation(spec, v, y, linear_backward)


def separable_conv2d(spec, xs, v, _):
    between, first = depthwise(xs[0], v["depthwise_kernel"], window_of(xs[0], spec))
    y, second = conv(between, v["pointwise_kernel"], Window(*between.shape[1:3], (1, 1), (1, 1), (1, 1), False))

    def linear_backward(dz):
        dbetween, dpointwise = second(dz)
        dx, ddepthwise = first(dbetween)
        v.add("pointwise_kernel", dpointwise)
        v.add("depthwise_kernel", ddepthwise)
        return dx
    return with_bias_and_activation(spec, v, y, linear_backward)


def conv2d_transpose(spec, xs, v, _):
    """tf.nn.conv2d_transpose: each input pixel lays the kernel [h, w, out, in] over the output."""
    x, kernel, strides, same = xs[0], v["kernel"], spec["strides"], spec["padding"] == "SAME"
    sizes, begins = [], []
    for i in range(2):
        k, s, n = kernel.shape[i], strides[i], x.shape[1 + i]
        sizes.append(n * s if same else n * s + max(k - s, 0))
        begins.append(pads(sizes[i], k, s, 1, same)[1])
    full = np.zeros((x.shape[0], *((x.shape[1 + i] - 1) * strides[i] + max(kernel.shape[i], strides[i]) for i in (0, 1)),
                     kernel.shape[2]))

    def cut(ky, kx):
        return (slice(None), slice(ky, ky + (x.shape[1] - 1) * strides[0] + 1, strides[0]),
                slice(kx, kx + (x.shape[2] - 1) * strides[1] + 1, strides[1]))
    inner = (slice(None), slice(begins[0], begins[0] + sizes[0]), slice(begins[1], begins[1] + sizes[1]))
    taps = [(ky, kx) for ky in range(kernel.shape[0]) for kx in range(kernel.shape[1])]
    for ky, kx in taps:
        full[cut(ky, kx)] += np.einsum("nhwi,oi->nhwo", x, kernel[ky, kx])

    def linear_backward(dz):
        dfull = np.zeros_like(full)
        dfull[inner] = dz
        dkernel = np.zeros_like(kernel)
        dx = np.zeros_like(x)
        for ky, kx in taps:
            dx += np.einsum("nhwo,oi->nhwi", dfull[cut(ky, kx)], kernel[ky, kx])
            dkernel[ky, kx] = np.einsum("nhwo,nhwi->oi", dfull[cut(ky, kx)], x)
        v.add("kernel", dkernel)
        return dx
    return with_bias_and_activation(spec, v, full[inner], linear_backward)


def dense(spec, xs, v, _):
    x, kernel = xs[0], v["kernel"]

    def linear_backward(dz):
        v.add("kernel", x.reshape(-1, x.shape[-1]).T @ dz.reshape(-1, dz.shape[-1]))
        return dz @ kernel.T
    return with_bias_and_activation(spec, v, x @ kernel, linear_backward)


def embedding(spec, xs, v, _):
    ids = xs[0].astype(int)

    def backward(dy):
        gradient = np.zeros_like(v["embeddings"])
        np.add.at(gradient, ids, dy)
        v.add("embeddings", gradient)
        return [np.zeros_like(xs[0])]
    return v["embeddings"][ids], backward


def normalized(x, axes, epsilon):
    """Over `axes` with their own statistics: x normalized and d(normalized) -> dx."""
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    factor = 1 / np.sqrt(variance + epsilon)
    n = (x - mean) * factor

    def backward(dn):
        return factor * (dn - dn.mean(axis=axes, keepdims=True) - n * (dn * n).mean(axis=axes, keepdims=True))
    return n, backward


def scaled(v, n, back):
    gamma = 1.0 if v["gamma"] is None else v["gamma"]
    beta = 0.0 if v["beta"] is None else v["beta"]

    def backward(dy):
        axes = tuple(range(dy.ndim - 1))
        v.add("gamma", (dy * n).sum(axis=axes))
        v.add("beta", dy.sum(axis=axes))
        return [back(dy * gamma)]
    return n * gamma + beta, backward


def batch_normalization(spec, xs, v, context):
    x = xs[0]
    if not context["training"] or v.frozen:
        factor = 1 / np.sqrt(v["moving_variance"] + spec["epsilon"])
        return scaled(v, (x - v["moving_mean"]) * factor, lambda dn: dn * factor)
    axes = tuple(range(x.ndim - 1))
    # What a push carries for the moving averages: examples times the batch's statistics.
    v.add("moving_mean", len(x) * x.mean(axis=axes))
    v.add("moving_variance", len(x) * x.var(axis=axes))
    return scaled(v, *normalized(x, axes, spec["epsilon"]))


def layer_normalization(spec, xs, v, _):
    return scaled(v, *normalized(xs[0], (-1,), spec["epsilon"]))


def group_normalization(spec, xs, v, _):
    x = xs[0]
    grouped = x.reshape(x.shape[0], -1, spec["groups"], x.shape[-1] // spec["groups"])
    n, back = normalized(grouped, (1, 3), spec["epsilon"])
    return scaled(v, n.reshape(x.shape), lambda dn: back(dn.reshape(grouped.shape)).reshape(x.shape))


def activation(spec, xs, _v, _c):
    y, back = activated(spec["activation"], xs[0], spec.get("negative_slope", 0.3), spec.get("alpha", 1.0))
    return y, lambda dy: [back(dy)]


def max_pooling2d(spec, xs, _v, _c):
    window = window_of(xs[0], spec, "pool_size")
    padded = window.pad(xs[0], -np.inf)
    stack = np.stack([padded[cut] for _, _, cut in window.places()])
    first = stack.argmax(axis=0)

    def backward(dy):
        dx = np.zeros_like(padded)
        for i, (_, _, cut) in enumerate(window.places()):
            dx[cut] += dy * (first == i)
        return [window.unpad(dx)]
    return stack.max(axis=0), backward


def average_pooling2d(spec, xs, _v, _c):
    window = window_of(xs[0], spec, "pool_size")
    padded, ones = window.pad(xs[0]), window.pad(np.ones_like(xs[0]))
    count = sum(ones[cut] for _, _, cut in window.places())

    def backward(dy):
        dx = np.zeros_like(padded)
        for _, _, cut in window.places():
            dx[cut] += dy / count
        return [window.unpad(dx)]
    return sum(padded[cut] for _, _, cut in window.places()) / count, backward


def along(pooling):
    def pool(spec, xs, v, context):
        turned = dict(spec, pool_size=(1, spec["pool_size"]), strides=(1, spec["strides"]))
        y, back = pooling(turned, [xs[0][:, None]], v, context)
        return y[:, 0], lambda dy: [back(dy[:, None])[0][:, 0]]
    return pool


def global_average(spec, xs, _v, _c):
    x = xs[0]
    axes = tuple(range(1, x.ndim - 1))
    spread = (len(x),) + (1,) * len(axes) + (-1,)
    return x.mean(axis=axes), lambda dy: [np.broadcast_to(dy.reshape(spread), x.shape) / np.prod([x.shape[a] for a in axes])]


def up_sampling2d(spec, xs, _v, _c):
    """As a matrix for each axis: pixels repeated, or tf.image.resize's bilinear with half-pixel centres."""
    x = xs[0]

    def matrix(n, factor):
        m = np.zeros((n * factor, n))
        for o in range(n * factor):
            if spec["interpolation"] == "NEAREST":
                m[o, o // factor] = 1
                continue
            place = (o + 0.5) / factor - 0.5
            low = math.floor(place)
            m[o, min(max(low, 0), n - 1)] += 1 - (place - low)
            m[o, min(max(low + 1, 0), n - 1)] += place - low
        return m
    rows, columns = matrix(x.shape[1], spec["size"][0]), matrix(x.shape[2], spec["size"][1])
    return (np.einsum("ah,bw,nhwc->nabc", rows, columns, x),
            lambda dy: [np.einsum("ah,bw,nabc->nhwc", rows, columns, dy)])


def dropout(spec, xs, _v, context):
    factors = context["mask"].reshape(xs[0].shape) if context["training"] else 1.0
    return xs[0] * factors, lambda dy: [dy * factors]


def spatial_dropout2d(spec, xs, _v, context):
    x = xs[0]
    factors = context["mask"].reshape(len(x), 1, 1, -1) if context["training"] else 1.0
    return x * factors, lambda dy: [dy * factors]


def zero_padding2d(spec, xs, _v, _c):
    top, bottom, left, right = spec["padding"]
    h, w = xs[0].shape[1:3]
    return (np.pad(xs[0], ((0, 0), (top, bottom), (left, right), (0, 0))),
            lambda dy: [dy[:, top:top + h, left:left + w]])


def reshaped(shape_of):
    def layer(spec, xs, _v, _c):
        return xs[0].reshape(shape_of(spec, xs[0])), lambda dy: [dy.reshape(xs[0].shape)]
    return layer


def permute(spec, xs, _v, _c):
    axes = (0, *spec["dims"])
    return xs[0].transpose(axes), lambda dy: [dy.transpose(np.argsort(axes))]


def rescaling(spec, xs, _v, _c):
    return xs[0] * spec["scale"] + spec["offset"], lambda dy: [dy * spec["scale"]]


def add(spec, xs, _v, _c):
    return sum(xs), lambda dy: [dy] * len(xs)


def average(spec, xs, _v, _c):
    return sum(xs) / len(xs), lambda dy: [dy / len(xs)] * len(xs)


def maximum(spec, xs, _v, _c):
    first = np.argmax(np.stack(xs), axis=0)
    return np.max(np.stack(xs), axis=0), lambda dy: [dy * (first == i) for i in range(len(xs))]


def multiply(spec, xs, _v, _c):
    rank = max(x.ndim for x in xs)
    wide = [x.reshape(len(x), *(1,) * (rank - x.ndim), *x.shape[1:]) for x in xs]

    def backward(dy):
        gradients = []
        for i, x in enumerate(wide):
            d = dy * math.prod(other for j, other in enumerate(wide) if j != i)
            axes = tuple(a for a in range(1, rank) if x.shape[a] == 1)
            gradients.append(d.sum(axis=axes, keepdims=True).reshape(xs[i].shape))
        return gradients
    return math.prod(wide), backward


def concatenate(spec, xs, _v, _c):
    cuts = np.cumsum([x.shape[-1] for x in xs])[:-1]
    return np.concatenate(xs, axis=-1), lambda dy: np.split(dy, cuts, axis=-1)


def multi_head_attention(spec, xs, v, context):
    """Vaswani et al. 2017, section 3.2, with Keras' einsums. Inputs: query, value, key (default: the value)."""
    query, value, key = xs[0], xs[1], xs[-1]

    def project(x, name):
        y = np.einsum("nte,ehk->nthk", x, v[name + "/kernel"])
        return y if v[name + "/bias"] is None else y + v[name + "/bias"]
    q, k, u = project(query, "query"), project(key, "key"), project(value, "value")
    scale = 1 / math.sqrt(spec["key_dim"])
    scores = np.einsum("nthk,nshk->nhts", q * scale, k)
    if spec["use_causal_mask"]:
        scores = np.where(np.arange(scores.shape[2])[:, None] >= np.arange(scores.shape[3]), scores, -np.inf)
    weights = softmax(scores)
    drops = context["training"] and context["mask"] is not None
    factors = context["mask"].reshape(weights.shape) if drops else 1.0
    heads = np.einsum("nhts,nshk->nthk", weights * factors, u)
    y = np.einsum("nthk,hkd->ntd", heads, v["attention_output/kernel"])
    if v["attention_output/bias"] is not None:
        y = y + v["attention_output/bias"]

    def backward(dy):
        v.add("attention_output/bias", dy.sum(axis=(0, 1)))
        v.add("attention_output/kernel", np.einsum("nthk,ntd->hkd", heads, dy))
        dheads = np.einsum("ntd,hkd->nthk", dy, v["attention_output/kernel"])
        du = np.einsum("nhts,nthk->nshk", weights * factors, dheads)
        dscores = softmax_backward(weights, np.einsum("nthk,nshk->nhts", dheads, u) * factors)
        dq, dk = np.einsum("nhts,nshk->nthk", dscores, k) * scale, np.einsum("nhts,nthk->nshk", dscores, q) * scale
        gradients = {}
        for name, x, d in (("query", query, dq), ("key", key, dk), ("value", value, du)):
            v.add(name + "/bias", d.sum(axis=(0, 1)))
            v.add(name + "/kernel", np.einsum("nte,nthk->ehk", x, d))
            gradients[name] = np.einsum("nthk,ehk->nte", d, v[name + "/kernel"])
        if len(xs) == 2:
            return [gradients["query"], gradients["value"] + gradients["key"]]
        return [gradients["query"], gradients["value"], gradients["key"]]
    return y, backward


LAYERS = {
    "rescaling": rescaling, "conv2d": conv2d, "depthwise_conv2d": depthwise_conv2d,
    "batch_normalization": batch_normalization, "activation": activation, "max_pooling2d": max_pooling2d,
    "average_pooling2d": average_pooling2d, "global_average_pooling2d": global_average, "add": add,
    "concatenate": concatenate, "flatten": reshaped(lambda spec, x: (len(x), -1)), "dense": dense, "dropout": dropout,
    "zero_padding2d": zero_padding2d, "layer_normalization": layer_normalization,
    "group_normalization": group_normalization, "embedding": embedding, "global_average_pooling1d": global_average,
    "max_pooling1d": along(max_pooling2d), "average_pooling1d": along(average_pooling2d), "conv1d": conv1d,
    "separable_conv2d": separable_conv2d, "conv2d_transpose": conv2d_transpose, "up_sampling2d": up_sampling2d,
    "spatial_dropout2d": spatial_dropout2d, "reshape": reshaped(lambda spec, x: (len(x), *spec["target_shape"])),
    "permute": permute, "multiply": multiply, "average": average, "maximum": maximum,
    "multi_head_attention": multi_head_attention,
}


# ---- models ----

def sparse_crossentropy(outputs, labels, from_logits):
    p = outputs.reshape(len(outputs), -1)
    p, back = activated("SOFTMAX", p) if from_logits else (p / p.sum(axis=-1, keepdims=True), None)
    rows, classes = np.arange(len(p)), labels.astype(int)
    loss = -np.log(p[rows, classes]).sum()
    d = np.zeros_like(p)
    d[rows, classes] = -1 / p[rows, classes]
    if from_logits:
        return loss, back(d).reshape(outputs.shape)
    total = outputs.reshape(len(outputs), -1).sum(axis=-1, keepdims=True)
    return loss, ((d - (d * p).sum(axis=-1, keepdims=True)) / total).reshape(outputs.shape)


def mean_squared_error(outputs, labels, _):
    difference = outputs - labels.reshape(outputs.shape)
    each = outputs.size / len(outputs)
    return (difference ** 2).sum() / each, 2 * difference / each


LOSSES = {"SPARSE_CATEGORICAL_CROSSENTROPY": sparse_crossentropy, "MEAN_SQUARED_ERROR": mean_squared_error}


def run(case, training):
    """Output, loss and, of a training step, the gradient of the whole parameter space."""
    nodes = case["model"]
    inputs = np.array(case["inputs"], dtype=np.float64)
    outputs = [inputs.reshape(case["examples"], *nodes[0]["output"])]
    variables, backwards = [None], [None]
    for i, node in enumerate(nodes[1:], 1):
        variables.append(Variables(case, i))
        mask = case["masks"].get(str(i))
        context = {"training": training, "mask": None if mask is None else np.array(mask)}
        y, backward = LAYERS[node["type"]](node["layer"][node["type"]], [outputs[k] for k in node["inputs"]],
                                           variables[i], context)
        assert list(y.shape[1:]) == node["output"], f"{case['name']}: {node['type']} gives {y.shape}, not {node['output']}"
        outputs.append(y)
        backwards.append(backward)
    loss, gradient = LOSSES[case["loss"]](outputs[-1], np.array(case["labels"]), case["from_logits"])
    if not training:
        return outputs[-1], loss, None
    gradients = [np.zeros_like(y) for y in outputs]
    gradients[-1] = gradient
    for i in range(len(nodes) - 1, 0, -1):
        for k, dx in zip(nodes[i]["inputs"], backwards[i](gradients[i])):
            gradients[k] = gradients[k] + dx
    space = np.zeros(len(case["values"]))
    for v in case["variables"]:
        own = variables[v["node"]].gradients[v["name"].split("/", 1)[1]].ravel()
        space[v["offset"]:v["offset"] + len(own)] = own
    return outputs[-1], loss, space


def compare(case):
    """Sentences about what differs."""
    _, loss, space = run(case, training=True)
    predictions, evaluated, _ = run(case, training=False)
    faults = []

    def check(backend, what, actual, expected, floor=0.0):
        actual, expected = np.asarray(actual, dtype=np.float64).ravel(), np.asarray(expected).ravel()
        if actual.shape != expected.shape or not np.isfinite(actual).all():
            faults.append(f"{case['name']}, {backend}: {what} is not finite or has {actual.size} numbers")
            return
        distance, norm = np.linalg.norm(actual - expected), np.linalg.norm(expected)
        if distance > TOLERANCE[backend] * max(norm, floor) + 1e-9:
            faults.append(f"{case['name']}, {backend}: {what} differs by {distance:.3g} of {norm:.3g}")
    for backend, result in case["backends"].items():
        check(backend, "the loss", result["loss"], loss)
        check(backend, "the loss of evaluation", result["evaluated_loss"], evaluated)
        check(backend, "the prediction", result["predictions"], predictions)
        for v in case["variables"]:
            part = slice(v["offset"], v["offset"] + int(np.prod(v["shape"])))
            # A gradient that cancels out is as exact as its terms.
            check(backend, "the gradient of " + v["name"], result["gradients"][part], space[part],
                  0.03 * np.linalg.norm(space))
    return faults


def main():
    driver = subprocess.run([sys.argv[1]], stdout=subprocess.PIPE, check=True, timeout=300)
    compared, types, faults = 0, set(), []
    for line in driver.stdout.splitlines():
        case = json.loads(line)
        if case["loss"] not in LOSSES:
            continue  # loss_test.cc has those
        faults += compare(case)
        compared += 1
        types |= {node["type"] for node in case["model"]}
    missing = set(LAYERS) - types
    if missing:
        faults.append(f"no case has {sorted(missing)}")
    if compared < 100:
        faults.append(f"only {compared} models were compared")
    for fault in faults:
        print(fault)
    print(f"{compared} models of {len(types)} types of layers compared, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
