"""Graphs that choose numbers: by their size, or by a condition. As PyTorch exports them, with random weights."""

import numpy as np

from graph_builder import Builder


def torch_choices():
    """torch.topk of both kinds along two axes, masked_fill and where with numbers."""
    b = Builder(18)
    x = b.conv("input", "conv", 6, 2, (3, 3), pads=[1] * 4)
    three = b.constant(np.array([3]))
    largest = b.op("TopK", x, three, outputs=["largest", "places"], axis=1)
    least = b.op("TopK", x, three, outputs=["least", "least_places"], axis=1, largest=0)
    across = b.op("TopK", x, b.constant(np.array([4])), outputs=["across", "unused"], axis=-1)
    largest = b.op("Mul", largest, b.op("Cast", "places", to=1))
    x = b.op("Add", largest, b.op("Mul", least, b.op("Cast", "least_places", to=1)))
    x = b.op("Where", b.op("Less", x, b.constant(np.float32(-0.5))), b.constant(np.float32(-2)), x)
    x = b.op("Where", b.op("Greater", x, b.constant(np.float32(0.5))), x, b.constant(np.float32(0.25)))
    is_large = b.op("Greater", x, b.constant(np.float32(0.75)))
    x = b.op("Mul", x, b.op("Where", is_large, b.constant(np.float32(2)), b.constant(np.float32(1))))
    y = b.op("Flatten", b.op("Tanh", across), axis=1)
    x = b.op("Concat", b.op("Flatten", x, axis=1), y, axis=1)
    return b.graph("torch_choices", b.gemm(x, "out", 5, 3 * 30 + 6 * 5 * 4), [2, 5, 6], True, [5])


def graphs():
    return [torch_choices()]
