"""onnxruntime from npm, cached in the folder .cache/onnxruntime of the tree, or $CAIRN_ONNXRUNTIME.

    runtime = Onnxruntime.find()          # None and the reason if npm is missing or the network is not reachable
    outputs = runtime.run([(path, x), ...])
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy as np

SOURCE = os.environ.get("CAIRN_SOURCE", os.path.abspath(os.path.join(os.path.dirname(__file__), "../../../..")))
sys.path.insert(0, os.path.join(SOURCE, "tests", "integration"))
from npm_packages import install  # noqa: E402

PACKAGE = "onnxruntime-node@1.20.1"
RUN_JS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx_run.js")


class Onnxruntime:
    def __init__(self, folder):
        self.folder = folder

    @staticmethod
    def find():
        """(the runtime, "") or (None, the reason why there is none)."""
        folder = os.environ.get("CAIRN_ONNXRUNTIME", os.path.join(SOURCE, ".cache", "onnxruntime"))
        if shutil.which("node") is None:
            return None, "node is not installed"
        # The package contains the library for Linux; its install scripts would download one for GPUs.
        why = install(PACKAGE, folder)
        if why:
            return None, why
        tried = subprocess.run(
            ["node", "-e", "require('onnxruntime-node')"], cwd=folder, capture_output=True, text=True
        )
        return (
            (Onnxruntime(folder), "")
            if tried.returncode == 0
            else (None, f"onnxruntime does not load: {tried.stderr.strip()[-300:]}")
        )

    def run(self, wanted):
        """Maps [(path of a model, input)] to the outputs, all in one process."""
        with tempfile.TemporaryDirectory() as work:
            jobs = []
            for i, (path, x) in enumerate(wanted):
                kind = "int64" if x.dtype == np.int64 else "float32"
                x.astype(kind).tofile(os.path.join(work, f"{i}.in"))
                jobs.append(
                    {
                        "model": os.path.abspath(path),
                        "input": os.path.join(work, f"{i}.in"),
                        "type": kind,
                        "dims": list(x.shape),
                        "output": os.path.join(work, f"{i}.out"),
                    }
                )
            listed = os.path.join(work, "jobs.json")
            with open(listed, "w") as f:
                json.dump(jobs, f)
            done = subprocess.run(["node", RUN_JS, self.folder, listed], capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stderr
            shapes = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
            return [np.fromfile(job["output"], np.float32).reshape(shape) for job, shape in zip(jobs, shapes)]
