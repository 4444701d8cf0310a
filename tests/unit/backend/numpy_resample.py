"""Layers that resize a picture, in numpy: Resizing, CenterCrop, adaptive pooling; one matrix per axis. A layer is a
function: (spec, inputs, variables, context) -> y and dy -> [dx...]."""

import math

import numpy as np

from numpy_axes import numbers


def lanczos(radius):
    return lambda x: 1.0 if x == 0 else np.sinc(x) * np.sinc(x / radius)


def keys(x):
    """Keys 1981, equation 4 with a = -1/2."""
    a = -0.5
    if x <= 1:
        return (a + 2) * x**3 - (a + 3) * x**2 + 1
    return a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a


KERNELS = {
    "BILINEAR": (1, lambda x: 1 - x),
    "BICUBIC": (2, keys),
    "LANCZOS3": (3, lanczos(3)),
    "LANCZOS5": (5, lanczos(5)),
}


def resizing_matrix(size, out, kind):
    """jax.image.resize and tf.image.resize without antialias: half-pixel centres, weights that add up to 1."""
    m = np.zeros((out, size))
    for o in range(out):
        if kind == "NEAREST":
            m[o, math.floor((o + 0.5) * size / out + 1e-9)] = 1
            continue
        radius, kernel = KERNELS[kind]
        for i in range(size):
            distance = abs((o + 0.5) * size / out - (i + 0.5))
            if distance < radius:
                m[o, i] = kernel(distance)
        m[o] /= m[o].sum()
    return m


def apply(matrices, x):
    for axis, m in enumerate(matrices, 1):
        x = np.moveaxis(np.tensordot(m, x, axes=(1, axis)), 0, axis)
    return x


def resized(x, matrices):
    return apply(matrices, x), lambda dy: [apply([m.T for m in matrices], dy)]


def cropped_to_aspect(h, w, target):
    """The centred part of the picture with the target's aspect ratio: begins and sizes."""
    ch, cw = max(min(h, w * target[0] // target[1]), 1), max(min(w, h * target[1] // target[0]), 1)
    return ((h - ch) // 2, ch), ((w - cw) // 2, cw)


def within(begin, size, n):
    """As a matrix: positions begin ... of an axis of n; those outside are 0."""
    m = np.zeros((size, n))
    for i in range(size):
        if 0 <= begin + i < n:
            m[i, begin + i] = 1
    return m


def resizing(spec, xs, _v, _c):
    x, target = xs[0], (spec["height"], spec["width"])
    h, w = x.shape[1:3]
    boxes = (0, h), (0, w)
    if spec["crop_to_aspect_ratio"]:
        boxes = cropped_to_aspect(h, w, target)
    if spec["pad_to_aspect_ratio"]:
        ph = (max(h, w * target[0] // target[1]) - h) // 2
        pw = (max(w, h * target[1] // target[0]) - w) // 2
        boxes = (-ph, h + 2 * ph), (-pw, w + 2 * pw)
    cuts = [within(b, s, n) for (b, s), n in zip(boxes, (h, w))]
    turns = [resizing_matrix(s, t, spec["interpolation"]) for (_, s), t in zip(boxes, target)]
    boxed = apply(cuts, x)
    boxed += spec["fill_value"] * (1 - apply(cuts, np.ones_like(x)))
    return apply(turns, boxed), lambda dy: [apply([c.T @ t.T for c, t in zip(cuts, turns)], dy)]


def center_crop(spec, xs, _v, _c):
    x, target = xs[0], (spec["height"], spec["width"])
    h, w = x.shape[1:3]
    if h >= target[0] and w >= target[1]:
        boxes = ((h - target[0]) // 2, target[0]), ((w - target[1]) // 2, target[1])
    else:
        boxes = cropped_to_aspect(h, w, target)
    return resized(
        x, [resizing_matrix(s, t, "BILINEAR") @ within(b, s, n) for (b, s), t, n in zip(boxes, target, (h, w))]
    )


def windows(n, out):
    return [(math.floor(i * n / out), math.ceil((i + 1) * n / out)) for i in range(out)]


def adaptive_average(spec, xs, _v, _c):
    x = xs[0]
    matrices = []
    for n, out in zip(x.shape[1:-1], numbers(spec["output_size"], x.ndim - 2)):
        m = np.zeros((out, n))
        for i, (begin, end) in enumerate(windows(n, out)):
            m[i, begin:end] = 1 / (end - begin)
        matrices.append(m)
    return resized(x, matrices)


def adaptive_max(spec, xs, _v, _c):
    x = xs[0]
    outs = numbers(spec["output_size"], x.ndim - 2)
    y, places = np.zeros((len(x), *outs, x.shape[-1])), {}
    for at in np.ndindex(*outs):
        cut = tuple(slice(*windows(n, out)[i]) for n, out, i in zip(x.shape[1:-1], outs, at))
        part = x[(slice(None), *cut)]
        flat = part.reshape(len(x), -1, x.shape[-1])
        y[(slice(None), *at)] = flat.max(axis=1)
        places[at] = cut, part.shape, flat.argmax(axis=1)[:, None]

    def backward(dy):
        dx = np.zeros_like(x)
        for at, (cut, shape, first) in places.items():
            flat = np.zeros((shape[0], int(np.prod(shape[1:-1])), shape[-1]))
            np.put_along_axis(flat, first, dy[(slice(None), *at)][:, None], 1)
            dx[(slice(None), *cut)] += flat.reshape(shape)
        return [dx]

    return y, backward
