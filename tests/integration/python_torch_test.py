"""Goal: PyTorch models as programs (cairn.torch), in processes beside real daemons.

- LeNet with one replica and SGD: after 100 steps each weight is within 1e-6 of a plain loop over the same batches.
- With batch normalization, dropout and four replicas: digests are equal for one and two workers, and with a worker
  killed and started again; the job learns, and running statistics move.
- Predictions are those of the model with the exported weights. Wrong use is refused by name.
"""

import os
import sys
import types

from cluster import BIN, Cluster, TestFailure, attempts, check

HERE = os.path.dirname(os.path.abspath(__file__))
MODULE = os.path.abspath(os.path.join(BIN, "../python"))
os.environ["PYTHONPATH"] = os.pathsep.join([MODULE, HERE])
sys.path[:0] = [MODULE]

try:
    import numpy
    import torch
except ImportError as lacks:
    print(f"skipped: {lacks} (Debian: apt-get install python3-torch)")
    sys.exit(77)

import cairn.torch  # noqa: E402
import lenet_worker  # noqa: E402
from lenet_worker import TRAIN, lenet  # noqa: E402
from python_programs_test import weights  # noqa: E402

SCRIPT = [sys.executable, os.path.join(HERE, "lenet_worker.py")]
RELATIVE = 1e-6


def add_torch(c, name, model="lenet"):
    c.commands[name] = [*SCRIPT, c.address, name, model]
    c.restart(name)
    c.wait_for_log(name, "joined the cluster")


def submit(c, model, rest):
    program = lenet_worker.program(model)
    program.save_weights(f"{c.dir}/start.safetensors")
    with open(f"{c.dir}/job.textproto", "w") as f:
        f.write(program.job_text(f'name: "{model}" seed: 7 backups: 0 {rest}', f"{c.dir}/start.safetensors"))
    return c.submit(f"{c.dir}/job.textproto")


def check_plain_loop(c):
    add_torch(c, "plain-0", "plain")
    job = submit(
        c,
        "plain",
        "optimizer { sgd { } learning_rate: 0.05 } batch_size: 64 replicas: 1 epochs: 10 data { shuffle: false }",
    )
    c.wait(job)
    torch.set_num_threads(1)
    model, data = lenet(plain=True), lenet_worker.Drawn(TRAIN, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(100):
        begin = step * 64 % TRAIN
        optimizer.zero_grad()
        pictures, labels = data.pictures[begin : begin + 64], data.labels[begin : begin + 64]
        torch.nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
    got = weights(c, job)
    worst = 0.0
    for name, want in model.state_dict().items():
        want = want.numpy().ravel()
        worst = max(worst, float(abs(got[name] - want).max() / abs(want).max()))
    print(f"after 100 steps: at most {worst:.2e} of the largest weight of its tensor from the plain loop", flush=True)
    check(worst <= RELATIVE, f"{worst} from the plain loop, at most {RELATIVE} is allowed")
    model.load_state_dict({n: torch.from_numpy(got[n].copy()).view(p.shape) for n, p in model.state_dict().items()})
    c.cairn("predict", job, "--split", "validation", "-o", f"{c.dir}/p.npy")
    with torch.no_grad():
        want = model(lenet_worker.Drawn(lenet_worker.TEST, 3).pictures).numpy()
    check(numpy.allclose(numpy.load(f"{c.dir}/p.npy"), want, rtol=1e-5, atol=1e-5), "other predictions")


def check_digests(c, times):
    if "torch-1" in c.processes and c.processes["torch-1"].poll() is None:
        c.kill("torch-1")  # an attempt was too late
    rest = f"optimizer {{ adam {{ }} learning_rate: 0.001 }} batch_size: 64 replicas: 4 epochs: {8 * times}"
    job = submit(c, "lenet", rest)
    status = c.wait(job)
    alone = status["digest"]
    last = status["epochs"][-1]["validation"]
    accuracy = last["accuracy"]
    print(f"validation accuracy {accuracy:.3f}", flush=True)
    check(accuracy > 0.9, f"it does not learn: accuracy {accuracy}")
    got = weights(c, job)
    check(abs(got["1.running_mean"]).max() > 0 and got["1.running_var"].std() > 0, f"running statistics: {got}")
    add_torch(c, "torch-1")
    job = submit(c, "lenet", rest)
    check(c.wait(job)["digest"] == alone, "two workers: another digest")
    job = submit(c, "lenet", rest)
    for step in (10, 30):
        c.wait_for_step(job, step)
        c.running(job, "torch-1 is killed")
        c.kill("torch-1")
        c.restart("torch-1")
    check(c.wait(job)["digest"] == alone, "a worker killed twice: another digest")


class Counts(torch.nn.Linear):
    """Writes to a buffer when it is called."""

    def __init__(self):
        super().__init__(2, 2)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls += 1
        return super().forward(x)


def step_of_changed_buffer():
    """One step, with a job and a step as the module cairn._cairn has them."""
    program = cairn.torch.Program("a", Counts(), torch.nn.functional.cross_entropy, [(torch.ones(2), 0)])
    variables = [(v["name"], tuple(v["shape"]), v["kind"].lower(), 16 * i) for i, v in enumerate(program.variables)]
    job = types.SimpleNamespace(variables=variables, figures=[], threads=1, space=48)
    values = numpy.zeros(48, "f4")
    step = types.SimpleNamespace(
        seed=0, step=1, replica=0, examples=1, split="train", indices=numpy.zeros(1, "i8"), values=values,
        values_address=values.ctypes.data, gradients=numpy.zeros(48, "f4"), final=lambda place: None,
    )  # fmt: skip
    program.open(job).train(step)


def check_wrong_use():
    nn, loss, data = torch.nn, torch.nn.functional.cross_entropy, lenet_worker.Drawn(8, 1)
    Program = cairn.torch.Program
    cases = [
        (
            lambda: Program("a", nn.Linear(2, 2).double(), loss, data),
            "parameter 'weight': torch.float64 is not supported",
        ),
        (
            lambda: Program("a", nn.BatchNorm1d(2, momentum=None), loss, data),
            "module '': momentum=None is a cumulative",
        ),
        (lambda: Program("a", nn.Linear(2, 2), loss, iter([])), "train: list_iterator has no __len__ or __getitem__"),
        (lambda: cairn.torch.worker(Program("a", nn.Linear(2, 2), loss, data), "a:1", slots=2), "slots: a process has"),
        (
            lambda: cairn.torch.worker(Program("a b", nn.Linear(2, 2), loss, data), "a:1"),
            "programs[0]: name and version",
        ),
        (step_of_changed_buffer, "buffer 'calls': the model changes it when it is called"),
    ]
    for call, text in cases:
        try:
            call()
        except ValueError as error:
            check(text in str(error), f"{text!r} is not in {error}")
        else:
            raise TestFailure(f"no ValueError: {text}")


def main():
    check_wrong_use()
    with Cluster(ps=2, workers=0) as c:
        check_plain_loop(c)
        add_torch(c, "torch-0")
        attempts(lambda times: check_digests(c, times))


if __name__ == "__main__":
    main()
    print("ok")
