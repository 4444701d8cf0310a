"""Submits the tutorial's job, shows its progress, evaluates and exports it.

    submit_job.py DATA [--epochs N] [--strategy NAME] [--output FILE]

DATA: what `cairn data make glyphs DATA` wrote, as the workers see it.
"""

import argparse
import os

import cairn

JOB = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../glyphs/job.textproto")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--strategy", default="multi_worker_mirrored")
    parser.add_argument("--output", default="glyphs.keras")
    flags = parser.parse_args()
    with cairn.Client() as client:
        changes = {"data.path": flags.data, "epochs": flags.epochs, "strategy": flags.strategy}
        job = client.submit(JOB, set=changes)
        job.wait()
        print("best val_accuracy:", max(job.history["val_accuracy"]))
        print("test:", job.evaluate(split="test"))
        print("classes of the first examples:", job.predict()[:10].argmax(axis=1))
        print("written:", job.export(flags.output))


if __name__ == "__main__":
    main()
