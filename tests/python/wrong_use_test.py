"""Wrong use, each with the exception and the whole text that it gives: mistakes that are seen in this process raise
TypeError or ValueError naming the argument, those that the coordinator sees a cairn.Error with its sentence.
"""

import os
import sys
import tempfile
from pathlib import Path

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import check, free_port  # noqa: E402
from wrong_fit import FIT, X, Y  # noqa: E402

import cairn  # noqa: E402

FOLDER = tempfile.mkdtemp(prefix="cairn-wrong-")
CSV = os.path.join(FOLDER, "data.csv")
GOOD = (
    """
name: "good"
model { layers { input { shape: [2] } } layers { dense { units: 3 activation: SOFTMAX } } }
data { path: "%s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { sgd { } }
batch_size: 4
"""
    % CSV
)
CLOSED_PORT = free_port()


def write(name, data):
    path = os.path.join(FOLDER, name)
    Path(path).write_bytes(data)
    return path


class Places:
    """What the cases need: a local cluster, one that counts as somebody else's, and a job that has ended."""

    def __init__(self):
        self.here = cairn.Client()
        self.there = cairn.Client(self.here.address)
        self.job = self.here.submit(GOOD)
        self.job.wait(progress=False)
        os.environ.pop("CAIRN_TLS_DIR", None)


# What is wrong -> (what is called, the exception, its text; ADDRESS and FOLDER stand for those of the test)
CLIENT = [
    (lambda p: cairn.Client(7070), TypeError, "address: is an int; give a string"),
    (lambda p: cairn.Client(""), ValueError, "address: is empty"),
    (lambda p: cairn.Client("host"), ValueError, 'address: "host" is not HOST:PORT'),
    (lambda p: cairn.Client("a:1,b:x"), ValueError, 'address: "b:x": the port is "x"; give 1 to 65535'),
    (lambda p: cairn.Client("a:1,b:70700"), ValueError, 'address: "b:70700": the port is "70700"; give 1 to 65535'),
    (lambda p: cairn.Client(",".join(["a:1"] * 17)), ValueError, "address: 17 addresses, at most 16"),
    (lambda p: cairn.Client("a:1", ca=CSV), ValueError, "cert: is missing; TLS takes ca, cert and key"),
    (lambda p: cairn.Client("a:1", ca=CSV, cert=CSV, key="/none"), ValueError, "key: /none cannot be read"),
    (lambda p: cairn.Client("a:1", ca=1, cert=CSV, key=CSV), TypeError, "ca: is an int; give the path of a file"),
    (
        lambda p: cairn.Client(ca=CSV, cert=CSV, key=CSV),
        ValueError,
        "ca, cert, key: a local cluster speaks plain gRPC; give an address, or leave them out",
    ),
    (
        lambda p: cairn.Client("a:1", timeout=0),
        ValueError,
        "timeout: is 0; give more than 0 seconds, or None to wait without a limit",
    ),
    (lambda p: cairn.Client("a:1", timeout="x"), TypeError, "timeout: is a str; give a number"),
    (
        lambda p: cairn.Client(f"127.0.0.1:{CLOSED_PORT}").jobs(),
        cairn.Unreachable,
        f"cannot reach the coordinator at 127.0.0.1:{CLOSED_PORT} (connection refused); is it running? Start a cluster "
        "with `cairn up`, or make cairn.Client() without an address",
    ),
    (lambda p: p.here.job(0), ValueError, "job: 0 is not a job's number; they count from 1"),
    (lambda p: p.here.job(""), ValueError, "job: is empty"),
    (lambda p: p.here.job(None), TypeError, "job: is None; give a job's number or name"),
    (lambda p: p.here.job(99), cairn.NotFound, "there is no job 99"),
    (lambda p: p.here.job("nobody"), cairn.NotFound, 'there is no job named "nobody"'),
    (lambda p: p.here.drain(3), TypeError, "node: is an int; give a string"),
    (lambda p: p.here.drain("ps-0", undo=1), TypeError, "undo: is an int; give True or False"),
    (
        lambda p: cairn.Torch,
        AttributeError,
        f"module 'cairn' has no attribute 'Torch'; it has {', '.join(cairn.__all__)}",
    ),
]
SUBMIT = [
    (
        lambda p: p.here.submit(5),
        TypeError,
        "job: is an int; give the path of a job file, its text, a dict or a cairn.v1 JobSpec",
    ),
    (
        lambda p: p.here.submit(""),
        ValueError,
        "job: is empty; give the path of a job file, its text, a dict or a JobSpec",
    ),
    (
        lambda p: p.here.submit("/none.textproto"),
        FileNotFoundError,
        "[Errno 2] No such file or directory: '/none.textproto'",
    ),
    (lambda p: p.here.submit(FOLDER), IsADirectoryError, "FOLDER: is a directory; name the job file in it"),
    (
        lambda p: p.here.submit(write("latin.textproto", b'name: "a"\nmodel { name: "\xe9" }')),
        ValueError,
        "FOLDER/latin.textproto:2: is not UTF-8; save the file as UTF-8",
    ),
    (
        lambda p: p.here.submit(write("typo.textproto", b"\nmodle {}\n")),
        ValueError,
        'FOLDER/typo.textproto:2:1: Message type "cairn.v1.JobSpec" has no field named "modle"; did you mean "model"?',
    ),
    (
        lambda p: p.here.submit("strategy: FAST\n"),
        ValueError,
        "job:1:11: 'strategy: FAST': Enum type \"cairn.v1.Strategy\" has no value named FAST; use one of MIRRORED, "
        "MULTI_WORKER_MIRRORED, PARAMETER_SERVER, CENTRAL_STORAGE",
    ),
    (
        lambda p: p.here.submit({"optimiser": "adam"}),
        ValueError,
        'job[\'optimiser\']: JobSpec has no field "optimiser"; did you mean "optimizer"?',
    ),
    (lambda p: p.here.submit(GOOD, set=["epochs"]), TypeError, "set: is a list; give a dict of fields and values"),
    (lambda p: p.here.submit(GOOD, set={1: 2}), TypeError, "set: a field is named by a string, not by an int"),
    (lambda p: p.here.submit(GOOD, set={"epochs": "many"}), TypeError, "set['epochs']: is a str; give a whole number"),
    (
        lambda p: p.here.submit(GOOD, set={"epochs": 2**40}),
        ValueError,
        "set['epochs']: is 1099511627776; give -2147483648 to 2147483647",
    ),
    (lambda p: p.here.submit(GOOD, set={"fsync": 1}), TypeError, "set['fsync']: is an int; give True or False"),
    (
        lambda p: p.here.submit(GOOD, set={"optimizer": "lamp"}),
        ValueError,
        "set['optimizer']: \"lamp\" is not one of sgd, adagrad, rmsprop, adam, adamw, adadelta, adamax, nadam, ftrl, "
        "lion, lamb, adafactor, muon, schedule_free_adamw",
    ),
    (
        lambda p: p.here.submit(GOOD, set={"optimizer": 3}),
        TypeError,
        "set['optimizer']: is an int; Optimizer takes a dict of its fields",
    ),
    (
        lambda p: p.here.submit(GOOD, set={"model.layers.dense": {}}),
        ValueError,
        "set['model.layers.dense']: layers is a list; say which element: layers[0], or layers[..] to append one",
    ),
    (
        lambda p: p.here.submit(GOOD, set={"model.layers[7].dense.units": 3}),
        ValueError,
        "set['model.layers[7].dense.units']: layers[7] does not exist: the last one is layers[1]; write layers[..] to "
        "append",
    ),
    (
        lambda p: p.here.submit(GOOD, set={"metrics[0].k": 3}),
        ValueError,
        "set['metrics[0].k']: metrics is empty; write metrics[..] to append",
    ),
    (
        lambda p: p.here.submit(GOOD, set={"epochs.x": 3}),
        ValueError,
        "set['epochs.x']: epochs is not a message; nothing lies below it",
    ),
    (
        lambda p: p.here.submit(GOOD, set={"epochs[0]": 3}),
        ValueError,
        "set['epochs[0]']: epochs is not a list; write it without an index",
    ),
    (
        lambda p: p.here.submit(GOOD, set={"a-b": 3}),
        ValueError,
        "set['a-b']: \"a-b\" is not a field; write name, name[0] or name[..]",
    ),
    (
        lambda p: p.here.submit(GOOD, set={"data.path": "not/here"}),
        ValueError,
        "data.path: not/here: there is no CWD/not/here here; a relative path is taken from the folder of this process. "
        "Give the absolute path, as the workers see it",
    ),
    (
        lambda p: p.here.submit(GOOD, set={"batch_size": 0}),
        cairn.InvalidArgument,
        "batch_size: 0 is not allowed; leave it out for 32, or give at least 1",
    ),
    (
        lambda p: p.here.submit(GOOD, set={"model.layers[1].dense.units": 1}),
        cairn.InvalidArgument,
        'loss.kind: SPARSE_CATEGORICAL_CROSSENTROPY needs one output for each class, but layer "dense" has 1; use '
        "BINARY_CROSSENTROPY for two classes, or more units",
    ),
]
JOB = [
    (
        lambda p: p.job.wait(timeout=-1),
        ValueError,
        "timeout: is -1; give more than 0 seconds, or None to wait without a limit",
    ),
    (lambda p: p.job.wait(progress="bar"), TypeError, "progress: is a str; give True or False"),
    (
        lambda p: p.job.evaluate(split="tset"),
        ValueError,
        'split: "tset" is not one of train, validation, test; did you mean "test"?',
    ),
    (
        lambda p: p.job.evaluate(split="test"),
        cairn.FailedPrecondition,
        "the data of job 1 has no test split; use --split train",
    ),
    (lambda p: p.job.evaluate(5), TypeError, "data: is an int; give a path or arrays"),
    (lambda p: p.job.evaluate(X[:, :2]), ValueError, "y: is missing; give evaluate(x, y)"),
    (
        lambda p: p.job.evaluate(CSV, Y),
        ValueError,
        "y: goes with arrays alone; the data that the workers read have their labels with them",
    ),
    (lambda p: p.job.evaluate(X[:, :2], Y[:3]), ValueError, "data: x has 8 examples, y has 3"),
    (lambda p: p.job.predict(weights=3), TypeError, "weights: is an int; give a path"),
    (
        lambda p: p.job.predict("not/here"),
        ValueError,
        "data: not/here: there is no CWD/not/here here; give the absolute path, as the workers see it",
    ),
    (lambda p: p.job.predict(numpy.array(["a"])), TypeError, "data: is an array of <U1; give numbers"),
    (
        lambda p: p.job.predict(numpy.float32(3)),
        ValueError,
        "data: is one number; the first axis of an array counts the examples",
    ),
    (lambda p: p.job.predict(X[:0]), ValueError, "data: has no examples"),
    (lambda p: p.job.predict([[1, 2], [3]]), ValueError, "data: its rows have different lengths; give an array"),
    (
        lambda p: p.job.predict(numpy.array([[2**30, 1]])),
        ValueError,
        "x: has whole numbers beyond 16,777,216, which float32 does not have",
    ),
    (
        lambda p: p.there.job(p.job.id).predict(X),
        ValueError,
        "data: arrays are of this process, and the workers of ADDRESS read files; save them where the workers see them"
        ", and give the path",
    ),
    (
        lambda p: p.job.export("m.keras", format="kears"),
        ValueError,
        'format: "kears" is not one of safetensors, keras, weights.h5, onnx; did you mean "keras"?',
    ),
    (lambda p: p.job.export("m.bin", layout="tf"), ValueError, 'layout: "tf" is not one of keras, torch'),
    (
        lambda p: p.job.export(f"{FOLDER}/m.bin"),
        cairn.ProgramError,
        '-o FOLDER/m.bin: no format has the ending ".bin"; use .safetensors, .keras, .weights.h5 or .onnx, or name one '
        "with --format",
    ),
    (lambda p: p.job.trace(steps=0), ValueError, "steps: is 0; give 1 to 1000"),
    (lambda p: p.job.trace(steps=2.5), TypeError, "steps: is a float; give a whole number"),
    (lambda p: p.job.trace(seconds=601), ValueError, "seconds: is 601; give 1 to 600"),
    (lambda p: p.job.trace(""), ValueError, "path: is empty"),
    (lambda p: p.there.trace(None), TypeError, "job: is None; give a job's number or name"),
    (lambda p: p.there.trace("no-such"), cairn.NotFound, 'there is no job named "no-such"'),
]
LAST = [(lambda p: (p.there.close(), p.there.jobs()), ValueError, "this cairn.Client is closed; make another one")]


def main():
    Path(CSV).write_text("".join(f"{i % 5},{i % 7},{i % 3}\n" for i in range(20)))
    places = Places()
    address, count, wrong = places.here.address, 0, 0
    for call, kind, wanted in CLIENT + SUBMIT + JOB + FIT + LAST:
        if os.environ.get("CAIRN_COORDINATOR") == "":
            os.environ.pop("CAIRN_COORDINATOR")
        count += 1
        try:
            got, text = None, f"nothing was raised: {call(places)!r}"
        except Exception as error:  # whatever is raised is compared
            got, text = type(error), str(error)
        for name, value in (("FOLDER", FOLDER), ("ADDRESS", address), ("CWD", os.getcwd())):
            text = text.replace(value, name)
        if got is not kind or text != wanted:
            wrong += 1
            print(f"{got}: {text!r}\n  wanted {kind.__name__}: {wanted!r}", flush=True)
    check(wrong == 0, f"{wrong} of {count} are wrong")
    check(len(places.here.jobs()) == 1, "a job was submitted all the same")
    print(f"{count} cases of wrong use", flush=True)


if __name__ == "__main__":
    main()
