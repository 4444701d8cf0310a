"""Builds an ONNX graph node by node, with random weights."""

from dataclasses import dataclass
from typing import List, Optional

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


@dataclass
class Graph:
    name: str
    model: onnx.ModelProto
    input: np.ndarray
    channels_first: bool
    layers: Optional[List[str]] = None  # the expected kinds of Cairn's layers, in order
    names: Optional[List[str]] = None  # some layers' names
    batch_axis: int = 0  # of the input
    out_batch_axis: int = 0
    outside: bool = False  # its weights are to be saved in another file


class Builder:
    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights = [], []

    def weight(self, name, *shape, positive=False):
        values = self.random.uniform(0.5, 1.5, shape) if positive else self.random.uniform(-0.6, 0.6, shape)
        return self.constant(values.astype(np.float32), name)

    def constant(self, values, name=None):
        name = name or f"const_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def op(self, kind, *inputs, outputs=None, name=None, **attributes):
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(
                kind,
                list(inputs),
                outputs or [output],
                name=f"/{kind}_{len(self.nodes)}" if name is None else name,
                **attributes,
            )
        )
        return (outputs or [output])[0]

    def conv(self, x, name, out, of, kernel, bias=True, group=1, **attributes):
        w = self.weight(f"{name}.weight", out, of, *kernel)
        inputs = [x, w] + ([self.weight(f"{name}.bias", out)] if bias else [])
        return self.op("Conv", *inputs, kernel_shape=list(kernel), group=group, **attributes)

    def norm(self, name, channels):
        return [
            self.weight(f"{name}.weight", channels),
            self.weight(f"{name}.bias", channels),
            self.weight(f"{name}.running_mean", channels),
            self.weight(f"{name}.running_var", channels, positive=True),
        ]

    def batch_norm(self, x, name, channels):
        return self.op("BatchNormalization", x, *self.norm(name, channels), epsilon=1e-5, momentum=0.9)

    def gemm(self, x, name, out, of):
        return self.op(
            "Gemm",
            x,
            self.weight(f"{name}.weight", out, of),
            self.weight(f"{name}.bias", out),
            alpha=1.0,
            beta=1.0,
            transB=1,
        )

    def graph(self, name, output, dims, channels_first, out_dims, opset=13, examples=2, ids=0, batch_axis=0, **more):
        kind = TensorProto.INT64 if ids else TensorProto.FLOAT
        x = (
            self.random.integers(0, ids, [examples, *dims])
            if ids
            else self.random.uniform(-1, 1, [examples, *dims]).astype(np.float32)
        )
        x = np.ascontiguousarray(np.moveaxis(x, 0, batch_axis))
        shapes = [["batch", *dims], ["batch", *out_dims]]
        for shape, axis in zip(shapes, (batch_axis, more.get("out_batch_axis", 0))):
            shape.insert(axis, shape.pop(0))
        graph = helper.make_graph(
            self.nodes,
            name,
            [helper.make_tensor_value_info("input", kind, shapes[0])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, shapes[1])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
        model.ir_version = 7
        return Graph(name, model, x, channels_first, batch_axis=batch_axis, **more)
