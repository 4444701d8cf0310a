"""Goal: Cairn's ONNX files are valid, and other programs compute the same from them as Cairn does. Files of other
programs can be imported and compute the same.

Every file of `onnx_driver export` passes onnx's own checker and shape inference, and is computed by onnxruntime (if npm
can fetch it) and by onnx_numpy.py; both are compared with the reference backend's outputs. Then graphs as PyTorch and
tf2onnx export them, made with onnx.helper (foreign_graphs.py, choice_graphs.py, ...): Cairn reads them, and predicts
what onnxruntime and numpy compute from the originals.

    onnx_runtime.py PATH/TO/onnx_driver
"""

import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx

import choice_graphs
import foreign_graphs
import old_graphs
import onnx_numpy
import recurrent_graphs
from ort import Onnxruntime

TOLERANCE = 1e-5  # relative to a vector's norm; the promise is 1e-4


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")


def distance(a, b):
    a, b = np.asarray(a, np.float64).ravel(), np.asarray(b, np.float64).ravel()
    check(a.shape == b.shape, f"{a.shape} and {b.shape} numbers")
    return np.linalg.norm(a - b) / (np.linalg.norm(b) + 1e-3)


def check_file(path):
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    onnx.shape_inference.infer_shapes(model, strict_mode=True)
    check(model.opset_import[0].version == 13 and model.producer_name == "cairn", path)
    check(model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch", f"{path}: the batch is not dynamic")
    return model


def compare(name, wanted, by_numpy, by_runtime):
    check(distance(by_numpy, wanted) < TOLERANCE, f"{name}: numpy differs by {distance(by_numpy, wanted):.2g}")
    if by_runtime is not None:
        check(
            distance(by_runtime, wanted) < TOLERANCE,
            f"{name}: onnxruntime differs by {distance(by_runtime, wanted):.2g}",
        )


def runtime_outputs(runtime, wanted):
    return runtime.run(wanted) if runtime else [None] * len(wanted)


def exported_files(driver, runtime, folder):
    subprocess.run([driver, "export", folder], check=True)
    names = sorted(f for f in os.listdir(folder) if f.endswith(".onnx"))
    check(len(names) > 150, f"only {len(names)} files")
    models, inputs, expected = [], [], []
    for name in names:
        case = os.path.join(folder, name.removesuffix(".onnx").removesuffix(".folded"))
        model = check_file(os.path.join(folder, name))
        dims = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim][1:]
        models.append(model)
        inputs.append(np.fromfile(case + ".input", np.float32).reshape([-1] + dims))
        expected.append(np.fromfile(case + ".expected", np.float32))
    ran = runtime_outputs(runtime, [(os.path.join(folder, name), x) for name, x in zip(names, inputs)])
    for name, model, x, wanted, y in zip(names, models, inputs, expected, ran):
        compare(name, wanted, onnx_numpy.run(model, x), y)
    return len(names)


def channels_last(x, graph):
    """For values of the input's rank; a reshaped value stays as in the graph. The batch comes first in all of them."""
    x = np.moveaxis(x, graph.batch_axis if x is graph.input else graph.out_batch_axis, 0)
    return x.transpose([0, *range(2, x.ndim), 1]) if graph.channels_first and x.ndim == graph.input.ndim > 2 else x


def imported_graphs(driver, runtime, folder):
    graphs = foreign_graphs.graphs() + choice_graphs.graphs() + old_graphs.graphs() + recurrent_graphs.graphs()
    paths = [os.path.join(folder, f"{g.name}.onnx") for g in graphs]
    for graph, path in zip(graphs, paths):
        onnx.checker.check_model(graph.model, full_check=True)
        if graph.outside:  # save() moves the weights out of its model
            outside = {"save_as_external_data": True, "location": f"{graph.name}.bin", "size_threshold": 0}
            onnx.save(onnx.ModelProto.FromString(graph.model.SerializeToString()), path, **outside)
        else:
            onnx.save(graph.model, path)
    ran = runtime_outputs(runtime, [(path, g.input) for path, g in zip(paths, graphs)])
    for graph, path, y in zip(graphs, paths, ran):
        # Channels last for Cairn if the graph has them first; the same for its output.
        channels_last(graph.input, graph).astype(np.float32).tofile(path + ".in")
        done = subprocess.run(
            [driver, "import", path, path + ".in", path + ".out", str(graph.input.shape[graph.batch_axis])],
            capture_output=True,
            text=True,
        )
        check(done.returncode == 0, f"{graph.name}: {done.stdout} {done.stderr}")
        ours = np.fromfile(path + ".out", np.float32)
        wanted = channels_last(onnx_numpy.run(graph.model, graph.input), graph)
        compare(graph.name, ours, wanted, None if y is None else channels_last(y, graph))
        kinds = [layer.rsplit(":", 1)[1] for layer in done.stdout.split()]
        check(graph.layers is None or kinds == graph.layers, f"{graph.name}: layers {done.stdout}")
        check(
            graph.names is None or set(graph.names) <= {layer.rsplit(":", 1)[0] for layer in done.stdout.split()},
            f"{graph.name}: {done.stdout}",
        )
    return len(graphs)


def main():
    driver = sys.argv[1]
    runtime, why = Onnxruntime.find()
    with tempfile.TemporaryDirectory() as folder:
        exported = exported_files(driver, runtime, folder)
    with tempfile.TemporaryDirectory() as folder:
        imported = imported_graphs(driver, runtime, folder)
    print(
        f"{exported} files written, {imported} graphs read; "
        + ("onnxruntime and numpy agree" if runtime else f"numpy agrees; SKIPPED onnxruntime: {why}")
    )


if __name__ == "__main__":
    main()
