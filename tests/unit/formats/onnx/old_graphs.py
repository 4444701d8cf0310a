"""Graphs as exporters wrote them before opset 9, and with parts that exporters leave to be computed: attributes that
became inputs later, weights listed as inputs, shapes and weights assembled from constants, external weights."""

import numpy as np
from onnx import TensorProto, helper

from graph_builder import Builder


def ints(*values):
    return np.array(values, np.int64)


def list_weights(graph):
    """IR version 3: every initializer is an input too."""
    inputs = graph.model.graph.input
    for tensor in graph.model.graph.initializer:
        inputs.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    graph.model.ir_version = 3
    return graph


def opset7():
    b = Builder(21)
    x = b.op("Pad", "input", pads=[0, 0, 1, 1, 0, 0, 1, 1], mode="constant", value=0.0)
    x = b.conv(x, "conv1", 6, 3, (3, 3))
    x = b.op("BatchNormalization", x, *b.norm("bn1", 6), epsilon=1e-5, momentum=0.9, spatial=1)
    x = b.op("Clip", x, min=0.0, max=6.0)
    x = b.op("Upsample", x, mode="nearest", scales=[1.0, 1.0, 2.0, 2.0])
    x = b.op("Slice", x, axes=[2, 3], starts=[1, 2], ends=[-1, 1000])
    x = b.op("Dropout", x, ratio=0.25)
    x = b.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = b.op("Reshape", x, b.constant(ints(-1, 6 * 7 * 5)))
    x = b.op(
        "Identity",
        b.op("Gemm", x, b.weight("fc.weight", 4, 210), b.weight("fc.bias", 4), transB=1, alpha=0.5, beta=2.0),
    )
    return list_weights(b.graph("opset7", x, [3, 8, 6], True, [4], opset=7))


def opset8():
    b = Builder(22)
    x = b.op("Relu", b.op("Gemm", "input", b.weight("a", 5, 6), b.weight("c", 1), transB=0))
    rows = b.op("Unsqueeze", x, axes=[1])
    y = b.op("Sum", rows, b.op("Unsqueeze", b.op("Squeeze", rows, axes=[1]), axes=[1]))
    x = b.op("Squeeze", b.op("Max", rows, y), axes=[1])
    return list_weights(
        b.graph("opset8", b.op("Gemm", x, b.weight("d", 6, 3), b.weight("e", 1, 3)), [5], False, [3], opset=8)
    )


def opset9_scales():
    """PyTorch 1.0 to 1.2: nn.Upsample, whose factors are computed from the shape."""
    b = Builder(23)
    x = b.op("Relu", b.conv("input", "conv", 3, 1, (3, 3), pads=[1] * 4))
    shape = b.op("Shape", x)
    size = b.op("Slice", shape, axes=[0], starts=[2], ends=[4])
    doubled = b.op("Floor", b.op("Mul", b.op("Cast", size, to=TensorProto.FLOAT), b.constant(np.float32([2, 3]))))
    factors = b.op("Div", doubled, b.op("Cast", size, to=TensorProto.FLOAT))
    scales = b.op("Concat", b.constant(np.float32([1, 1])), factors, axis=0)
    x = b.op("Upsample", x, scales, mode="nearest")
    return b.graph("opset9_scales", x, [1, 4, 5], True, [3, 8, 15], opset=9)


def opset10_resize():
    b = Builder(24)
    x = b.conv("input", "conv", 3, 1, (1, 1))
    x = b.op("Resize", x, b.constant(np.float32([1, 1, 2, 2])), mode="nearest")
    return b.graph("opset10_resize", x, [1, 4, 5], True, [3, 8, 10], opset=10)


def computed_sizes():
    """PyTorch's interpolate(size=...): the batch and the channels of the input's shape, then the new size."""
    b = Builder(25)
    x = b.conv("input", "conv", 3, 1, (1, 1))
    head = b.op("Slice", b.op("Shape", x), b.constant(ints(0)), b.constant(ints(2)), b.constant(ints(0)))
    sizes = b.op("Concat", head, b.constant(ints(8, 15)), axis=0)
    x = b.op(
        "Resize", x, "", "", sizes, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    return b.graph("computed_sizes", x, [1, 4, 5], True, [3, 8, 15])


def computed_shapes():
    """x.view(x.size(0), x.size(1) * x.size(2), -1), expand_as and the Where of a -1, as torch.jit traces them."""
    b = Builder(26)
    x = b.op("Relu", b.conv("input", "conv", 4, 2, (3, 3), pads=[1] * 4))
    shape = b.op("Shape", x)
    pick = lambda i: b.op("Gather", shape, b.constant(ints(i).reshape(())), axis=0)  # noqa: E731
    rows = b.op("Mul", pick(1), pick(2))
    one = lambda v: b.op("Unsqueeze", v, b.constant(ints(0)))  # noqa: E731
    target = b.op("Concat", one(pick(0)), one(rows), b.constant(ints(-1)), axis=0)
    x = b.op("Reshape", x, target)
    ones = b.op("ConstantOfShape", b.op("Shape", target), value=helper.make_tensor("v", TensorProto.INT64, [1], [1]))
    given = b.constant(ints(-1, -1, -1))
    wanted = b.op("Where", b.op("Equal", given, b.op("Mul", ones, b.constant(ints(-1)))), ones, given)
    x = b.op("Expand", x, wanted)
    zeros = b.op("ConstantOfShape", b.op("Shape", x))  # of [batch, 24, 5]
    x = b.op(
        "Add", x, b.op("ReduceMax", b.op("Cast", b.op("Gather", target, b.constant(ints(1)), axis=0), to=1), keepdims=0)
    )
    return b.graph(
        "computed_shapes",
        b.op("Add", x, b.op("Slice", zeros, *[b.constant(ints(v)) for v in (0, 1, 2)])),
        [2, 6, 5],
        True,
        [24, 5],
    )


def computed_weights():
    """Weights that are transposed, sliced, concatenated and scaled before use."""
    b = Builder(27)
    w = b.op("Transpose", b.weight("raw", 6, 5), perm=[1, 0])
    left = b.op("Slice", w, b.constant(ints(0)), b.constant(ints(2)), b.constant(ints(1)))
    right = b.op("Slice", w, b.constant(ints(-1)), b.constant(ints(-5)), b.constant(ints(1)), b.constant(ints(-1)))
    w = b.op("Concat", left, right, axis=1)
    norm = b.op("Sqrt", b.op("ReduceSum", b.op("Mul", w, w), b.constant(ints(0)), keepdims=1))
    w = b.op("Div", w, norm)
    x = b.op("MatMul", "input", b.op("Reshape", b.op("Flatten", w, axis=0), b.constant(ints(5, -1))))
    x = b.op("Add", x, b.op("Expand", b.weight("bias", 1), b.constant(ints(6))))
    return b.graph("computed_weights", b.op("Tanh", x), [5], False, [6])


def opset15_shape():
    b = Builder(28)
    x = b.op("Relu", b.conv("input", "conv", 4, 2, (3, 3)))
    target = b.op("Concat", b.op("Shape", x, start=0, end=1), b.constant(ints(-1)), axis=0)
    return b.graph(
        "opset15_shape", b.gemm(b.op("Reshape", x, target, allowzero=1), "fc", 3, 48), [2, 6, 5], True, [3], opset=15
    )


def weights_outside():
    """Saved with weights in another file by onnx_runtime.py."""
    b = Builder(29)
    x = b.op("Relu", b.conv("input", "conv", 4, 2, (3, 3)))
    return b.graph("weights_outside", b.gemm(b.op("Flatten", x), "fc", 3, 48), [2, 6, 5], True, [3], outside=True)


def graphs():
    return [
        make()
        for make in (
            opset7,
            opset8,
            opset9_scales,
            opset10_resize,
            computed_sizes,
            computed_shapes,
            computed_weights,
            opset15_shape,
            weights_outside,
        )
    ]
