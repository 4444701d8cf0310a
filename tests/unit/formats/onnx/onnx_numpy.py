"""ONNX's operators in numpy, as far as Cairn and the tests' models use them. Implemented from the operators'
specification, as a substitute for onnxruntime where it is not available, and as a second opinion where it is.

    outputs = run(onnx.load(path), x)
"""

import functools
import math

import numpy as np
from onnx import numpy_helper

ERF = np.vectorize(math.erf, otypes=[np.float64])


def attributes(node):
    values = {}
    for a in node.attribute:
        lists = list(a.floats) if a.type == 6 else list(a.strings) if a.type == 8 else list(a.ints)
        values[a.name] = {1: a.f, 2: a.i, 3: a.s, 4: a.t}.get(a.type, lists)
    return values


def columns(x, kernel, strides, dilations, pads, fill):
    """Turns [n, c, extent...] into [n, c, places..., kernel...]."""
    rank = len(kernel)
    width = [(0, 0), (0, 0)] + [(pads[i], pads[i + rank]) for i in range(rank)]
    padded = np.pad(x, width, constant_values=fill)
    out = [(padded.shape[2 + i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i in range(rank)]
    result = np.empty(x.shape[:2] + tuple(out) + tuple(kernel))
    for place in np.ndindex(*kernel):
        cut = tuple(slice(p * d, p * d + (o - 1) * s + 1, s) for p, d, o, s in zip(place, dilations, out, strides))
        result[(Ellipsis,) + place] = padded[(slice(None), slice(None)) + cut]
    return result


def window(a, kernel):
    rank = len(kernel)
    assert a.get("auto_pad", b"NOTSET") == b"NOTSET"
    return a.get("strides", [1] * rank), a.get("dilations", [1] * rank), a.get("pads", [0] * 2 * rank)


def conv(a, x, w, b=None):
    kernel, groups = w.shape[2:], a.get("group", 1)
    c = columns(x, kernel, *window(a, kernel), 0)
    flat = c.reshape(c.shape[: -len(kernel)] + (-1,))  # [n, c, places..., k]
    parts = []
    for g in range(groups):
        wg = w.reshape(w.shape[0], w.shape[1], -1)[g * w.shape[0] // groups : (g + 1) * w.shape[0] // groups]
        xg = flat[:, g * w.shape[1] : (g + 1) * w.shape[1]]
        parts.append(np.einsum("nc...k,ock->no...", xg, wg))
    y = np.concatenate(parts, axis=1)
    return y if b is None else y + b.reshape((1, -1) + (1,) * len(kernel))


def conv_transpose(a, x, w, b=None):
    kernel, rank = w.shape[2:], w.ndim - 2
    strides, dilations, pads = window(a, kernel)
    beyond = a.get("output_padding", [0] * rank)
    whole = [(x.shape[2 + i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + beyond[i] for i in range(rank)]
    y = np.zeros((x.shape[0], w.shape[1], *whole))
    for place in np.ndindex(*kernel):
        begins = [p * d for p, d in zip(place, dilations)]
        laid = tuple(slice(q, q + (n - 1) * s + 1, s) for q, n, s in zip(begins, x.shape[2:], strides))
        y[(slice(None), slice(None)) + laid] += np.einsum("nc...,co->no...", x, w[(Ellipsis,) + place])
    inner = tuple(slice(pads[i], whole[i] - pads[i + rank]) for i in range(rank))
    y = y[(slice(None), slice(None)) + inner]
    return y if b is None else y + b.reshape((1, -1) + (1,) * rank)


def pool(a, x, largest):
    kernel = a["kernel_shape"]
    c = columns(x, kernel, *window(a, kernel), -np.inf if largest else np.nan)
    flat = c.reshape(c.shape[: -len(kernel)] + (-1,))
    if largest:
        return flat.max(-1)
    return np.nan_to_num(flat).mean(-1) if a.get("count_include_pad", 0) else np.nanmean(flat, -1)


def resize(a, x, _=None, scales=None, sizes=None, places=b"half_pixel"):
    if scales is None:
        scales = a["scales"] if sizes is None else [s / n for s, n in zip(sizes, x.shape)]
    scales = [int(s) for s in scales]
    half = a.get("coordinate_transformation_mode", places) == b"half_pixel"
    for axis, s in enumerate(scales):
        n = x.shape[axis]
        if s == 1:
            continue
        places = (np.arange(n * s) + 0.5) / s - 0.5 if half else np.arange(n * s) / s
        if a["mode"] == b"nearest":
            x = np.take(x, np.floor(places if not half else places + 0.5).astype(int), axis=axis)
            continue
        low = np.floor(places).astype(int)
        t = (places - low).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
        x = (
            np.take(x, np.clip(low, 0, n - 1), axis=axis) * (1 - t)
            + np.take(x, np.clip(low + 1, 0, n - 1), axis=axis) * t
        )
    return x


def softmax(x, axis):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def by_channel(values, x):
    return np.asarray(values).reshape((1, -1) + (1,) * (x.ndim - 2))


def batch_norm(a, x, scale, bias, mean, variance):
    return (x - by_channel(mean, x)) / np.sqrt(by_channel(variance, x) + a.get("epsilon", 1e-5)) * by_channel(
        scale, x
    ) + by_channel(bias, x)


def instance_norm(a, x, scale, bias):
    axes = tuple(range(2, x.ndim))
    mean, variance = x.mean(axes, keepdims=True), x.var(axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + a.get("epsilon", 1e-5)) * by_channel(scale, x) + by_channel(bias, x)


def reshape(x, shape):
    return x.reshape([x.shape[i] if n == 0 else int(n) for i, n in enumerate(shape)])


def pad(a, x, pads=None, value=0.0):
    pads = a["pads"] if pads is None else pads
    rank = x.ndim
    widths = [(int(pads[i]), int(pads[i + rank])) for i in range(rank)]
    if a.get("mode", b"constant") == b"reflect":
        return np.pad(x, widths, mode="reflect")
    return np.pad(x, widths, constant_values=value)


def gemm(a, x, w, c=0.0):
    return a.get("alpha", 1.0) * x @ (w.T if a.get("transB", 0) else w) + a.get("beta", 1.0) * np.asarray(c)


def depth_to_space(a, x):
    (n, c, h, w), b = x.shape, a["blocksize"]
    if a.get("mode", b"DCR") == b"DCR":
        return x.reshape(n, b, b, -1, h, w).transpose(0, 3, 4, 1, 5, 2).reshape(n, -1, h * b, w * b)
    return x.reshape(n, -1, b, b, h, w).transpose(0, 1, 4, 2, 5, 3).reshape(n, -1, h * b, w * b)


def space_to_depth(a, x):
    (n, c, h, w), b = x.shape, a["blocksize"]
    blocks = [x[:, :, i::b, j::b] for i in range(b) for j in range(b)]
    return np.concatenate(blocks, axis=1)


def unsqueeze(x, axes):
    for axis in sorted(axes):
        x = np.expand_dims(x, int(axis))
    return x


def layer_norm(a, x, scale, bias=0.0):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + a.get("epsilon", 1e-5)) * scale + bias


def top_k(a, x, k):
    """Of equal numbers the one with the lower place comes first."""
    axis, k = a.get("axis", -1), int(np.ravel(k)[0])
    order = np.argsort(-x if a.get("largest", 1) else x, axis=axis, kind="stable")
    places = np.take(order, np.arange(k), axis=axis)
    return np.take_along_axis(x, places, axis=axis), places


def slice_of(a, x, starts=None, ends=None, axes=None, steps=None):
    if starts is None:
        starts, ends, axes = a["starts"], a["ends"], a["axes"]
    cut = [slice(None)] * x.ndim
    for start, end, axis, step in zip(starts, ends, axes, [1] * len(axes) if steps is None else steps):
        cut[int(axis)] = slice(int(start), int(end), int(step))
    return x[tuple(cut)]


def cell_functions(a, count):
    """The activations of the cells, each with the alpha and beta that it consumes from the lists."""
    alphas, betas = list(a.get("activation_alpha", [])), list(a.get("activation_beta", []))
    functions = []
    for name in a.get("activations", [b"Tanh"] if count == 1 else [b"Sigmoid", b"Tanh", b"Tanh"][:count]):
        alpha = alphas.pop(0) if name in (b"Affine", b"LeakyRelu", b"Elu", b"HardSigmoid") and alphas else 1.0
        beta = betas.pop(0) if name in (b"Affine", b"HardSigmoid") and betas else 0.0
        functions.append(
            {
                b"Affine": lambda x, alpha=alpha, beta=beta: alpha * x + beta,
                b"Relu": lambda x: np.maximum(x, 0),
                b"LeakyRelu": lambda x, alpha=alpha: np.where(x > 0, x, alpha * x),
                b"Elu": lambda x, alpha=alpha: np.where(x > 0, x, alpha * (np.exp(np.minimum(x, 0)) - 1)),
                b"Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
                b"Tanh": np.tanh,
                b"Softplus": lambda x: np.logaddexp(0, x),
                b"Softsign": lambda x: x / (1 + np.abs(x)),
                b"HardSigmoid": lambda x, alpha=alpha, beta=beta: np.clip(alpha * x + beta, 0, 1),
            }[name]
        )
    return functions


def recurrent(step, count, activations):
    """Y, Y_h and Y_c of RNN, LSTM or GRU, by the equations of their specification: [steps, directions, batch, hidden]
    and [directions, batch, hidden]. Only an LSTM's Y_c says something."""

    def run_operator(a, x, w, r, b=None, lens=None, h0=None, c0=None):
        assert lens is None
        functions, directions, last, cells = cell_functions(a, activations), [], [], []
        for d in range(len(w)):
            hidden = r.shape[2]
            wb, rb = np.split(b[d], 2) if b is not None else (np.zeros(count * hidden),) * 2
            h = h0[d] if h0 is not None else np.zeros((x.shape[1], hidden))
            c = c0[d] if c0 is not None else np.zeros((x.shape[1], hidden))
            backwards = a.get("direction", b"forward") == b"reverse" or d == 1
            y = np.empty((len(x), x.shape[1], hidden))
            for t in range(len(x) - 1, -1, -1) if backwards else range(len(x)):
                h, c = step(a, functions, x[t] @ w[d].T + wb, h, c, r[d].T, rb)
                y[t] = h
            directions.append(y)
            last.append(h)
            cells.append(c)
        return np.stack(directions, axis=1), np.stack(last), np.stack(cells)

    return run_operator


def rnn_step(a, f, x, h, c, r, rb):
    return f[0](x + h @ r + rb), c


def lstm_step(a, f, x, h, c, r, rb):
    i, o, forget, g = np.split(x + h @ r + rb, 4, axis=1)
    c = f[0](forget) * c + f[0](i) * f[1](g)
    return f[0](o) * f[2](c), c


def gru_step(a, f, x, h, c, r, rb):
    (xz, xr, xh), (rz, rr, rh), (bz, br, bh) = np.split(x, 3, axis=1), np.split(r, 3, axis=1), np.split(rb, 3)
    z, reset = f[0](xz + h @ rz + bz), f[0](xr + h @ rr + br)
    inner = reset * (h @ rh + bh) if a.get("linear_before_reset", 0) else (reset * h) @ rh + bh
    return (1 - z) * f[1](xh + inner) + z * h, c


SELU = (1.67326319217681884765625, 1.05070102214813232421875)


def shrink(a, x):
    threshold, bias = a.get("lambd", 0.5), a.get("bias", 0.0)
    return np.where(x < -threshold, x + bias, np.where(x > threshold, x - bias, 0))


def place(function):
    """ArgMax, ArgMin."""

    def of(a, x):
        axis = a.get("axis", 0)
        y = function(x, axis)
        return y if a.get("keepdims", 1) == 0 else np.expand_dims(y, axis)

    return of


OPERATORS = {
    "RNN": recurrent(rnn_step, 1, 1),
    "LSTM": recurrent(lstm_step, 4, 3),
    "GRU": recurrent(gru_step, 3, 2),
    "Relu": lambda a, x: np.maximum(x, 0),
    "LeakyRelu": lambda a, x: np.where(x > 0, x, a.get("alpha", 0.01) * x),
    "Elu": lambda a, x: np.where(x > 0, x, a.get("alpha", 1.0) * (np.exp(np.minimum(x, 0)) - 1)),
    "Sigmoid": lambda a, x: 1 / (1 + np.exp(-x)),
    "Tanh": lambda a, x: np.tanh(x),
    "Softplus": lambda a, x: np.logaddexp(0, x),
    "Erf": lambda a, x: ERF(x),
    "Sqrt": lambda a, x: np.sqrt(x),
    "Pow": lambda a, x, y: x**y,
    "Softmax": lambda a, x: softmax(x, a.get("axis", -1)),
    "LogSoftmax": lambda a, x: np.log(softmax(x, a.get("axis", -1))),
    "Celu": lambda a, x: np.maximum(x, 0) + np.minimum(0, a.get("alpha", 1.0) * np.expm1(x / a.get("alpha", 1.0))),
    "Selu": lambda a, x: a.get("gamma", SELU[1]) * np.where(x > 0, x, a.get("alpha", SELU[0]) * np.expm1(x)),
    "HardSigmoid": lambda a, x: np.clip(a.get("alpha", 0.2) * x + a.get("beta", 0.5), 0, 1),
    "Softsign": lambda a, x: x / (1 + np.abs(x)),
    "ThresholdedRelu": lambda a, x: np.where(x > a.get("alpha", 1.0), x, 0),
    "Shrink": shrink,
    "Einsum": lambda a, *xs: np.einsum(a["equation"].decode(), *xs),
    "Clip": lambda a, x, low=-np.inf, high=np.inf: np.clip(x, a.get("min", low), a.get("max", high)),
    "Identity": lambda a, x: x,
    "Dropout": lambda a, x, *_: x,
    "Cast": lambda a, x: x.astype(np.int64) if a["to"] == 7 else x.astype(np.float64),
    "Add": lambda a, x, y: x + y,
    "Sub": lambda a, x, y: x - y,
    "Mul": lambda a, x, y: x * y,
    "Div": lambda a, x, y: x / y,
    "Sum": lambda a, *xs: sum(xs),
    "Mean": lambda a, *xs: sum(xs) / len(xs),
    "Max": lambda a, *xs: functools.reduce(np.maximum, xs),
    "Concat": lambda a, *xs: np.concatenate(xs, axis=a["axis"]),
    "MatMul": lambda a, x, y: x @ y,
    "Gemm": gemm,
    "Gather": lambda a, x, i: np.take(x, i.astype(np.int64), axis=a.get("axis", 0)),
    "Transpose": lambda a, x: x.transpose(a["perm"]),
    "Reshape": lambda a, x, shape: reshape(x, shape),
    "Flatten": lambda a, x: x.reshape(int(np.prod(x.shape[: a.get("axis", 1)])), -1),
    "Unsqueeze": lambda a, x, axes=None: unsqueeze(x, a["axes"] if axes is None else axes),
    "Squeeze": lambda a, x, axes=None: np.squeeze(x, tuple(int(i) for i in (a["axes"] if axes is None else axes))),
    "Shape": lambda a, x: np.array(x.shape[a.get("start", 0) : a.get("end", x.ndim)]),
    "Conv": conv,
    "ConvTranspose": conv_transpose,
    "MaxPool": lambda a, x: pool(a, x, True),
    "AveragePool": lambda a, x: pool(a, x, False),
    "GlobalAveragePool": lambda a, x: x.mean(axis=tuple(range(2, x.ndim)), keepdims=True),
    "ReduceMean": lambda a, x: x.mean(axis=tuple(a["axes"]), keepdims=bool(a.get("keepdims", 1))),
    "Pad": pad,
    "Resize": lambda a, x, *more: (
        resize(a, x, None, more[0], places=b"asymmetric") if len(more) == 1 else resize(a, x, *more)
    ),
    "Upsample": lambda a, x, scales=None: resize(a, x, None, scales, places=b"asymmetric"),
    "ConstantOfShape": lambda a, n: np.full(
        n.astype(int), numpy_helper.to_array(a["value"])[0] if "value" in a else 0.0
    ),
    "Where": lambda a, c, x, y: np.where(c, x, y),
    "Equal": lambda a, x, y: x == y,
    "Not": lambda a, x: np.logical_not(x),
    "Greater": lambda a, x, y: x > y,
    "GreaterOrEqual": lambda a, x, y: x >= y,
    "Less": lambda a, x, y: x < y,
    "LessOrEqual": lambda a, x, y: x <= y,
    "Mod": lambda a, x, y: np.mod(x, y),
    "OneHot": lambda a, i, n, off_on: np.where(i[..., None] == np.arange(int(np.ravel(n)[0])), off_on[1], off_on[0]),
    "Abs": lambda a, x: np.abs(x),
    "Neg": lambda a, x: -x,
    "Exp": lambda a, x: np.exp(x),
    "Log": lambda a, x: np.log(x),
    "Sin": lambda a, x: np.sin(x),
    "Cos": lambda a, x: np.cos(x),
    "Sign": lambda a, x: np.sign(x),
    "Round": lambda a, x: np.round(x),
    "Reciprocal": lambda a, x: 1 / x,
    "Min": lambda a, *xs: functools.reduce(np.minimum, xs),
    "CumSum": lambda a, x, axis: np.cumsum(x, axis=int(np.ravel(axis)[0])),
    "ArgMax": place(np.argmax),
    "ArgMin": place(np.argmin),
    "ReduceL1": lambda a, x: np.abs(x).sum(axis=tuple(a["axes"]), keepdims=bool(a.get("keepdims", 1))),
    "Tile": lambda a, x, repeats: np.tile(x, repeats.astype(int)),
    "And": lambda a, x, y: np.logical_and(x, y),
    "Or": lambda a, x, y: np.logical_or(x, y),
    "Xor": lambda a, x, y: np.logical_xor(x, y),
    "Tan": lambda a, x: np.tan(x),
    "Asin": lambda a, x: np.arcsin(x),
    "Acos": lambda a, x: np.arccos(x),
    "Atan": lambda a, x: np.arctan(x),
    "Sinh": lambda a, x: np.sinh(x),
    "Cosh": lambda a, x: np.cosh(x),
    "Asinh": lambda a, x: np.arcsinh(x),
    "Acosh": lambda a, x: np.arccosh(x),
    "Atanh": lambda a, x: np.arctanh(x),
    "Ceil": lambda a, x: np.ceil(x),
    "IsNaN": lambda a, x: np.isnan(x),
    "IsInf": lambda a, x: np.isinf(x),
    "ReduceMin": lambda a, x: x.min(axis=tuple(a["axes"]), keepdims=bool(a.get("keepdims", 1))),
    "ReduceProd": lambda a, x: x.prod(axis=tuple(a["axes"]), keepdims=bool(a.get("keepdims", 1))),
    "ReduceLogSumExp": lambda a, x: np.log(np.exp(x).sum(axis=tuple(a["axes"]), keepdims=bool(a.get("keepdims", 1)))),
    "Floor": lambda a, x: np.floor(x),
    "Expand": lambda a, x, shape: x * np.ones(shape.astype(int)),
    "ReduceMax": lambda a, x: x.max(
        axis=tuple(a["axes"]) if "axes" in a else None, keepdims=bool(a.get("keepdims", 1))
    ),
    "ReduceSum": lambda a, x, axes: x.sum(tuple(int(i) for i in axes), keepdims=bool(a.get("keepdims", 1))),
    "Slice": slice_of,
    "TopK": top_k,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    "PRelu": lambda a, x, slope: np.maximum(x, 0) + slope * np.minimum(x, 0),
    "ReduceL2": lambda a, x: np.sqrt((x * x).sum(axis=tuple(a["axes"]), keepdims=bool(a.get("keepdims", 1)))),
    "BatchNormalization": batch_norm,
    "InstanceNormalization": instance_norm,
    "LayerNormalization": layer_norm,
}


def run(model, x):
    """The single output for the single input."""
    graph = model.graph
    values = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    values = {name: v.astype(np.float64) if v.dtype.kind == "f" else v for name, v in values.items()}
    inputs = [i.name for i in graph.input if i.name not in values]
    assert len(inputs) == 1
    values[inputs[0]] = x.astype(np.float64) if x.dtype.kind == "f" else x
    for node in graph.node:
        a = attributes(node)
        if node.op_type == "Constant":
            values[node.output[0]] = numpy_helper.to_array(a["value"])
            continue
        arguments = [values[name] if name else None for name in node.input]
        results = OPERATORS[node.op_type](a, *arguments)
        values.update(zip(node.output, results if isinstance(results, tuple) else (results,)))
    return values[graph.output[0].name]
