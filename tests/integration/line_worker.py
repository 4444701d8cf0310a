"""A worker with a program in numpy: y = x w + b by least squares, with a moving average of x.

    line_worker.py COORDINATOR NAME [VERSION]

A job's config says what is to go wrong. Used by python_programs_test.py, and as the script of a user.
"""

import signal
import sys

import numpy

from cairn.worker import Worker

EXAMPLES, VALIDATION, FEATURES = 1000, 200, 5
RANDOM = numpy.random.RandomState(3)
XS = RANDOM.standard_normal((EXAMPLES + VALIDATION, FEATURES)).astype("f4")
YS = (XS @ numpy.arange(1, FEATURES + 1) + 0.5).astype("f4")


class Line:
    name = "line"

    def __init__(self, version):
        self.version = version

    def open(self, job):
        if job.config == "raise when opened":
            raise RuntimeError("not today")
        return LineOfSlot(job)


class LineOfSlot:
    def __init__(self, job):
        self.config = job.config
        self.place = {name: offset for name, _, _, offset in job.variables}
        self.number = {name: i for i, (name, _, _, _) in enumerate(job.variables)}
        assert job.space == 64 and job.figures == ["index", "absolute"], (job.space, job.figures)
        assert [v[2] for v in job.variables] == ["trainable", "trainable", "moving_average", "frozen"]

    def cut(self, numbers, name, size):
        return numbers[self.place[name] : self.place[name] + size]

    def forward(self, step):
        first = EXAMPLES if step.split == "validation" else 0
        x, y = XS[first + step.indices], YS[first + step.indices]
        values = numpy.frombuffer(step.values, "f4")
        assert not values.flags.writeable
        error = x @ self.cut(values, "line.w", FEATURES) + self.cut(values, "line.b", 1)[0] - y
        return x, error, (float((error.astype("f8") ** 2).sum()), [float(step.indices.sum()), float(abs(error).sum())])

    def train(self, step):
        if self.config == "raise" and step.step == 3:
            raise ValueError("boom: \N{GREEK SMALL LETTER ALPHA}")
        x, error, sums = self.forward(step)
        gradients = numpy.frombuffer(step.gradients, "f4")
        self.cut(gradients, "line.w", FEATURES)[:] = 2 * error @ x
        step.final(self.number["line.w"])
        if self.config == "final twice":
            step.final(self.number["line.w"])
        self.cut(gradients, "line.b", 1)[0] = 2 * error.sum()
        self.cut(gradients, "mean", FEATURES)[:] = x.sum(axis=0)
        return sums if self.config != "no figures" else sums[0]

    def evaluate(self, step):
        return self.forward(step)[2]

    def predict(self, step):
        x, _, _ = self.forward(step)
        numpy.frombuffer(step.outputs, "f4").reshape(-1, FEATURES)[:] = x


def main():
    coordinator, name, version = [*sys.argv[1:], "1"][:3]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # the worker is stopped at the exit
    worker = Worker([Line(version)], coordinator, name=name, log_level="info")
    print("ready", flush=True)
    worker.wait()


if __name__ == "__main__":
    main()
