"""Layers that slide a window over any number of axes, in numpy: convolutions with groups, causal and transposed ones,
pooling, padding, cropping, up-sampling of sequences [n, steps, c], images [n, h, w, c] and volumes [n, d, h, w, c]. A
layer is a function: (spec, inputs, variables, context) -> y and dy -> [dx...]."""

import itertools

import numpy as np

from numpy_common import with_bias_and_activation


def numbers(value, rank, default=1):
    """A field with one number, or one for each axis."""
    values = list(value) if isinstance(value, (list, tuple)) else [value]
    values = [v for v in values if v] or [default]
    return tuple(values * rank if len(values) == 1 else values)


class Axes:
    """Extracts from a padded tensor what is under each position of a kernel, and adds gradients back."""

    def __init__(self, sizes, kernel, strides, dilation, padding):
        self.kernel, self.strides, self.dilation, self.sizes = kernel, strides, dilation, sizes
        self.outs, self.pads = [], []
        for n, k, s, d in zip(sizes, kernel, strides, dilation):
            reach = (k - 1) * d + 1
            begin = end = 0
            if padding == "SAME":
                total = max(0, (-(-n // s) - 1) * s + reach - n)
                begin, end = total // 2, total - total // 2
            elif padding == "CAUSAL":
                begin = reach - 1
            self.pads.append((begin, end))
            self.outs.append((n + begin + end - reach) // s + 1)

    def pad(self, x, value=0.0):
        return np.pad(x, [(0, 0), *self.pads, (0, 0)], constant_values=value)

    def unpad(self, x):
        return x[(slice(None), *(slice(b, b + n) for (b, _), n in zip(self.pads, self.sizes)))]

    def places(self):
        for place in itertools.product(*(range(k) for k in self.kernel)):
            yield place, (
                slice(None),
                *(
                    slice(k * d, k * d + (o - 1) * s + 1, s)
                    for k, d, o, s in zip(place, self.dilation, self.outs, self.strides)
                ),
            )


def axes_of(x, spec, kernel="kernel_size", default=1):
    rank = x.ndim - 2
    size = numbers(spec[kernel], rank, default)
    return Axes(
        x.shape[1:-1],
        size,
        numbers(spec["strides"], rank, 1),
        numbers(spec.get("dilation_rate", 1), rank, 1),
        spec["padding"],
    )


def grouped(x, kernel, axes, groups):
    """y and dy -> (dx, dkernel). kernel [axes..., in of a group, out]: a group of outputs reads the matching group of
    inputs."""
    padded = axes.pad(x)
    ins = np.split(np.arange(x.shape[-1]), groups)
    outs = np.split(np.arange(kernel.shape[-1]), groups)
    y = np.zeros((len(x), *axes.outs, kernel.shape[-1]))
    for place, cut in axes.places():
        for i, o in zip(ins, outs):
            y[..., o] += padded[cut][..., i] @ kernel[place][:, o]

    def backward(dy):
        dx, dkernel = np.zeros_like(padded), np.zeros_like(kernel)
        for place, cut in axes.places():
            for i, o in zip(ins, outs):
                part = np.zeros_like(dx[cut])
                part[..., i] = dy[..., o] @ kernel[place][:, o].T
                dx[cut] += part
                rows = padded[cut][..., i].reshape(-1, len(i)), dy[..., o].reshape(-1, len(o))
                dkernel[place][:, o] += rows[0].T @ rows[1]
        return axes.unpad(dx), dkernel

    return y, backward


def conv(spec, xs, v, _):
    y, back = grouped(xs[0], v["kernel"], axes_of(xs[0], spec), spec["groups"])

    def linear_backward(dz):
        dx, dkernel = back(dz)
        v.add("kernel", dkernel)
        return dx

    return with_bias_and_activation(spec, v, y, linear_backward)


def depthwise_of(x, kernel, axes):
    """A convolution with as many groups as channels; kernel [axes..., channels, multiplier]."""
    channels = x.shape[-1]
    y, back = grouped(x, kernel.reshape(*kernel.shape[:-2], 1, -1), axes, channels)

    def backward(dy):
        dx, dkernel = back(dy)
        return dx, dkernel.reshape(kernel.shape)

    return y, backward


def depthwise_conv(spec, xs, v, _):
    y, back = depthwise_of(xs[0], v["kernel"], axes_of(xs[0], spec))

    def linear_backward(dz):
        dx, dkernel = back(dz)
        v.add("kernel", dkernel)
        return dx

    return with_bias_and_activation(spec, v, y, linear_backward)


def separable_conv(spec, xs, v, _):
    between, first = depthwise_of(xs[0], v["depthwise_kernel"], axes_of(xs[0], spec))
    ones = (1,) * (xs[0].ndim - 2)
    y, second = grouped(between, v["pointwise_kernel"], Axes(between.shape[1:-1], ones, ones, ones, "VALID"), 1)

    def linear_backward(dz):
        dbetween, dpointwise = second(dz)
        dx, ddepthwise = first(dbetween)
        v.add("pointwise_kernel", dpointwise)
        v.add("depthwise_kernel", ddepthwise)
        return dx

    return with_bias_and_activation(spec, v, y, linear_backward)


def conv_transpose(spec, xs, v, _):
    """Each number of the input adds the kernel [axes..., out, in] to the output. The size follows Keras' rule; SAME
    cuts the excess at both ends, an odd position at the end."""
    x, kernel = xs[0], v["kernel"]
    rank = x.ndim - 2
    strides, dilation = numbers(spec["strides"], rank), numbers(spec["dilation_rate"], rank)
    more = list(spec["output_padding"])
    sizes, begins, whole = [], [], []
    for i in range(rank):
        s, n = strides[i], x.shape[1 + i]
        reach = (kernel.shape[i] - 1) * dilation[i] + 1
        laid = (n - 1) * s + reach
        if spec["padding"] == "SAME":
            size = (n - 1) * s + reach % 2 + more[i] if more else n * s
        else:
            size = laid + (more[i] if more else max(s - reach, 0))
        sizes.append(size)
        begins.append(max(laid - size, 0) // 2)
        whole.append(max(laid, begins[-1] + size))
    full = np.zeros((len(x), *whole, kernel.shape[-2]))
    inner = (slice(None), *(slice(b, b + n) for b, n in zip(begins, sizes)))

    def cuts():
        for place in itertools.product(*(range(k) for k in kernel.shape[:rank])):
            yield place, (
                slice(None),
                *(
                    slice(k * d, k * d + (n - 1) * s + 1, s)
                    for k, d, n, s in zip(place, dilation, x.shape[1:-1], strides)
                ),
            )

    for place, cut in cuts():
        full[cut] += x @ kernel[place].T

    def linear_backward(dz):
        dfull = np.zeros_like(full)
        dfull[inner] = dz
        dkernel, dx = np.zeros_like(kernel), np.zeros_like(x)
        for place, cut in cuts():
            dx += dfull[cut] @ kernel[place]
            dkernel[place] = dfull[cut].reshape(-1, kernel.shape[-2]).T @ x.reshape(-1, kernel.shape[-1])
        v.add("kernel", dkernel)
        return dx

    return with_bias_and_activation(spec, v, full[inner], linear_backward)


def max_of(x, axes):
    padded = axes.pad(x, -np.inf)
    stack = np.stack([padded[cut] for _, cut in axes.places()])
    first = stack.argmax(axis=0)

    def backward(dy):
        dx = np.zeros_like(padded)
        for i, (_, cut) in enumerate(axes.places()):
            dx[cut] += dy * (first == i)
        return axes.unpad(dx)

    return stack.max(axis=0), backward


def max_pooling(spec, xs, _v, _c):
    y, back = max_of(xs[0], axes_of(xs[0], spec, "pool_size", 2))
    return y, lambda dy: [back(dy)]


def average_pooling(spec, xs, _v, _c):
    axes = axes_of(xs[0], spec, "pool_size", 2)
    padded, ones = axes.pad(xs[0]), axes.pad(np.ones_like(xs[0]))
    count = sum(ones[cut] for _, cut in axes.places())

    def backward(dy):
        dx = np.zeros_like(padded)
        for _, cut in axes.places():
            dx[cut] += dy / count
        return [axes.unpad(dx)]

    return sum(padded[cut] for _, cut in axes.places()) / count, backward


def global_average(spec, xs, _v, _c):
    x = xs[0]
    axes = tuple(range(1, x.ndim - 1))
    spread = (len(x),) + (1,) * len(axes) + (-1,)
    count = x.size / len(x) / x.shape[-1]
    return x.mean(axis=axes, keepdims=spec["keepdims"]), lambda dy: [
        np.broadcast_to(dy.reshape(spread), x.shape) / count
    ]


def global_max(spec, xs, _v, _c):
    x = xs[0]
    flat = x.reshape(len(x), -1, x.shape[-1])
    at = flat.argmax(axis=1)[:, None]
    y = np.take_along_axis(flat, at, 1)[:, 0]

    def backward(dy):
        dx = np.zeros_like(flat)
        np.put_along_axis(dx, at, dy.reshape(len(x), 1, -1), 1)
        return [dx.reshape(x.shape)]

    return y.reshape((len(x),) + (1,) * (x.ndim - 2) + (-1,)) if spec["keepdims"] else y, backward


def ends(given, rank):
    return list(zip(given[0 : 2 * rank : 2], given[1 : 2 * rank : 2]))


def zero_padding(spec, xs, _v, _c):
    x = xs[0]
    pads = ends(spec["padding"], x.ndim - 2)
    inner = (slice(None), *(slice(b, b + n) for (b, _), n in zip(pads, x.shape[1:-1])))
    return np.pad(x, [(0, 0), *pads, (0, 0)]), lambda dy: [dy[inner]]


def cropping(spec, xs, _v, _c):
    x = xs[0]
    cuts = ends(spec["cropping"], x.ndim - 2)
    inner = (slice(None), *(slice(b, n - e) for (b, e), n in zip(cuts, x.shape[1:-1])))
    return x[inner], lambda dy: [np.pad(dy, [(0, 0), *cuts, (0, 0)])]


def up_sampling(spec, xs, _v, _c):
    """Repeats every number."""
    x = xs[0]
    sizes = numbers(spec["size"], x.ndim - 2, 2)
    y = x
    for axis, size in enumerate(sizes, 1):
        y = np.repeat(y, size, axis=axis)

    def backward(dy):
        for axis, size in enumerate(sizes, 1):
            dy = np.stack([dy.take(range(i, dy.shape[axis], size), axis=axis) for i in range(size)]).sum(axis=0)
        return [dy]

    return y, backward
