"""Predictions and evaluations on a real cluster: the outputs agree with the evaluation, even if a worker is killed;
weights of checkpoints and files, other data, and what is rejected."""

import gzip
import json
import os
import struct
import subprocess
import tempfile

from cluster import BIN, Cluster, check
from jobs import make_glyphs, small_job


def read_npy(path):
    with open(path, "rb") as f:
        data = f.read()
    check(data[:8] == b"\x93NUMPY\x01\x00", data[:8])
    (length,) = struct.unpack("<H", data[8:10])
    header = eval(data[10 : 10 + length].decode())  # a Python literal, as in NumPy's own reader and writer
    check(header["descr"] == "<f4" and not header["fortran_order"], header)
    count = 1
    for side in header["shape"]:
        count *= side
    check(len(data) == 10 + length + 4 * count, f"{len(data)} bytes, {header}")
    return header["shape"], struct.unpack(f"<{count}f", data[10 + length :])


def labels(data, count):
    with gzip.open(f"{data}/t10k-labels-idx1-ubyte.gz", "rb") as f:
        return list(f.read()[8 : 8 + count])


def accuracy(shape, outputs, truth):
    check(shape == (len(truth), 10), shape)
    rows = [outputs[i * 10 : i * 10 + 10] for i in range(len(truth))]
    return sum(row.index(max(row)) == label for row, label in zip(rows, truth)) / len(truth)


def refused(c, text, *args, code=2):
    done = c.cairn(*args, ok=False)
    check(
        done.returncode == code and done.stderr == f"cairn: {text}\n",
        f"{args}: exit {done.returncode}: {done.stderr}\nwanted: {text}",
    )


def main():
    with tempfile.TemporaryDirectory(prefix="cairn-predict-") as directory:
        data = make_glyphs(directory)
        with Cluster(ps=1, workers=2) as c:
            checkpoints = f"{directory}/run"
            job = small_job(directory, data, epochs=2)
            first = c.submit(
                job, {"checkpoints.dir": checkpoints, "checkpoints.every_epochs": 1, "checkpoints.keep_max": 5}
            )
            c.wait(first)
            said = c.evaluate(first)
            truth = labels(data, 400)

            # The outputs, in every format, are those that the evaluation counted.
            out = f"{directory}/out.npy"
            c.cairn("predict", first, "-o", out)
            shape, outputs = read_npy(out)
            check(abs(accuracy(shape, outputs, truth) - said["accuracy"]) < 1e-9, said)
            c.cairn("predict", first, "--split", "test", "-o", f"{directory}/out.csv")
            with open(f"{directory}/out.csv") as f:
                lines = f.read().splitlines()
            header = "example," + ",".join(f"output_{i}" for i in range(10)) + ",input"
            check(lines[0] == header and len(lines) == 401, lines[0])
            row = [float(x) for x in lines[400].split(",")]
            check(
                row[0] == row[-1] == 399
                and [struct.unpack("f", struct.pack("f", x))[0] for x in row[1:-1]] == list(outputs[-10:]),
                row,
            )
            rows = [
                json.loads(line) for line in c.cairn("predict", first, "--classes", as_json=True).stdout.splitlines()
            ]
            check([r["example"] for r in rows] == list(range(400)), "in order")
            right = sum(int(r["class"]) == label for r, label in zip(rows, truth)) / 400
            check(abs(right - said["accuracy"]) < 1e-9, f"{right}, {said}")

            # Weights of a checkpoint directory (the newest one), of one of the checkpoints, and of a file.
            check(c.evaluate_with(first, "--weights", checkpoints)["loss"] == said["loss"], "the newest is the last")
            older = sorted(d for d in os.listdir(checkpoints) if d.startswith("step-"))[0]
            check(
                c.evaluate_with(first, "--weights", f"{checkpoints}/{older}")["loss"] != said["loss"],
                "another checkpoint",
            )
            c.cairn("export", first, "-o", f"{directory}/w.safetensors")
            check(c.evaluate_with(first, "--weights", f"{directory}/w.safetensors")["loss"] == said["loss"], "the file")
            # Other data.
            other = f"{directory}/other"
            subprocess.run(
                [
                    os.path.join(BIN, "cairn"),
                    "data",
                    "make",
                    "glyphs",
                    other,
                    "--count",
                    "300",
                    "--test-count",
                    "50",
                    "--seed",
                    "2",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            check(c.evaluate_with(first, "--data", other)["examples"] == 50, "other data")
            c.cairn("predict", first, "--data", other, "--weights", checkpoints, "-o", out)
            shape, outputs = read_npy(out)
            said = c.evaluate_with(first, "--data", other)
            check(abs(accuracy(shape, outputs, labels(other, 50)) - said["accuracy"]) < 1e-9, said)

            refused(
                c,
                "-o o.txt: the extension selects the format; use .csv, .npy or .jsonl",
                "predict",
                first,
                "-o",
                "o.txt",
            )
            refused(c, "--split tset: is not one of train, validation, test", "predict", first, "--split", "tset")
            refused(
                c,
                f"--weights no.safetensors: there is no {c.dir}/no.safetensors here; "
                "give the absolute path, as the workers see it",
                "evaluate",
                first,
                "--weights",
                "no.safetensors",
            )
            refused(
                c, "--classes: names do not fit into .npy; use .csv or .jsonl", "predict", first, "--classes", "-o", out
            )
            done = c.cairn("evaluate", first, "--weights", "/nowhere/w.txt", ok=False)
            check(": weights: /nowhere/w.txt: is neither a checkpoint's directory nor a " in done.stderr, done.stderr)
            done = c.cairn("evaluate", first, "--data", "/nowhere/data", ok=False)
            check(done.returncode == 2 and "/nowhere/data" in done.stderr, done.stderr)

            # A worker is killed while the outputs arrive; the caller reads slowly at first. Nothing arrives twice.
            many = f"{directory}/many"
            subprocess.run(
                [
                    os.path.join(BIN, "cairn"),
                    "data",
                    "make",
                    "glyphs",
                    many,
                    "--count",
                    "20000",
                    "--test-count",
                    "10",
                    "--seed",
                    "3",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            argv = [
                os.path.join(BIN, "cairn"),
                "--coordinator",
                c.address,
                "predict",
                first,
                "--data",
                many,
                "--split",
                "train",
            ]
            with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as predict:
                lines = [predict.stdout.readline() for _ in range(10)]
                c.kill("worker-0")
                lines += predict.stdout.read().splitlines()
                check(predict.wait() == 0, "predict fails")
            cells = [line.rstrip("\n").split(",") for line in lines[1:]]
            check([int(row[0]) for row in cells] == list(range(20000)), "each example once, in order")
            check(all(row[0] == row[-1] for row in cells), "each with its own input")


if __name__ == "__main__":
    main()
