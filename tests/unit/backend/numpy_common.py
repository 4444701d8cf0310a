"""Shared by numpy_windows.py and numpy_features.py: a layer's variables, the activations, bias and activation after a
linear map. A layer is a function: (spec, inputs, variables, context) -> y and dy -> [dx...]."""

import math

import numpy as np

ERF = np.vectorize(math.erf)


class Variables:
    """A layer's variables by their name within it, and where their gradients are added: nowhere for a frozen layer."""

    def __init__(self, case, node):
        self.values, self.gradients = {}, {}
        self.frozen = not case["model"][node]["layer"].get("trainable", True)
        for v in case["variables"]:
            if v["node"] != node:
                continue
            name = v["name"].split("/", 1)[1]
            size = int(np.prod(v["shape"]))
            flat = np.array(case["values"][v["offset"] : v["offset"] + size], dtype=np.float64)
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
    return np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)


def gelu_tanh_derivative(x):
    t = np.tanh(gelu_inner(x))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)


def softplus(x):
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def mish_derivative(x):
    t = np.tanh(softplus(x))
    return t + x * (1 - t**2) * sigmoid(x)


SELU = (1.6732632423543772848170429916717, 1.0507009873554804934193349852946)


def activation_of(layer, slope=0.2, alpha=None, spec=None):
    spec = spec or {}
    most = spec.get("max_value", np.inf)
    threshold = spec.get("threshold", 0.5 if layer.endswith("SHRINK") else 0)
    steep = alpha or 1 / 6
    alpha = 1.0 if alpha is None else alpha
    if layer == "RELU" and threshold > 0:
        layer = "THRESHOLD"
    return {
        "SELU": (
            lambda x: SELU[1] * np.where(x > 0, x, SELU[0] * np.expm1(x)),
            lambda x: SELU[1] * np.where(x > 0, 1, SELU[0] * np.exp(x)),
        ),
        "HARD_SIGMOID": (
            lambda x: np.clip(steep * x + 0.5, 0, 1),
            lambda x: ((steep * x > -0.5) & (steep * x < 0.5)) * steep,
        ),
        "HARD_SILU": (
            lambda x: x * np.minimum(np.maximum(x + 3, 0), 6) / 6,
            lambda x: np.where(x < -3, 0, np.where(x > 3, 1, (2 * x + 3) / 6)),
        ),
        "EXPONENTIAL": (np.exp, np.exp),
        "SOFTSIGN": (lambda x: x / (1 + np.abs(x)), lambda x: (1 + np.abs(x)) ** -2.0),
        "MISH": (lambda x: x * np.tanh(softplus(x)), mish_derivative),
        "LOG_SIGMOID": (lambda x: np.log(sigmoid(x)), lambda x: 1 - sigmoid(x)),
        "CELU": (
            lambda x: np.maximum(0, x) + np.minimum(0, alpha * (np.exp(x / alpha) - 1)),
            lambda x: np.where(x > 0, 1, np.exp(x / alpha)),
        ),
        "HARD_TANH": (lambda x: np.clip(x, -1, 1), lambda x: (np.abs(x) < 1) * 1.0),
        "TANH_SHRINK": (lambda x: x - np.tanh(x), lambda x: 1 - 1 / np.cosh(x) ** 2),
        "SOFT_SHRINK": (
            lambda x: np.sign(x) * np.maximum(np.abs(x) - threshold, 0),
            lambda x: (np.abs(x) > threshold) * 1.0,
        ),
        "HARD_SHRINK": (lambda x: x * (np.abs(x) > threshold), lambda x: (np.abs(x) > threshold) * 1.0),
        "THRESHOLD": (lambda x: np.where(x > threshold, x, spec.get("value", 0)), lambda x: (x > threshold) * 1.0),
        "SQUAREPLUS": (lambda x: (x + np.sqrt(x**2 + 4)) / 2, lambda x: (1 + x / np.sqrt(x**2 + 4)) / 2),
        "SPARSE_PLUS": (
            lambda x: np.where(x <= -1, 0, np.where(x < 1, (x + 1) ** 2 / 4, x)),
            lambda x: np.clip((x + 1) / 2, 0, 1),
        ),
        "HARD_SIGMOID_KERAS2": (lambda x: np.clip(0.2 * x + 0.5, 0, 1), lambda x: (np.abs(x) < 2.5) * 0.2),
        "SPARSE_SIGMOID": (lambda x: np.clip((x + 1) / 2, 0, 1), lambda x: (np.abs(x) < 1) / 2),
        "LINEAR": (lambda x: x, np.ones_like),
        "RELU": (lambda x: np.clip(x, 0, most), lambda x: ((x > 0) & (x < most)) * 1.0),
        "RELU6": (lambda x: np.minimum(np.maximum(x, 0), 6), lambda x: ((x > 0) & (x < 6)) * 1.0),
        "LEAKY_RELU": (lambda x: np.where(x > 0, x, slope * x), lambda x: np.where(x > 0, 1.0, slope)),
        "ELU": (
            lambda x: np.where(x > 0, x, alpha * (np.exp(x) - 1)),
            lambda x: np.where(x > 0, 1.0, alpha * np.exp(x)),
        ),
        "SIGMOID": (sigmoid, lambda x: sigmoid(x) * sigmoid(-x)),
        "TANH": (np.tanh, lambda x: 1 / np.cosh(x) ** 2),
        "GELU": (
            lambda x: x * 0.5 * (1 + ERF(x / np.sqrt(2))),
            lambda x: 0.5 * (1 + ERF(x / np.sqrt(2))) + x * np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi),
        ),
        "GELU_TANH": (lambda x: 0.5 * x * (1 + np.tanh(gelu_inner(x))), gelu_tanh_derivative),
        "SILU": (lambda x: x * sigmoid(x), lambda x: sigmoid(x) + x * sigmoid(x) * sigmoid(-x)),
        "SOFTPLUS": (lambda x: np.log(1 + np.exp(x)), sigmoid),
    }[layer]


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_backward(y, dy):
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


def sparsemax(x):
    """By bisection for the threshold at which the rows' positive parts add up to 1."""
    low, high = x.max(axis=-1, keepdims=True) - 1, x.max(axis=-1, keepdims=True)
    for _ in range(200):
        middle = (low + high) / 2
        above = np.maximum(x - middle, 0).sum(axis=-1, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    y = np.maximum(x - (low + high) / 2, 0)
    kept = y > 0
    return y, lambda dy: kept * (dy - (dy * kept).sum(axis=-1, keepdims=True) / kept.sum(axis=-1, keepdims=True))


def activated(kind, x, slope=0.2, alpha=None, spec=None):
    """Returns f(x) and the function dy -> dx."""
    if kind == "SOFTMAX":
        y = softmax(x)
        return y, lambda dy: softmax_backward(y, dy)
    if kind == "LOG_SOFTMAX":
        y = x - x.max(axis=-1, keepdims=True)
        y = y - np.log(np.exp(y).sum(axis=-1, keepdims=True))
        return y, lambda dy: dy - np.exp(y) * dy.sum(axis=-1, keepdims=True)
    if kind == "GLU":
        a, b = np.split(x, 2, axis=-1)
        gate = 1 / (1 + np.exp(-b))
        return a * gate, lambda dy: np.concatenate([dy * gate, dy * a * gate * (1 - gate)], axis=-1)
    if kind == "SPARSEMAX":
        return sparsemax(x)
    f, derivative = activation_of(kind, slope, alpha, spec)
    return f(x), lambda dy: dy * derivative(x)


def with_bias_and_activation(spec, v, linear, linear_backward):
    """Adds what follows a linear map: bias and activation. linear_backward: dy -> dx."""
    z = linear if v["bias"] is None else linear + v["bias"]
    y, activation_backward = activated(spec["activation"], z)

    def backward(dy):
        dz = activation_backward(dy)
        v.add("bias", dz.reshape(-1, dz.shape[-1]).sum(axis=0))
        return [linear_backward(dz)]

    return y, backward
