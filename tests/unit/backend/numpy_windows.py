"""Layers that slide a window over pictures or sequences, or change their size, in numpy: convolutions, pooling,
padding, up-sampling. A layer is a function: (spec, inputs, variables, context) -> y and dy -> [dx...]."""

import math

import numpy as np

from numpy_common import with_bias_and_activation


def pads(size, kernel, stride, dilation, same):
    """TensorFlow's: output size and pads before and after."""
    reach = (kernel - 1) * dilation + 1
    if not same:
        return (size - reach) // stride + 1, 0, 0
    out = -(-size // stride)
    total = max(0, (out - 1) * stride + reach - size)
    return out, total // 2, total - total // 2


class Window:
    """Extracts from a padded image [n, h, w, c] the pixels under each kernel position, and adds gradients back."""

    def __init__(self, h, w, kernel, strides, dilation, same):
        self.kernel, self.strides, self.dilation = kernel, strides, dilation
        self.size = (h, w)
        (self.oh, *self.pad_h), (self.ow, *self.pad_w) = (
            pads(s, k, t, d, same) for s, k, t, d in zip((h, w), kernel, strides, dilation)
        )

    def pad(self, x, value=0.0):
        return np.pad(x, ((0, 0), self.pad_h, self.pad_w, (0, 0)), constant_values=value)

    def unpad(self, x):
        return x[:, self.pad_h[0] : self.pad_h[0] + self.size[0], self.pad_w[0] : self.pad_w[0] + self.size[1]]

    def places(self):
        for ky in range(self.kernel[0]):
            for kx in range(self.kernel[1]):
                y, x = ky * self.dilation[0], kx * self.dilation[1]
                yield ky, kx, (
                    slice(None),
                    slice(y, y + (self.oh - 1) * self.strides[0] + 1, self.strides[0]),
                    slice(x, x + (self.ow - 1) * self.strides[1] + 1, self.strides[1]),
                )


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

    return Window(
        x.shape[1], x.shape[2], pair(kernel), pair("strides"), pair("dilation_rate"), spec["padding"] == "SAME"
    )


def conv2d(spec, xs, v, _):
    y, back = conv(xs[0], v["kernel"], window_of(xs[0], spec))

    def linear_backward(dz):
        dx, dkernel = back(dz)
        v.add("kernel", dkernel)
        return dx

    return with_bias_and_activation(spec, v, y, linear_backward)


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


def up_sampling2d(spec, xs, _v, _c):
    """One matrix per axis: pixels repeated, or tf.image.resize's bilinear with half-pixel centres."""
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
    return (
        np.einsum("ah,bw,nhwc->nabc", rows, columns, x),
        lambda dy: [np.einsum("ah,bw,nabc->nhwc", rows, columns, dy)],
    )


def cropping2d(spec, xs, _v, _c):
    top, bottom, left, right = spec["cropping"]
    h, w = xs[0].shape[1:3]
    return (
        xs[0][:, top : h - bottom, left : w - right],
        lambda dy: [np.pad(dy, ((0, 0), (top, bottom), (left, right), (0, 0)))],
    )


def zero_padding2d(spec, xs, _v, _c):
    top, bottom, left, right = spec["padding"]
    h, w = xs[0].shape[1:3]
    return (
        np.pad(xs[0], ((0, 0), (top, bottom), (left, right), (0, 0))),
        lambda dy: [dy[:, top : top + h, left : left + w]],
    )
