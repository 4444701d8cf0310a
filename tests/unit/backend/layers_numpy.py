"""Goal: every layer computes what its definition says, forward and backward, on both CPU backends.

The definitions are implemented here a second time, in numpy and float64, from the documentation of Keras and TensorFlow
and the papers, independently of the backends, including shapes, SAME pads and defaults. layers_driver prints models,
values, batches and the backends' results; this script compares loss, prediction, evaluation and every variable's
gradient.

usage: layers_numpy.py PATH/TO/layers_driver
"""

import functools
import json
import subprocess
import sys

import numpy as np

import numpy_axes as axes
import numpy_categories as categories
import numpy_features as features
import numpy_further as further
import numpy_recurrent as recurrent
import numpy_resample as resample
import numpy_tensors as tensors
import numpy_windows as windows
from numpy_common import Variables, activated

try:
    import torch
except ImportError:  # batch_loss_test.cc covers CTC without it
    torch = None

TOLERANCE = {"reference": 2e-6, "onednn": 5e-5}  # relative to a vector's norm; the numbers are passed as float32


LAYERS = {
    "rescaling": further.rescaling,
    "normalization": further.normalization,
    "conv2d": lambda spec, *rest: (axes.conv if spec["groups"] > 1 else windows.conv2d)(spec, *rest),
    "depthwise_conv2d": windows.depthwise_conv2d,
    "batch_normalization": features.batch_normalization,
    "activation": features.activation,
    "activity_regularization": features.reshaped(lambda spec, x: x.shape),
    "max_pooling2d": windows.max_pooling2d,
    "average_pooling2d": windows.average_pooling2d,
    "global_average_pooling1d": recurrent.masked_average(axes.global_average),
    "global_average_pooling2d": axes.global_average,
    "global_average_pooling3d": axes.global_average,
    "global_max_pooling1d": axes.global_max,
    "global_max_pooling2d": axes.global_max,
    "global_max_pooling3d": axes.global_max,
    "add": features.add,
    "concatenate": features.concatenate,
    "flatten": features.reshaped(lambda spec, x: (len(x), -1)),
    "dense": features.dense,
    "dropout": further.noise(further.named_shape),
    "alpha_dropout": further.noise(further.named_shape),
    "gaussian_noise": further.noise(further.named_shape),
    "gaussian_dropout": further.noise(further.named_shape),
    "spatial_dropout1d": further.noise(further.channels),
    "rms_normalization": further.rms_normalization,
    "unit_normalization": further.unit_normalization,
    "attention": further.attention_by(further.luong),
    "additive_attention": further.attention_by(further.bahdanau),
    "einsum_dense": further.einsum_dense,
    "group_query_attention": further.group_query_attention,
    "repeat_vector": further.repeat_vector,
    "zero_padding2d": windows.zero_padding2d,
    "cropping2d": windows.cropping2d,
    "prelu": features.prelu,
    "dot": features.dot,
    "layer_normalization": features.layer_normalization,
    "group_normalization": features.group_normalization,
    "embedding": features.embedding,
    "max_pooling1d": windows.along(windows.max_pooling2d),
    "average_pooling1d": windows.along(windows.average_pooling2d),
    "conv1d": axes.conv,
    "conv3d": axes.conv,
    "depthwise_conv1d": axes.depthwise_conv,
    "separable_conv1d": axes.separable_conv,
    "separable_conv2d": windows.separable_conv2d,
    "conv1d_transpose": axes.conv_transpose,
    "conv2d_transpose": axes.conv_transpose,
    "conv3d_transpose": axes.conv_transpose,
    "max_pooling3d": axes.max_pooling,
    "average_pooling3d": axes.average_pooling,
    "zero_padding1d": axes.zero_padding,
    "zero_padding3d": axes.zero_padding,
    "cropping1d": axes.cropping,
    "cropping3d": axes.cropping,
    "up_sampling1d": axes.up_sampling,
    "up_sampling3d": axes.up_sampling,
    "resizing": resample.resizing,
    "center_crop": resample.center_crop,
    "adaptive_average_pooling1d": resample.adaptive_average,
    "adaptive_average_pooling2d": resample.adaptive_average,
    "adaptive_average_pooling3d": resample.adaptive_average,
    "adaptive_max_pooling1d": resample.adaptive_max,
    "adaptive_max_pooling2d": resample.adaptive_max,
    "adaptive_max_pooling3d": resample.adaptive_max,
    "up_sampling2d": windows.up_sampling2d,
    "spatial_dropout2d": further.noise(further.channels),
    "reshape": features.reshaped(lambda spec, x: (len(x), *spec["target_shape"])),
    "permute": features.permute,
    "multiply": features.multiply,
    "average": features.average,
    "maximum": features.maximum,
    "multi_head_attention": recurrent.masked_attention(features.multi_head_attention),
    "simple_rnn": recurrent.recurrent("simple_rnn"),
    "lstm": recurrent.recurrent("lstm"),
    "gru": recurrent.recurrent("gru"),
    **{kind: recurrent.recurrent(kind) for kind in recurrent.CONV},
    "bidirectional": recurrent.bidirectional,
    "masking": recurrent.masking,
    "time_distributed": lambda spec, xs, v, context: distributed(spec["layer"], xs, v, context),
    "spectral_normalization": lambda spec, xs, v, context: wrapped(spec["layer"], xs, v, context),
    "operation": tensors.operation,
    "reduce": tensors.reduce,
    "slice": tensors.slice_part,
    **{name: getattr(tensors, name) for name in ("stack", "pad", "tile", "take", "one_hot", "top_k", "einsum")},
    **{
        name: getattr(categories, name)
        for name in ("discretization", "category_encoding", "integer_lookup", "hashing", "hashed_crossing")
    },
    "subtract": tensors.subtract,
    "minimum": tensors.minimum,
}


class Within:
    """The variables of a layer inside a layer."""

    def __init__(self, outer, name):
        self.outer, self.name, self.frozen = outer, name, outer.frozen

    def __getitem__(self, name):
        return self.outer[f"{self.name}/{name}"]

    @property
    def values(self):
        head = self.name + "/"
        return {name[len(head) :]: value for name, value in self.outer.values.items() if name.startswith(head)}

    def add(self, name, gradient):
        self.outer.add(f"{self.name}/{name}", gradient)


def wrapped(inner, xs, v, context):
    """Applies a layer with the values that it has: a program of a backend divides no kernel."""
    kind = next(k for k in inner if k in LAYERS)
    return LAYERS[kind](inner[kind], xs, Within(v, inner["name"]), context)


def distributed(inner, xs, v, context):
    """Applies a layer step by step."""
    kind = next(k for k in inner if k in LAYERS)
    spec = dict(inner[kind], axis=[-1]) if kind == "layer_normalization" else inner[kind]  # the only axis of a step
    steps = []
    for s in range(xs[0].shape[1]):
        mask = context["mask"]
        own = dict(context, mask=None if mask is None else mask.reshape(xs[0].shape)[:, s].ravel())
        steps.append(LAYERS[kind](spec, [xs[0][:, s]], Within(v, inner["name"]), own))
    y = np.stack([y for y, _ in steps], axis=1)
    return y, lambda dy: [np.stack([back(dy[:, s])[0] for s, (_, back) in enumerate(steps)], axis=1)]


# ---- models ----


def sparse_crossentropy(outputs, labels, from_logits):
    p = outputs.reshape(len(labels), -1)  # one row for each position of each example
    p, back = activated("SOFTMAX", p) if from_logits else (p / p.sum(axis=-1, keepdims=True), None)
    rows, classes, positions = np.arange(len(p)), labels.astype(int), len(labels) // len(outputs)
    loss = -np.log(p[rows, classes]).sum() / positions
    d = np.zeros_like(p)
    d[rows, classes] = -1 / p[rows, classes] / positions
    if from_logits:
        return loss, back(d).reshape(outputs.shape)
    total = outputs.reshape(len(labels), -1).sum(axis=-1, keepdims=True)
    return loss, ((d - (d * p).sum(axis=-1, keepdims=True)) / total).reshape(outputs.shape)


def mean_squared_error(outputs, labels, _):
    difference = outputs - labels.reshape(outputs.shape)
    each = outputs.size / len(outputs)
    return (difference**2).sum() / each, 2 * difference / each


def ctc(outputs, labels, _):
    """PyTorch's."""
    x = torch.tensor(outputs, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor(labels.reshape(len(outputs), -1), dtype=torch.long)
    steps = torch.full((len(outputs),), outputs.shape[1], dtype=torch.long)
    log_p = torch.log_softmax(x, dim=-1).transpose(0, 1)
    loss = torch.nn.functional.ctc_loss(log_p, targets, steps, (targets != 0).sum(dim=1), reduction="sum")
    loss.backward()
    return loss.item(), x.grad.numpy()


def masked(loss, mask, outputs, labels, from_logits):
    """Masked steps do not count; the others are divided by the whole batch: Keras' sum_over_batch_size."""
    if not mask.any():
        return 0.0, np.zeros_like(outputs)
    labels = labels.reshape(*mask.shape, -1)[mask].ravel()
    share = len(outputs) / mask.sum()
    value, d = loss(outputs[mask], labels, from_logits)
    gradient = np.zeros_like(outputs)
    gradient[mask] = d * share
    return value * share, gradient


LOSSES = {"SPARSE_CATEGORICAL_CROSSENTROPY": sparse_crossentropy, "MEAN_SQUARED_ERROR": mean_squared_error}
if torch is not None:
    LOSSES["CTC"] = ctc


def activity_penalty(node, y):
    """The penalty on a layer's outputs, summed over the examples, with its gradient."""
    spec = node["layer"][node["type"]]
    spec = spec if node["type"] == "activity_regularization" else spec.get("activity_regularizer")
    if spec is None:
        return 0, 0
    return spec["l1"] * np.abs(y).sum() + spec["l2"] * (y**2).sum(), spec["l1"] * np.sign(y) + 2 * spec["l2"] * y


def run(case, training):
    """Returns the output, the loss and, for a training step, the gradient of the whole parameter space."""
    nodes = case["model"]
    inputs = np.array(case["inputs"], dtype=np.float64).reshape(case["examples"], -1)
    outputs, variables, backwards, step_masks = [], [], [], {-1: None}
    for i, node in enumerate(nodes):
        if node["type"] == "input":  # its columns of each example
            columns = int(np.prod(node["output"]))
            outputs.append(inputs[:, :columns].reshape(case["examples"], *node["output"]))
            inputs = inputs[:, columns:]
            variables.append(None)
            backwards.append(None)
            continue
        # A layer that shares another's variables adds to the same gradients.
        variables.append(variables[node["shares"]] if node["shares"] >= 0 else Variables(case, i))
        mask, offsets = case["masks"].get(str(i)), case["offsets"].get(str(i))
        context = {
            "training": training and node["layer"].get("training", True),
            "mask": None if mask is None else np.array(mask),
            "step_masks": [step_masks[nodes[k]["mask"]] for k in node["inputs"]],
            "offsets": None if offsets is None else np.array(offsets),
        }
        y, backward = LAYERS[node["type"]](
            node["layer"][node["type"]], [outputs[k] for k in node["inputs"]], variables[i], context
        )
        assert (
            list(y.shape[1:]) == node["output"]
        ), f"{case['name']}: {node['type']} gives {y.shape}, not {node['output']}"
        outputs.append(y)
        backwards.append(backward)
        step_masks[i] = recurrent.made_mask(node["type"], node["layer"][node["type"]], outputs[node["inputs"][0]])
    of_loss, mask = LOSSES[case["loss"]], step_masks[nodes[-1]["mask"]]
    if mask is not None:
        of_loss = functools.partial(masked, of_loss, mask)
    loss, gradient = of_loss(outputs[-1], np.array(case["labels"]), case["from_logits"])
    penalties = [activity_penalty(node, y) for node, y in zip(nodes, outputs)]
    loss += sum(penalty for penalty, _ in penalties)
    if not training:
        return outputs[-1], loss, None
    gradients = [np.zeros_like(y) for y in outputs]
    gradients[-1] = gradient
    gradients = [g + own for g, (_, own) in zip(gradients, penalties)]
    for i in range(len(nodes) - 1, 0, -1):
        if nodes[i]["type"] == "input":
            continue
        for k, dx in zip(nodes[i]["inputs"], backwards[i](gradients[i])):
            gradients[k] = gradients[k] + dx
    space = np.zeros(len(case["values"]))
    for v in case["variables"]:
        own = variables[v["node"]].gradients[v["name"].split("/", 1)[1]].ravel()
        space[v["offset"] : v["offset"] + len(own)] = own
    return outputs[-1], loss, space


def compare(case):
    """Returns sentences about the differences."""
    _, loss, space = run(case, training=True)
    predictions, evaluated, _ = run(case, training=False)
    faults = []

    def check(backend, what, actual, expected, floor=0.0):
        actual, expected = np.asarray(actual, dtype=np.float64).ravel(), np.asarray(expected).ravel()
        if actual.shape != expected.shape or not np.isfinite(actual).all():
            faults.append(f"{case['name']}, {backend}: {what} is not finite or has {actual.size} numbers")
            return
        distance, norm = np.linalg.norm(actual - expected), np.linalg.norm(expected)
        if distance > TOLERANCE[backend] * max(norm, floor) + 1e-9:
            faults.append(f"{case['name']}, {backend}: {what} differs by {distance:.3g} of {norm:.3g}")

    for backend, result in case["backends"].items():
        check(backend, "the loss", result["loss"], loss)
        check(backend, "the loss of evaluation", result["evaluated_loss"], evaluated)
        check(backend, "the prediction", result["predictions"], predictions)
        for v in case["variables"]:
            part = slice(v["offset"], v["offset"] + int(np.prod(v["shape"])))
            # A gradient that cancels out is only as exact as its terms.
            check(
                backend,
                "the gradient of " + v["name"],
                result["gradients"][part],
                space[part],
                0.03 * np.linalg.norm(space),
            )
    return faults


def main():
    driver = subprocess.run([sys.argv[1]], stdout=subprocess.PIPE, check=True, timeout=300)
    compared, types, faults = 0, set(), []
    for line in driver.stdout.splitlines():
        case = json.loads(line)
        if case["loss"] not in LOSSES:
            continue  # loss_test.cc covers those
        faults += compare(case)
        compared += 1
        types |= {node["type"] for node in case["model"]}
    missing = set(LAYERS) - types
    if missing:
        faults.append(f"no case has {sorted(missing)}")
    if compared < 100:
        faults.append(f"only {compared} models were compared")
    for fault in faults:
        print(fault)
    print(f"{compared} models of {len(types)} types of layers compared, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
