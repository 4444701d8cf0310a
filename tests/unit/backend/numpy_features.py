"""Layers that work on each position by itself, on whole examples, or on several inputs, in numpy: Dense, Embedding,
normalizations, dropout, shapes, joins, attention. A layer is a function: (spec, inputs, variables, context) -> y and dy
-> [dx...]."""

import math

import numpy as np

from numpy_common import activated, softmax, softmax_backward, with_bias_and_activation


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
    """Normalizes over `axes` with their own statistics: returns the normalized x and d(normalized) -> dx."""
    mean, variance = x.mean(axis=axes, keepdims=True), x.var(axis=axes, keepdims=True)
    factor = 1 / np.sqrt(variance + epsilon)
    n = (x - mean) * factor

    def backward(dn):
        return factor * (dn - dn.mean(axis=axes, keepdims=True) - n * (dn * n).mean(axis=axes, keepdims=True))

    return n, backward


def scaled(v, n, back, axes_of_gamma=1):
    gamma = 1.0 if v["gamma"] is None else v["gamma"]
    beta = 0.0 if v["beta"] is None else v["beta"]

    def backward(dy):
        axes = tuple(range(dy.ndim - axes_of_gamma))
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
    axes = tuple(spec["axis"])
    return scaled(v, *normalized(xs[0], axes, spec["epsilon"]), len(axes))


def group_normalization(spec, xs, v, _):
    x = xs[0]
    grouped = x.reshape(x.shape[0], -1, spec["groups"], x.shape[-1] // spec["groups"])
    n, back = normalized(grouped, (1, 3), spec["epsilon"])
    return scaled(v, n.reshape(x.shape), lambda dn: back(dn.reshape(grouped.shape)).reshape(x.shape))


def activation(spec, xs, _v, _c):
    y, back = activated(spec["activation"], xs[0], spec.get("negative_slope", 0.3), spec.get("alpha"), spec)
    return y, lambda dy: [back(dy)]


def reshaped(shape_of):
    def layer(spec, xs, _v, _c):
        return xs[0].reshape(shape_of(spec, xs[0])), lambda dy: [dy.reshape(xs[0].shape)]

    return layer


def permute(spec, xs, _v, _c):
    axes = (0, *spec["dims"])
    return xs[0].transpose(axes), lambda dy: [dy.transpose(np.argsort(axes))]


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


def prelu(spec, xs, v, _c):
    """He et al. 2015, equation 1."""
    x, alpha = xs[0], v["alpha"]
    shared = (0, *spec.get("shared_axes", []))

    def backward(dy):
        v.add("alpha", (dy * np.minimum(x, 0)).sum(axis=shared, keepdims=True)[0])
        return [dy * np.where(x > 0, 1, np.where(x < 0, alpha, 0))]

    return np.maximum(x, 0) + alpha * np.minimum(x, 0), backward


def dot(spec, xs, _v, _c):
    """keras.layers.Dot: the tensordot of each example, of unit vectors if they are normalized."""
    axes = [a - 1 for a in spec["axes"]]
    lengths = [
        np.maximum(np.sqrt((x * x).sum(axis=a + 1, keepdims=True)), 1e-7) if spec["normalize"] else 1.0
        for x, a in zip(xs, axes)
    ]
    unit = [x / length for x, length in zip(xs, lengths)]
    y = np.stack([np.tensordot(a, b, axes=[[axes[0]], [axes[1]]]) for a, b in zip(*unit)])

    def backward(dy):
        others = [x.ndim - 2 for x in xs]  # the remaining axes of an example
        dy = dy.reshape(y.shape)
        gradients = []
        for k, (x, a) in enumerate(zip(unit, axes)):
            other, at = unit[1 - k], axes[1 - k]
            summed = list(range(others[0], sum(others))) if k == 0 else list(range(others[0]))
            of_other = [axis for axis in range(other.ndim - 1) if axis != at]
            d = np.stack([np.tensordot(g, o, axes=[summed, of_other]) for g, o in zip(dy, other)])
            d = np.moveaxis(d, -1, a + 1)
            if spec["normalize"]:
                d = (d - x * (d * x).sum(axis=a + 1, keepdims=True)) / lengths[k]
            gradients.append(d)
        return gradients

    return y.reshape(len(y), -1) if y.ndim == 1 else y, backward


def concatenate(spec, xs, _v, _c):
    axis = spec.get("axis") or -1
    cuts = np.cumsum([x.shape[axis] for x in xs])[:-1]
    return np.concatenate(xs, axis=axis), lambda dy: np.split(dy, cuts, axis=axis)


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
