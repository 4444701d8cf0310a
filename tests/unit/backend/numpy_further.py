"""More layers like those of numpy_features.py: elementwise ones, noise, repeated rows. The random numbers are part of
the case (layers_driver); their use is implemented here from Keras' documentation."""

import numpy as np

from numpy_common import activated, softmax, softmax_backward
from numpy_recurrent import by_differences


def kept(x, axes):
    """x's shape with 1 along all axes except these, including the batch axis."""
    return [x.shape[a] if a in axes else 1 for a in range(x.ndim)]


def normalization(spec, xs, v, _):
    x = xs[0]
    axes = spec.get("axis", [])
    if spec.get("mean"):
        mean, variance = np.array(spec["mean"]), np.array(spec["variance"])
    else:
        mean, variance = v["mean"], v["variance"]
    shape = kept(x, axes)
    mean = np.broadcast_to(mean.reshape(-1), int(np.prod(shape))).reshape(shape)
    deviation = np.broadcast_to(np.maximum(np.sqrt(variance), 1e-7).reshape(-1), int(np.prod(shape))).reshape(shape)
    if spec["invert"]:
        return mean + x * deviation, lambda dy: [dy * deviation]
    return (x - mean) / deviation, lambda dy: [dy / deviation]


def rescaling(spec, xs, _v, _c):
    scale, offset = spec["scale"], spec["offset"]
    if spec.get("scales"):
        scale, offset = np.array(spec["scales"]), np.array(spec["offsets"])
    return xs[0] * scale + offset, lambda dy: [dy * scale]


def noise(shape_of):
    """shape_of: (spec, x) -> the shape of the random numbers, without the batch."""

    def layer(spec, xs, _v, context):
        x = xs[0]
        if not context["training"] or context["mask"] is None:
            return x, lambda dy: [dy]
        shape = (len(x), *shape_of(spec, x))
        factors = context["mask"].reshape(shape)
        offsets = 0.0 if context["offsets"] is None else context["offsets"].reshape(shape)
        return x * factors + offsets, lambda dy: [dy * factors]

    return layer


def named_shape(spec, x):
    named = spec.get("noise_shape", [])
    return [1 if named and named[i] == 1 else size for i, size in enumerate(x.shape[1:])]


def channels(_, x):
    return [1] * (x.ndim - 2) + [x.shape[-1]]


def repeat_vector(spec, xs, _v, _c):
    return np.repeat(xs[0][:, None], spec["n"], axis=1), lambda dy: [dy.sum(axis=1)]


def rms_normalization(spec, xs, v, _):
    """Zhang and Sennrich 2019, equation 4; its derivative by the quotient rule."""
    x, scale = xs[0], v["scale"]
    rms = np.sqrt((x**2).mean(axis=-1, keepdims=True) + spec["epsilon"])

    def backward(dy):
        v.add("scale", (dy * x / rms).reshape(-1, x.shape[-1]).sum(axis=0))
        g = dy * scale
        return [g / rms - x * (g * x).mean(axis=-1, keepdims=True) / rms**3]

    return x / rms * scale, backward


def unit_normalization(spec, xs, _v, _c):
    x, axes = xs[0], tuple(spec["axis"])
    length = np.sqrt(np.maximum((x**2).sum(axis=axes, keepdims=True), 1e-12))
    y = x / length
    return y, lambda dy: [(dy - y * (dy * y).sum(axis=axes, keepdims=True)) / length]


def attention_by(score):
    """score: (spec, q [n, t, 1, d], k [n, 1, s, d], variables) -> scores [n, t, s] and d(scores) -> (dq, dk) of those
    shapes; it adds the variables' gradients."""

    def layer(spec, xs, v, context):
        query, value, key = xs[0], xs[1], xs[-1]
        scores, back = score(spec, query[:, :, None], key[:, None], v)
        if spec["use_causal_mask"]:
            scores = np.where(np.tri(*scores.shape[1:], dtype=bool), scores, -np.inf)
        weights = softmax(scores)
        drops = context["training"] and context["mask"] is not None
        factors = context["mask"].reshape(weights.shape) if drops else 1.0

        def backward(dy):
            dvalue = np.einsum("nts,ntd->nsd", weights * factors, dy)
            dscores = softmax_backward(weights, np.einsum("ntd,nsd->nts", dy, value) * factors)
            dq, dk = (d.sum(axis=a) for d, a in zip(back(dscores[..., None]), (2, 1)))
            return [dq, dvalue + dk] if len(xs) == 2 else [dq, dvalue, dk]

        return np.einsum("nts,nsd->ntd", weights * factors, value), backward

    return layer


def luong(spec, q, k, v):
    scale = 1.0 if v["scale"] is None else v["scale"]
    if spec["score_mode"] != "CONCAT":

        def backward(d):
            v.add("scale", (d * q * k).sum())
            return d * scale * k, d * scale * q

        return (scale * q * k).sum(axis=-1), backward
    weight, bent = v["concat_score_weight"], np.tanh(scale * (q + k))

    def backward_of_sum(d):
        slope = d * weight * (1 - bent**2)
        v.add("concat_score_weight", (d * bent).sum())
        v.add("scale", (slope * (q + k)).sum())
        return slope * scale, slope * scale

    return weight * bent.sum(axis=-1), backward_of_sum


def bahdanau(spec, q, k, v):
    scale, bent = 1.0 if v["scale"] is None else v["scale"], np.tanh(q + k)

    def backward(d):
        v.add("scale", (d * bent).sum(axis=(0, 1, 2)))
        return d * scale * (1 - bent**2), d * scale * (1 - bent**2)

    return (scale * bent).sum(axis=-1), backward


def einsum_dense(spec, xs, v, _):
    """keras.layers.EinsumDense with numpy's own einsum; each operand's gradient is an einsum too, with the letters
    permuted."""
    x, kernel = xs[0], v["kernel"]
    operands, result = spec["equation"].split("->")
    left, right = operands.split(",")
    z = np.einsum(spec["equation"], x, kernel)
    bias = v["bias"]
    y, activation_backward = activated(spec["activation"], z if bias is None else z + bias)

    def backward(dy):
        dz = activation_backward(dy)
        if bias is not None:
            wide = bias.reshape((1,) * (dz.ndim - bias.ndim) + bias.shape)
            axes = tuple(a for a in range(dz.ndim) if wide.shape[a] == 1 and (a == 0 or dz.shape[a] > 1))
            v.add("bias", dz.sum(axis=axes, keepdims=True).reshape(bias.shape))
        if "..." in left:
            v.add("kernel", x.reshape(-1, x.shape[-1]).T @ dz.reshape(-1, dz.shape[-1]))
        else:
            v.add("kernel", np.einsum(f"{left},{result}->{right}", x, dz))
        return [np.einsum(f"{result},{right}->{left}", dz, kernel)]

    return y, backward


def group_query_attention(spec, xs, v, _):
    """Ainslie et al. 2023, with the einsums of Keras' layer. Inputs: query, value, key (default: the value)."""

    def forward(inputs, w):
        def project(x, name):
            y = np.einsum("btm,muh->btuh", x, w[name + "/kernel"])
            return y if w[name + "/bias"] is None else y + w[name + "/bias"]

        repeats = spec["num_query_heads"] // spec["num_key_value_heads"]
        q = project(inputs[0], "query")
        k, u = (np.repeat(project(x, name), repeats, axis=2) for x, name in ((inputs[-1], "key"), (inputs[1], "value")))
        scores = np.einsum("bquh,bkuh->buqk", q, k) / np.sqrt(spec["head_dim"])
        distance = np.arange(scores.shape[2])[:, None] - np.arange(scores.shape[3])
        seen = np.ones(distance.shape, bool)
        if spec["use_causal_mask"]:
            seen &= distance >= 0
        if spec["sliding_window"]:
            seen &= np.abs(distance) < spec["sliding_window"]
        heads = np.einsum("buqk,bkuh->bquh", softmax(np.where(seen, scores, -np.inf)), u)
        if spec["use_gate"]:
            heads = heads / (1 + np.exp(-project(inputs[0], "gate")))
        y = np.einsum("bquh,uhm->bqm", heads, w["attention_output/kernel"])
        return y if w["attention_output/bias"] is None else y + w["attention_output/bias"]

    return by_differences(forward, xs, v)
