"""docs/python.md: every snippet of Python, in its order, in one program; and the scripts and the notebook of
examples/python at small size. Where Keras is not installed, objects like Keras' take its place (keras_like.py).
"""

import importlib.util
import json
import os
import re
import runpy
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

import keras_like  # noqa: E402
from cluster import BIN, SOURCE, check  # noqa: E402
from keras_files import read_keras  # noqa: E402

SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.M | re.S)


def install_keras():
    try:
        import keras  # noqa: F401
    except ImportError:
        keras = keras_like.module(read_keras)
        sys.modules["keras"], sys.modules["keras.models"] = keras, keras.models
        print("Keras is not installed: objects like Keras' take its place", flush=True)


def lacks(module):
    found = importlib.util.find_spec(module)
    if found is None:
        print(f"skipped: {module} is not installed", flush=True)
    return found is None


def run_guide():
    path = os.path.join(SOURCE, "docs/python.md")
    with open(path, encoding="utf-8") as file:
        text = file.read()
    snippets = list(SNIPPET.finditer(text))
    check(len(snippets) >= 8, f"{path} has {len(snippets)} snippets")
    names = {}
    for snippet in snippets:
        line = text[: snippet.start(1)].count("\n")
        print(f"---- line {line + 1}", flush=True)
        if "import torch" in snippet.group(1) and lacks("torch"):
            continue
        exec(compile("\n" * line + snippet.group(1), path, "exec"), names)
    check(len(names["job"].history["val_accuracy"]) == 2 if names["client"]._local else True, "a history of two epochs")
    check(names["probabilities"].shape[1] == 10, "probabilities of ten classes")
    check(os.path.getsize("glyphs.keras") > 1000, "an exported model")


def run_example(name, *flags):
    print(f"---- {name}", flush=True)
    sys.argv = [name, *flags]
    runpy.run_path(os.path.join(SOURCE, "examples/python", name), run_name="__main__")


def run_notebook(name):
    """Its cells of code, in their order, in one program."""
    print(f"---- {name}", flush=True)
    path = os.path.join(SOURCE, "examples/python", name)
    with open(path, encoding="utf-8") as file:
        cells = [cell for cell in json.load(file)["cells"] if cell["cell_type"] == "code"]
    check(len(cells) >= 4, f"{path} has {len(cells)} cells of code")
    names = {}
    for number, cell in enumerate(cells):
        check(cell["outputs"] == [], f"{path}: cell {number} has outputs; clear them")
        exec(compile("".join(cell["source"]), f"{name}, cell {number}", "exec"), names)
    return names


def main():
    os.environ.pop("CAIRN_COORDINATOR", None)
    install_keras()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.symlink(os.path.join(SOURCE, "examples"), "examples")
        make = [f"{BIN}/cairn", "data", "make", "glyphs", "data/glyphs", "--count", "600", "--test-count", "100"]
        subprocess.run(make, check=True)
        run_guide()
        run_example("submit_job.py", "data/glyphs", "--epochs", "1", "--output", "example.keras")
        check(os.path.getsize("example.keras") > 1000, "the example's model")
        run_example("fit_arrays.py", "--examples", "300", "--epochs", "3")
        trained = run_notebook("fit_arrays.ipynb")["accuracy"]
        check(trained > 0.8, f"the notebook's model: val_accuracy {trained}")
        os.chdir("/")


if __name__ == "__main__":
    main()
