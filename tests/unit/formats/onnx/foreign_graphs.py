"""Graphs as other programs export them, with random weights: PyTorch's (channels first, torch.onnx's operators and
names) and tf2onnx's (channels last outside, with one Transpose at each end)."""

import numpy as np
from onnx import TensorProto

from graph_builder import Builder


def torch_cnn():
    b = Builder(1)
    x = b.op("Relu", b.conv("input", "conv1", 6, 3, (3, 3), pads=[1, 1, 1, 1], strides=[1, 1], dilations=[1, 1]))
    x = b.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0], ceil_mode=0)
    x = b.op("Relu", b.batch_norm(b.conv(x, "conv2", 4, 6, (3, 3), bias=False), "bn2", 4))
    x = b.op("Flatten", x, axis=1)  # channels, height, width: the rows of fc1 are permuted
    x = b.op("Relu", b.gemm(x, "fc1", 7, 4 * 4 * 2))
    x = b.op("Dropout", x)
    x = b.op("Softmax", b.gemm(x, "fc2", 5, 7), axis=1)
    return b.graph(
        "torch_cnn",
        x,
        [3, 12, 8],
        True,
        [5],
        layers=[
            "input_layer",
            "conv2d",
            "activation",
            "max_pooling2d",
            "conv2d",
            "batch_normalization",
            "activation",
            "flatten",
            "dense",
            "activation",
            "dropout",
            "dense",
            "activation",
        ],
        names=["input", "conv1", "conv2", "bn2", "fc1", "fc2"],
    )


def torch_residual():
    b = Builder(2)
    x = b.op(
        "Relu", b.batch_norm(b.conv("input", "conv1", 8, 3, (7, 7), bias=False, pads=[3] * 4, strides=[2, 2]), "bn1", 8)
    )
    x = b.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = b.op(
        "Relu",
        b.batch_norm(
            b.conv(x, "layer1.0.conv1", 8, 8, (3, 3), bias=False, pads=[1] * 4, strides=[2, 2]), "layer1.0.bn1", 8
        ),
    )
    y = b.batch_norm(b.conv(y, "layer1.0.conv2", 8, 8, (3, 3), bias=False, pads=[1] * 4), "layer1.0.bn2", 8)
    skip = b.batch_norm(
        b.conv(x, "layer1.0.downsample.0", 8, 8, (1, 1), bias=False, strides=[2, 2]), "layer1.0.downsample.1", 8
    )
    x = b.op("Relu", b.op("Add", y, skip))
    x = b.op("Flatten", b.op("GlobalAveragePool", x), axis=1)
    return b.graph(
        "torch_residual",
        b.gemm(x, "fc", 4, 8),
        [3, 32, 32],
        True,
        [4],
        names=["layer1.0.conv1", "layer1.0.downsample.1", "fc"],
    )


def torch_mobile():
    """Depthwise convolutions, ReLU6, squeeze and excitation, and the shape arithmetic of x.view(x.size(0), -1)."""
    b = Builder(3)
    x = b.conv("input", "stem", 6, 2, (3, 3), pads=[1] * 4, strides=[2, 2])
    x = b.op("Clip", x, b.constant(np.float32(0)), b.constant(np.float32(6)))
    x = b.conv(x, "dw", 12, 1, (3, 3), group=6, pads=[1] * 4)
    x = b.op("Mul", x, b.op("Sigmoid", x))  # SiLU
    s = b.op("GlobalAveragePool", x)
    s = b.op("Sigmoid", b.conv(b.op("Relu", b.conv(s, "reduce", 3, 12, (1, 1))), "expand", 12, 3, (1, 1)))
    x = b.op("Mul", x, s)
    batch = b.op("Gather", b.op("Shape", x), b.constant(np.int64(0)), axis=0)
    shape = b.op("Concat", b.op("Unsqueeze", batch, b.constant(np.array([0]))), b.constant(np.array([-1])), axis=0)
    x = b.op("Reshape", x, shape)
    return b.graph("torch_mobile", b.gemm(x, "head", 3, 12 * 4 * 3), [2, 8, 6], True, [3])


def torch_joins():
    b = Builder(4)
    a = b.op("Tanh", b.conv("input", "a", 3, 2, (3, 3), pads=[1] * 4))
    c = b.op("LeakyRelu", b.conv("input", "c", 3, 2, (1, 1)), alpha=0.1)
    x = b.op("Concat", a, c, b.op("Max", a, c), b.op("Mean", a, c), b.op("Sum", a, c, a), axis=1)
    x = b.op("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4, count_include_pad=1)
    x = b.op("Softplus", b.op("Elu", x, alpha=0.7))
    return b.graph("torch_joins", x, [2, 5, 6], True, [15, 5, 6])


def torch_transposed():
    """A small U-Net: strides down, ConvTranspose and Resize up, channels first throughout."""
    b = Builder(5)
    down = b.op("Relu", b.conv("input", "down", 4, 1, (3, 3), pads=[1] * 4, strides=[2, 2]))
    up = b.op(
        "ConvTranspose",
        down,
        b.weight("up.weight", 4, 3, 2, 2),
        b.weight("up.bias", 3),
        kernel_shape=[2, 2],
        strides=[2, 2],
    )
    near = b.op(
        "Resize",
        down,
        "",
        b.constant(np.array([1, 1, 2, 2], np.float32)),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    line = b.op(
        "Resize",
        down,
        "",
        b.constant(np.array([1, 1, 2, 2], np.float32)),
        mode="linear",
        coordinate_transformation_mode="half_pixel",
    )
    x = b.op("Concat", up, near, line, axis=1)
    x = b.op("Pad", x, b.constant(np.array([0, 0, 1, 0, 0, 0, 0, 2])), mode="constant")
    return b.graph("torch_transposed", b.op("Sigmoid", b.conv(x, "out", 1, 11, (1, 1))), [1, 8, 6], True, [1, 9, 8])


def torch_norms():
    """LayerNorm as decomposed in opset 13, on channels last between two transpositions (ConvNeXt); GELU; GroupNorm;
    InstanceNorm."""
    b = Builder(6)
    x = b.op("Transpose", b.conv("input", "stem", 6, 3, (2, 2), strides=[2, 2]), perm=[0, 2, 3, 1])
    mean = b.op("ReduceMean", x, axes=[-1], keepdims=1)
    centered = b.op("Sub", x, mean)
    variance = b.op("ReduceMean", b.op("Pow", centered, b.constant(np.float32(2))), axes=[-1], keepdims=1)
    x = b.op("Div", centered, b.op("Sqrt", b.op("Add", variance, b.constant(np.float32(1e-6)))))
    x = b.op("Add", b.op("Mul", x, b.weight("norm.weight", 6)), b.weight("norm.bias", 6))
    x = b.op("Add", b.op("MatMul", x, b.weight("pw1", 6, 8)), b.weight("pw1.bias", 8))
    erf = b.op("Erf", b.op("Div", x, b.constant(np.float32(np.sqrt(2)))))
    x = b.op("Mul", b.op("Mul", x, b.op("Add", erf, b.constant(np.float32(1)))), b.constant(np.float32(0.5)))
    x = b.op("Transpose", x, perm=[0, 3, 1, 2])
    cut = b.op("Reshape", x, b.constant(np.array([0, 4, -1])))
    cut = b.op(
        "InstanceNormalization",
        cut,
        b.constant(np.ones(4, np.float32)),
        b.constant(np.zeros(4, np.float32)),
        epsilon=1e-5,
    )
    x = b.op("Reshape", cut, b.op("Shape", x))
    x = b.op("Add", b.op("Mul", x, b.weight("gn.weight", 8, 1, 1)), b.weight("gn.bias", 8, 1, 1))
    x = b.op("InstanceNormalization", x, b.weight("in.weight", 8), b.weight("in.bias", 8), epsilon=1e-5)
    x = b.op("ReduceMean", x, axes=[2, 3], keepdims=0)
    return b.graph(
        "torch_norms",
        b.gemm(x, "fc", 3, 8),
        [3, 8, 8],
        True,
        [3],
        layers=[
            "input_layer",
            "conv2d",
            "layer_normalization",
            "dense",
            "activation",
            "group_normalization",
            "group_normalization",
            "global_average_pooling2d",
            "dense",
        ],
    )


def torch_layer_norm_17():
    b = Builder(7)
    x = b.op(
        "LayerNormalization",
        b.gemm("input", "fc1", 6, 4),
        b.weight("ln.weight", 6),
        b.weight("ln.bias", 6),
        axis=-1,
        epsilon=1e-5,
    )
    return b.graph(
        "torch_layer_norm_17",
        b.op("Identity", x),
        [4],
        False,
        [6],
        opset=17,
        layers=["input_layer", "dense", "layer_normalization"],
    )


def torch_flat_batch_norm():
    """A BatchNorm1d on a flattened channels-first value; two such values joined."""
    b = Builder(8)
    x = b.conv("input", "conv", 3, 2, (3, 3))
    flat = b.batch_norm(b.op("Flatten", x, axis=1), "bn", 18)
    other = b.op("Flatten", b.conv("input", "conv2", 2, 2, (3, 3)), axis=1)
    x = b.op("Concat", b.op("Relu", flat), other, axis=1)
    return b.graph("torch_flat_batch_norm", b.gemm(x, "fc", 3, 30), [2, 4, 5], True, [3])


def torch_sequence():
    """[batch, channels, steps]."""
    b = Builder(9)
    x = b.op("Relu", b.conv("input", "conv", 5, 2, (3,), pads=[1, 1]))
    x = b.op("MaxPool", x, kernel_shape=[2], strides=[2])
    x = b.batch_norm(x, "bn", 5)
    x = b.op("Squeeze", b.op("GlobalAveragePool", x), b.constant(np.array([2])))
    return b.graph(
        "torch_sequence",
        b.gemm(x, "fc", 3, 5),
        [2, 8],
        True,
        [3],
        layers=[
            "input_layer",
            "conv1d",
            "activation",
            "max_pooling1d",
            "batch_normalization",
            "global_average_pooling1d",
            "dense",
        ],
    )


def torch_shuffle():
    """ShuffleNet's channel shuffle: a transposition within the channels."""
    b = Builder(10)
    x = b.conv("input", "conv", 6, 1, (3, 3))
    x = b.op("Reshape", x, b.constant(np.array([-1, 2, 3, 4, 4])))
    x = b.op("Reshape", b.op("Transpose", x, perm=[0, 2, 1, 3, 4]), b.constant(np.array([-1, 6, 4, 4])))
    x = b.op("Relu", b.conv(x, "dw", 6, 1, (3, 3), group=6))
    return b.graph("torch_shuffle", b.gemm(b.op("Flatten", x), "fc", 2, 24), [1, 6, 6], True, [2])


def torch_normalized_input():
    """(x / 255 - mean) / std by channel at the beginning, as a separate module."""
    b = Builder(11)
    x = b.op("Div", "input", b.constant(np.float32(255)))
    x = b.op(
        "Div",
        b.op("Sub", x, b.constant(np.array([0.4, 0.5, 0.6], np.float32).reshape(1, 3, 1, 1))),
        b.constant(np.array([0.2, 0.3, 0.25], np.float32).reshape(1, 3, 1, 1)),
    )
    x = b.op("GlobalAveragePool", b.conv(x, "conv", 4, 3, (3, 3)))
    return b.graph(
        "torch_normalized_input",
        b.op("Flatten", x),
        [3, 6, 6],
        True,
        [4],
        layers=["input_layer", "rescaling", "depthwise_conv2d", "conv2d", "global_average_pooling2d"],
    )


def torch_mlp():
    """Pictures of one channel, flattened first."""
    b = Builder(12)
    x = b.op("Relu", b.gemm(b.op("Flatten", "input"), "fc1", 6, 30))
    return b.graph(
        "torch_mlp",
        b.gemm(x, "fc2", 3, 6),
        [1, 5, 6],
        True,
        [3],
        layers=["input_layer", "flatten", "dense", "activation", "dense"],
    )


def tf_cnn():
    """As tf2onnx writes a Keras model: channels last outside, biases by Add, an unfused batch normalization, SAME
    pads."""
    b = Builder(13)
    x = b.op("Transpose", "input", perm=[0, 3, 1, 2], name="transpose_in")
    x = b.op(
        "Conv",
        x,
        b.weight("conv/kernel", 4, 2, 3, 3),
        kernel_shape=[3, 3],
        strides=[2, 2],
        pads=[0, 0, 1, 1],
        name="conv/Conv2D",
    )
    x = b.op("Add", x, b.constant(b.random.uniform(-1, 1, (1, 4, 1, 1)).astype(np.float32)))
    x = b.op("Mul", x, b.constant(b.random.uniform(0.5, 1, (1, 4, 1, 1)).astype(np.float32)))
    x = b.op("Add", x, b.constant(b.random.uniform(-1, 1, (1, 4, 1, 1)).astype(np.float32)))
    x = b.op("Relu", x)
    x = b.op("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1], count_include_pad=0)
    x = b.op("Transpose", x, perm=[0, 2, 3, 1])
    x = b.op("Reshape", x, b.constant(np.array([-1, 48])))
    x = b.op("Add", b.op("MatMul", x, b.weight("dense/kernel", 48, 5)), b.weight("dense/bias", 5))
    return b.graph(
        "tf_cnn",
        b.op("Softmax", x, axis=-1),
        [8, 6, 2],
        False,
        [5],
        layers=["input_layer", "conv2d", "activation", "average_pooling2d", "flatten", "dense", "activation"],
        names=["conv", "dense"],
    )


def tf_text():
    """Integers as input, an embedding, an average over the steps."""
    b = Builder(14)
    x = b.op("Gather", b.weight("embedding/embeddings", 20, 6), b.op("Cast", "input", to=TensorProto.INT64), axis=0)
    x = b.op("ReduceMean", x, axes=[1], keepdims=0)
    x = b.op("Add", b.op("MatMul", x, b.weight("dense/kernel", 6, 3)), b.weight("dense/bias", 3))
    return b.graph(
        "tf_text",
        b.op("Sigmoid", x),
        [7],
        False,
        [3],
        ids=20,
        layers=["input_layer", "embedding", "global_average_pooling1d", "dense", "activation"],
    )


def torch_cut():
    """Slices with negative ends and of one axis, slopes for each channel and one for all, a product of two layers."""
    b = Builder(15)
    x = b.conv("input", "conv", 4, 3, (3, 3))
    x = b.op("PRelu", x, b.weight("prelu.weight", 4, 1, 1))
    x = b.op("Slice", x, *(b.constant(np.array(n)) for n in ([0, 1], [-1, 5], [2, -1])))
    x = b.op("Slice", x, *(b.constant(np.array(n)) for n in ([1], [2**62], [1])))
    x = b.op("PRelu", x, b.weight("all.weight", 1))
    rows = b.op("Reshape", x, b.constant(np.array([0, 3, -1])))
    x = b.op("MatMul", rows, b.op("Transpose", rows, perm=[0, 2, 1]))
    return b.graph("torch_cut", b.op("Flatten", x), [3, 8, 9], True, [9])


def torch_slopes():
    """A slope for each feature of a sequence, which is not permuted."""
    b = Builder(16)
    x = b.op("MatMul", "input", b.weight("first", 5, 6))
    x = b.op("PRelu", x, b.weight("slopes", 6))
    x = b.op("MatMul", x, b.weight("second", 6, 2))
    return b.graph(
        "torch_slopes",
        b.op("Sigmoid", x),
        [4, 5],
        False,
        [4, 2],
        layers=["input_layer", "dense", "p_re_lu", "dense", "activation"],
    )


def torch_pixels():
    """PixelShuffle as PyTorch writes it, by DepthToSpace (CRD) and by Reshape and Transpose; TensorFlow's DepthToSpace
    (DCR) and SpaceToDepth, behind convolutions and at the input."""
    b = Builder(17)
    x = b.op("SpaceToDepth", "input", blocksize=2)
    x = b.conv(x, "conv", 12, 8, (3, 3), pads=[1] * 4)
    crd = b.op("DepthToSpace", x, blocksize=2, mode="CRD")
    dcr = b.op("DepthToSpace", x, blocksize=2)
    shuffled = b.op("Reshape", x, b.constant(np.array([-1, 3, 2, 2, 3, 4])))
    shuffled = b.op("Transpose", shuffled, perm=[0, 1, 4, 2, 5, 3])
    shuffled = b.op("Reshape", shuffled, b.constant(np.array([-1, 3, 6, 8])))
    x = b.op("Concat", crd, dcr, b.op("Tanh", shuffled), axis=1)
    return b.graph("torch_pixels", b.conv(x, "out", 2, 9, (1, 1)), [2, 6, 8], True, [2, 6, 8])


def graphs():
    return [
        make()
        for make in (
            torch_cnn,
            torch_residual,
            torch_mobile,
            torch_joins,
            torch_transposed,
            torch_norms,
            torch_layer_norm_17,
            torch_flat_batch_norm,
            torch_sequence,
            torch_shuffle,
            torch_normalized_input,
            torch_mlp,
            tf_cnn,
            tf_text,
            torch_cut,
            torch_slopes,
            torch_pixels,
        )
    ]
