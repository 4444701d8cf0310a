"""Operations on tensors, reductions and slices in numpy, with derivatives written by hand. A layer is a function:
(spec, inputs, variables, context) -> y and dy -> [dx...]."""

import math

import numpy as np


def summed_to(gradient, shape):
    """The gradient with respect to a tensor that numpy broadcast: summed over the repeated axes."""
    gradient = gradient.reshape((1,) * (len(shape) - gradient.ndim) + gradient.shape)
    while gradient.ndim > len(shape):
        gradient = gradient.sum(axis=0)
    for axis, side in enumerate(shape):
        if side == 1 and gradient.shape[axis] != 1:
            gradient = gradient.sum(axis=axis, keepdims=True)
    return gradient


def as_rank(x, rank):
    """Inserts axes of size 1 after the batch until the rank is `rank`."""
    return x.reshape(x.shape[:1] + (1,) * (rank - x.ndim) + x.shape[1:])


BINARY = {
    "ADD": (np.add, lambda a, b, y: (1, 1)),
    "SUBTRACT": (np.subtract, lambda a, b, y: (1, -1)),
    "MULTIPLY": (np.multiply, lambda a, b, y: (b, a)),
    "DIVIDE": (np.divide, lambda a, b, y: (1 / b, -a / b**2)),
    "POWER": (
        np.power,
        lambda a, b, y: (b * np.power(a, b - 1), np.where(a > 0, y * np.log(np.where(a > 0, a, 1)), 0)),
    ),
    "MAXIMUM": (np.maximum, lambda a, b, y: (a >= b, a < b)),
    "MINIMUM": (np.minimum, lambda a, b, y: (a <= b, a > b)),
    "EQUAL": (np.equal, None),
    "NOT_EQUAL": (np.not_equal, None),
    "GREATER": (np.greater, None),
    "GREATER_EQUAL": (np.greater_equal, None),
    "LESS": (np.less, None),
    "LESS_EQUAL": (np.less_equal, None),
    "LOGICAL_AND": (np.logical_and, None),
    "LOGICAL_OR": (np.logical_or, None),
    "LOGICAL_XOR": (np.logical_xor, None),
    "FLOOR_DIVIDE": (lambda a, b: np.floor(a / b), None),
    "MOD": (np.mod, lambda a, b, y: (1, -np.floor(a / b))),
    "ARCTAN2": (np.arctan2, lambda a, b, y: (b / (a * a + b * b), -a / (a * a + b * b))),
    "SQUARED_DIFFERENCE": (lambda a, b: (a - b) ** 2, lambda a, b, y: (2 * (a - b), 2 * (b - a))),
}

UNARY = {
    "NEGATIVE": (np.negative, lambda x: -np.ones_like(x)),
    "ABSOLUTE": (np.abs, np.sign),
    "SQUARE": (np.square, lambda x: 2 * x),
    "SQRT": (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
    "RSQRT": (lambda x: x**-0.5, lambda x: -0.5 * x**-1.5),
    "EXP": (np.exp, np.exp),
    "LOG": (np.log, lambda x: 1 / x),
    "LOG1P": (np.log1p, lambda x: 1 / (1 + x)),
    "EXPM1": (np.expm1, np.exp),
    "SIN": (np.sin, np.cos),
    "COS": (np.cos, lambda x: -np.sin(x)),
    "TANH": (np.tanh, lambda x: np.cosh(x) ** -2),
    "SIGMOID": (lambda x: 1 / (1 + np.exp(-x)), lambda x: np.exp(-x) / (1 + np.exp(-x)) ** 2),
    "RECIPROCAL": (lambda x: 1 / x, lambda x: -1 / x**2),
    "SIGN": (np.sign, np.zeros_like),
    "FLOOR": (np.floor, np.zeros_like),
    "ROUND": (np.round, np.zeros_like),
    "CAST": (lambda x: x, np.ones_like),
    "LOG2": (np.log2, lambda x: 1 / (x * np.log(2))),
    "LOG10": (np.log10, lambda x: 1 / (x * np.log(10))),
    "TAN": (np.tan, lambda x: np.cos(x) ** -2),
    "ARCSIN": (np.arcsin, lambda x: (1 - x * x) ** -0.5),
    "ARCCOS": (np.arccos, lambda x: -((1 - x * x) ** -0.5)),
    "ARCTAN": (np.arctan, lambda x: 1 / (1 + x * x)),
    "SINH": (np.sinh, np.cosh),
    "COSH": (np.cosh, np.sinh),
    "ARCSINH": (np.arcsinh, lambda x: (1 + x * x) ** -0.5),
    "ARCCOSH": (np.arccosh, lambda x: (x * x - 1) ** -0.5),
    "ARCTANH": (np.arctanh, lambda x: 1 / (1 - x * x)),
    "ERF": (np.vectorize(math.erf), lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x)),
    "CEIL": (np.ceil, np.zeros_like),
    "TRUNC": (np.trunc, np.zeros_like),
    "LOGICAL_NOT": (lambda x: (x == 0).astype(np.float64), np.zeros_like),
    "IS_NAN": (lambda x: np.isnan(x).astype(np.float64), np.zeros_like),
    "IS_INF": (lambda x: np.isinf(x).astype(np.float64), np.zeros_like),
    "IS_FINITE": (lambda x: np.isfinite(x).astype(np.float64), np.zeros_like),
}


def two(kind, a, b):
    function, slopes = BINARY[kind]
    with np.errstate(all="ignore"):
        y = function(a, b).astype(np.float64)

    def backward(dy):
        if slopes is None:
            return [np.zeros_like(a), np.zeros_like(b)]
        of_a, of_b = slopes(a, b, y)
        return [summed_to(dy * of_a, a.shape), summed_to(dy * of_b, b.shape)]

    return y, backward


def along_axis(kind, axis, x):
    if kind == "CUMSUM":
        return np.cumsum(x, axis=axis), lambda dy: [np.flip(np.cumsum(np.flip(dy, axis), axis=axis), axis)]
    if kind == "CUMPROD":  # of each number the products of all runs that hold it
        y = np.cumprod(x, axis=axis)

        def products(dy):
            dx, size = np.zeros_like(x), x.shape[axis]
            rows, gradients, out = (np.moveaxis(a, axis, -1) for a in (x, dy, dx))
            for i in range(size):
                for k in range(i, size):
                    out[..., i] += gradients[..., k] * np.prod(np.delete(rows[..., : k + 1], i, axis=-1), axis=-1)
            return [dx]

        return y, products
    if kind == "SOFTMAX":
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        y = e / e.sum(axis=axis, keepdims=True)
        return y, lambda dy: [y * (dy - (dy * y).sum(axis=axis, keepdims=True))]
    length = np.sqrt((x * x).sum(axis=axis, keepdims=True))
    y = x / length
    return y, lambda dy: [dy / length - x * (dy * x).sum(axis=axis, keepdims=True) / length**3]


def where(spec, xs):
    """Of three operands, the second and the third of which may be constants: they have no gradient."""
    operands = list(xs)
    if spec["constant"]:
        operands.insert(1 if spec["constant_first"] else 2, constant_of(spec, "constant", "constant_shape"))
    if spec["other_constant"]:
        operands.append(constant_of(spec, "other_constant", "other_shape"))
    condition, first, second = operands
    chosen = condition != 0
    y = np.where(chosen, first, second)

    def backward(dy):
        gradients = {id(condition): np.zeros_like(condition)}
        for operand, part in ((first, dy * chosen), (second, dy * ~chosen)):
            gradients[id(operand)] = gradients.get(id(operand), 0) + summed_to(part, operand.shape)
        return [gradients[id(x)] for x in xs]

    return y, backward


def constant_of(spec, numbers, shape):
    return np.array(spec[numbers], dtype=np.float32).astype(np.float64).reshape(spec[shape])


def operation(spec, xs, _, __):
    kind = spec["kind"]
    if kind in ("SOFTMAX", "L2_NORMALIZE", "CUMSUM", "CUMPROD"):
        return along_axis(kind, spec["axis"][0], xs[0])
    if kind == "MATMUL":
        a, b = xs
        return a @ b, lambda dy: [dy @ np.swapaxes(b, -1, -2), np.swapaxes(a, -1, -2) @ dy]
    if kind == "WHERE":
        return where(spec, xs)
    if kind == "NAN_TO_NUM":
        y = np.nan_to_num(xs[0], nan=spec["nan"], posinf=spec["high"], neginf=spec["low"])
        return y, lambda dy: [dy * np.isfinite(xs[0])]
    if kind == "FULL_LIKE":
        return np.full_like(xs[0], np.float32(spec["constant"][0])), lambda dy: [np.zeros_like(xs[0])]
    if kind == "CLIP":
        low = spec["low"] if "low" in spec else -np.inf
        high = spec["high"] if "high" in spec else np.inf
        return np.clip(xs[0], low, high), lambda dy: [dy * ((xs[0] >= low) & (xs[0] <= high))]
    if kind in UNARY:
        function, slope = UNARY[kind]
        return function(xs[0]), lambda dy: [dy * slope(xs[0])]
    if not spec["constant"]:
        return two(kind, *xs)
    constant = constant_of(spec, "constant", "constant_shape")
    if spec["constant_first"]:
        y, backward = two(kind, constant, xs[0])
        return y, lambda dy: backward(dy)[1:]
    y, backward = two(kind, xs[0], constant)
    return y, lambda dy: backward(dy)[:1]


def subtract(_, xs, __, ___):
    rank = max(x.ndim for x in xs)
    a, b = (as_rank(x, rank) for x in xs)
    y, backward = two("SUBTRACT", a, b)
    return y, lambda dy: [d.reshape(x.shape) for d, x in zip(backward(dy), xs)]


def minimum(_, xs, __, ___):
    first = np.argmin(np.stack(xs), axis=0)
    return np.min(np.stack(xs), axis=0), lambda dy: [dy * (first == k) for k in range(len(xs))]


def reduce(spec, xs, _, __):
    x, kind, axes = xs[0], spec["kind"], tuple(spec["axis"])
    count = np.prod([x.shape[a] for a in axes])
    mean = x.mean(axis=axes, keepdims=True)
    values = {
        "MEAN": lambda: mean,
        "SUM": lambda: x.sum(axis=axes, keepdims=True),
        "MAX": lambda: x.max(axis=axes, keepdims=True),
        "MIN": lambda: x.min(axis=axes, keepdims=True),
        "VARIANCE": lambda: x.var(axis=axes, keepdims=True),
        "STDDEV": lambda: x.std(axis=axes, keepdims=True),
        "L2_NORM": lambda: np.sqrt((x * x).sum(axis=axes, keepdims=True)),
        "PROD": lambda: x.prod(axis=axes, keepdims=True),
        "LOGSUMEXP": lambda: np.log(np.exp(x).sum(axis=axes, keepdims=True)),
        "ARGMAX": lambda: np.expand_dims(np.argmax(x, axis=axes[0]), axes[0]).astype(np.float64),
        "ARGMIN": lambda: np.expand_dims(np.argmin(x, axis=axes[0]), axes[0]).astype(np.float64),
        "L1_NORM": lambda: np.abs(x).sum(axis=axes, keepdims=True),
        "ANY": lambda: np.any(x, axis=axes, keepdims=True).astype(np.float64),
        "ALL": lambda: np.all(x, axis=axes, keepdims=True).astype(np.float64),
        "COUNT_NONZERO": lambda: np.count_nonzero(x, axis=axes, keepdims=True).astype(np.float64),
    }
    y = values[kind]()
    slopes = {
        "MEAN": lambda: np.ones_like(x) / count,
        "SUM": lambda: np.ones_like(x),
        "MAX": lambda: (x == y) / (x == y).sum(axis=axes, keepdims=True),
        "MIN": lambda: (x == y) / (x == y).sum(axis=axes, keepdims=True),
        "VARIANCE": lambda: 2 * (x - mean) / count,
        "STDDEV": lambda: (x - mean) / count / y,
        "L2_NORM": lambda: x / y,
        "PROD": lambda: y / x,
        "LOGSUMEXP": lambda: np.exp(x) / np.exp(x).sum(axis=axes, keepdims=True),
        "L1_NORM": lambda: np.sign(x),
        **{kind: lambda: np.zeros_like(x) for kind in ("ARGMAX", "ARGMIN", "ANY", "ALL", "COUNT_NONZERO")},
    }
    shape = y.shape if spec["keepdims"] else tuple(s for a, s in enumerate(y.shape) if a not in axes)
    return y.reshape(shape if len(shape) > 1 else (len(x), 1)), lambda dy: [dy.reshape(y.shape) * slopes[kind]()]


def slice_part(spec, xs, _, __):
    key = [slice(None)]
    for axis in spec["axes"]:
        begin = axis.get("begin")
        key.append((begin or 0) if axis["drop"] else slice(begin, axis.get("end"), axis.get("step")))
    y = xs[0][tuple(key)]

    def backward(dy):
        dx = np.zeros_like(xs[0])
        dx[tuple(key)] = dy.reshape(y.shape)
        return [dx]

    return y.reshape(len(y), -1) if y.ndim == 1 else y, backward


def stack(spec, xs, _, __):
    y = np.stack(xs, axis=spec["axis"])
    return y, lambda dy: [np.take(dy, k, axis=spec["axis"]) for k in range(len(xs))]


def moved(places, x, constant=0.0):
    """places: for each number of the output the flat place in an example of x; -1: the constant."""
    flat = x.reshape(len(x), -1)
    y = np.where(places.ravel() < 0, constant, flat[:, places.ravel()]).reshape((len(x),) + places.shape)

    def backward(dy):
        dx = np.zeros_like(flat)
        for n in range(len(x)):
            np.add.at(dx[n], places[places >= 0], dy[n][places >= 0])
        return [dx.reshape(x.shape)]

    return y, backward


def places_of(x):
    return np.arange(x[0].size).reshape(x[0].shape)


def pad(spec, xs, _, __):
    widths = list(zip(spec["before"], spec["after"]))
    if spec["mode"] == "CONSTANT":
        return moved(np.pad(places_of(xs[0]), widths, constant_values=-1), xs[0], spec.get("constant_value", 0.0))
    return moved(np.pad(places_of(xs[0]), widths, mode=spec["mode"].lower()), xs[0])


def tile(spec, xs, _, __):
    return moved(np.tile(places_of(xs[0]), spec["repeats"]), xs[0])


def take(spec, xs, _, __):
    indices = np.array(spec["indices"]).reshape(spec["indices_shape"])
    return moved(np.take(places_of(xs[0]), indices, axis=spec["axis"] - 1), xs[0])


def one_hot(spec, xs, _, __):
    whole = np.trunc(xs[0])
    y = np.stack([whole == k for k in range(spec["num_classes"])], axis=spec["axis"]).astype(np.float64)
    return y, lambda dy: [np.zeros_like(xs[0])]


def top_k(spec, xs, _, __):
    x, k = xs[0], spec["k"]
    places = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    if spec["indices"]:
        return places.astype(np.float64), lambda dy: [np.zeros_like(x)]

    def backward(dy):
        dx = np.zeros_like(x)
        np.put_along_axis(dx, places, dy, axis=-1)
        return [dx]

    return np.take_along_axis(x, places, axis=-1), backward


def einsum(spec, xs, _, __):
    a, b = xs
    equation = spec["equation"].replace(" ", "")
    operands, result = equation.split("->")
    first, second = operands.split(",")
    y = np.einsum(equation, a, b)

    def backward(dy):
        dy = dy.reshape(y.shape)
        return [np.einsum(f"{result},{second}->{first}", dy, b), np.einsum(f"{result},{first}->{second}", dy, a)]

    return y.reshape(len(a), -1) if y.ndim == 1 else y, backward
