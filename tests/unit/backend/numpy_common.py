"""What the layers of numpy_windows.py and numpy_features.py share: a layer's variables, the activations, bias and
activation behind a linear map. A layer is a function: (spec, inputs, variables, context) -> y and dy -> [dx...]."""

import math

import numpy as np

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


def activation_of(layer, slope=0.2, alpha=1.0):
    return {
        "LINEAR": (lambda x: x, np.ones_like),
        "RELU": (lambda x: np.maximum(x, 0), lambda x: (x > 0) * 1.0),
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


def activated(kind, x, slope=0.2, alpha=1.0):
    """f(x) and the function dy -> dx."""
    if kind == "SOFTMAX":
        y = softmax(x)
        return y, lambda dy: softmax_backward(y, dy)
    f, derivative = activation_of(kind, slope, alpha)
    return f(x), lambda dy: dy * derivative(x)


def with_bias_and_activation(spec, v, linear, linear_backward):
    """Adds what stands behind a linear map: bias and activation. linear_backward: dy -> dx."""
    z = linear if v["bias"] is None else linear + v["bias"]
    y, activation_backward = activated(spec["activation"], z)

    def backward(dy):
        dz = activation_backward(dy)
        v.add("bias", dz.reshape(-1, dz.shape[-1]).sum(axis=0))
        return [linear_backward(dz)]

    return y, backward
