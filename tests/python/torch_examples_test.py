"""Goal: the PyTorch examples of examples/python train.

    torch_examples_test.py            at small size, on data that are made here
    torch_examples_test.py accuracy   torch_lenet.py as it stands, on Fashion-MNIST: 2 epochs, at least 0.895

The second is skipped without the data (CAIRN_DATA, or ../shared/data).
"""

import gzip
import os
import runpy
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

try:
    import torch
except ImportError as lacks:
    print(f"skipped: {lacks} (Debian: apt-get install python3-torch)")
    sys.exit(77)

from cluster import SOURCE, check, data_dir  # noqa: E402

ACCURACY = 0.895


def example(name, *flags):
    """The job of an example."""
    print(f"---- {name} {' '.join(flags)}", flush=True)
    sys.argv = [name, *flags]
    return runpy.run_path(os.path.join(SOURCE, "examples/python", name), run_name="example")["main"]()


def write_idx(path, array):
    with gzip.open(path, "wb") as file:
        file.write(bytes([0, 0, 8, array.dim()]) + b"".join(side.to_bytes(4, "big") for side in array.shape))
        file.write(array.to(torch.uint8).numpy().tobytes())


def make_pictures(folder):
    """Ten patterns with noise, in the four files of MNIST."""
    generator = torch.Generator().manual_seed(1)
    patterns = torch.randint(0, 128, (10, 28, 28), generator=generator)
    for split, count in (("train", 640), ("t10k", 128)):
        labels = torch.randint(0, 10, (count,), generator=generator)
        noise = torch.randint(0, 128, (count, 28, 28), generator=generator)
        write_idx(f"{folder}/{split}-images-idx3-ubyte.gz", patterns[labels] + noise)
        write_idx(f"{folder}/{split}-labels-idx1-ubyte.gz", labels)


def check_small(folder):
    make_pictures(folder)
    job = example("torch_lenet.py", folder, "--epochs", "3", "--replicas", "2")
    check(job.history["val_accuracy"][-1] > 0.9, f"{job.history}")
    job = example("torch_resnet.py", "--side", "16", "--width", "8", "--examples", "256", "--epochs", "4")
    check(job.history["loss"][-1] < job.history["loss"][0], f"{job.history}")
    small = ["--width", "32", "--blocks", "2", "--context", "32", "--epochs", "2", "--write", "20"]
    job = example("torch_gpt.py", os.path.join(SOURCE, "docs/programs.md"), *small)
    check(job.history["val_loss"][-1] < job.history["val_loss"][0] < 4.5, f"{job.history}")


def check_accuracy():
    data = data_dir()
    if data is None or not os.path.isdir(f"{data}/fashion-mnist"):
        print("SKIPPED: no Fashion-MNIST (set CAIRN_DATA)")
        sys.exit(77)
    got = example("torch_lenet.py", f"{data}/fashion-mnist").history["val_accuracy"][-1]
    check(got >= ACCURACY, f"accuracy {got}, wanted {ACCURACY}")


def main():
    os.environ.pop("CAIRN_COORDINATOR", None)
    torch.set_num_threads(1)
    if sys.argv[1:] == ["accuracy"]:
        check_accuracy()
        return
    with tempfile.TemporaryDirectory() as folder:
        check_small(folder)


if __name__ == "__main__":
    main()
    print("ok")
