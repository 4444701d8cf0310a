"""What the package `cairn` shows of a job: progress in lines, as a bar and in a notebook, history, data frame, plot. A
status is what `cairn job --json` prints.
"""

import io
import math
import os
import sys
import types
import unittest

from cairn import tables
from cairn.progress import NotebookProgress, TextProgress, duration_text, figure_text, table_html


def status(**changes):
    return {
        "job_id": 3,
        "spec": {"name": "a<b", "epochs": 2},
        "state": "RUNNING",
        "reason": "",
        "data": {"validation_examples": 10},
        "steps_per_epoch": 4,
        "total_steps": 8,
        "step": 0,
        "epoch": 0,
        "epoch_sums": {"examples": 0},
        "epochs": [],
        "notes": [],
        **changes,
    }


def epoch(number, loss, validated=10):
    return {
        "epoch": number,
        "train": {"examples": 40, "loss": loss, "accuracy": 0.5},
        "validation": {"examples": validated, "loss": loss / 2},
        "seconds": 75.0,
        "learning_rate": 0.25,
    }


STATUSES = [
    status(step=2, epoch_sums={"examples": 20, "loss": 1.5}, images_per_second=1234.5),
    status(step=4, epoch=1, epochs=[epoch(0, 1.0, validated=5)]),
    status(step=6, epoch=1, epochs=[epoch(0, 1.0)], epoch_sums={"examples": 20, "loss": None}),
    status(state="SUCCEEDED", step=8, epochs=[epoch(0, 1.0), epoch(1, 1e-5)]),
]


class Showing(unittest.TestCase):
    def test_lines(self):
        out = io.StringIO()
        progress = TextProgress(out, terminal=False)
        for one in STATUSES:
            progress.update(one)
        figures = "loss: 1.0000 - accuracy: 0.5000 - val_loss: 0.5000"
        small = "loss: 1.0000e-05 - accuracy: 0.5000 - val_loss: 5.0000e-06"
        lines = [
            'job 3 "a<b": running',
            f"Epoch 1/2 - 1m15s - {figures}",
            f"Epoch 2/2 - 1m15s - {small}",
            'job 3 "a<b": succeeded',
        ]
        self.assertEqual(out.getvalue().splitlines(), lines)

    def test_a_bar(self):
        os.environ["COLUMNS"] = "80"
        out = io.StringIO()
        progress = TextProgress(out, terminal=True)
        for one in STATUSES[:3]:
            progress.update(one)
        progress.close()
        shown = out.getvalue().replace("\x1b[K", "")
        begin = (
            'job 3 "a<b": running\nEpoch 1/2\n\r[===============>..............] 2/4 - loss: 1.5000 - 1,234 images/s'
        )
        self.assertTrue(shown.startswith(begin), shown)
        self.assertIn("\r[==========================] 4/4 - loss: 1.0000 - accuracy: 0.5000 - validating", shown)
        self.assertIn("4/4 - 1m15s - loss: 1.0000 - accuracy: 0.5000 - val_loss: 0.5000\nEpoch 2/2\n", shown)
        self.assertTrue(shown.endswith("2/4 - loss: nan\n"), shown)

    def test_a_notebook(self):
        updates = []
        handle = types.SimpleNamespace(update=updates.append)
        display = types.SimpleNamespace(HTML=str, display=lambda text, display_id: updates.append(text) or handle)
        progress = NotebookProgress(display)
        for one in STATUSES:
            progress.update(one)
        self.assertEqual(len(updates), 4)
        self.assertIn("job 3 &quot;a&lt;b&quot;: succeeded", updates[-1])
        self.assertIn("<tr><th>epoch</th><th>loss</th><th>accuracy</th><th>val_loss</th></tr>", updates[-1])
        self.assertIn("<td>1.0000e-05</td>", table_html(STATUSES[-1]))

    def test_texts(self):
        self.assertEqual(
            [figure_text(v) for v in (0, 0.25, 1e-4, 2e6, None)], "0.0000 0.2500 1.0000e-04 2.0000e+06 nan".split()
        )
        self.assertEqual([duration_text(s) for s in (0.51, 12.2, 61, 3700)], "0.5s 12s 1m01s 1h01m".split())

    def test_history(self):
        history = tables.history_of(STATUSES[-1])
        self.assertEqual(history, {"loss": [1, 1e-5], "accuracy": [0.5, 0.5], "val_loss": [0.5, 5e-6]})
        self.assertEqual(tables.history_of(STATUSES[1]), {})  # its validation goes on
        rated = {**STATUSES[-1], "spec": {"epochs": 2, "callbacks": [{"reduce_lr_on_plateau": {}}]}}
        self.assertEqual(tables.history_of(rated)["learning_rate"], [0.25, 0.25])
        (lost,) = tables.history_of(
            status(state="FAILED", epochs=[epoch(0, 1.0) | {"train": {"examples": 1, "loss": None}}])
        )["loss"]
        self.assertTrue(math.isnan(lost))

    def test_a_data_frame_and_a_plot(self):
        frame = types.SimpleNamespace(set_index=lambda name: (name, frame.rows))
        pandas = types.ModuleType("pandas")
        pandas.DataFrame = lambda rows: setattr(frame, "rows", rows) or frame
        index, rows = with_module("pandas", pandas, lambda: tables.frame_of(STATUSES[-1]))
        self.assertEqual(index, "epoch")
        first = {"epoch": 1, "loss": 1.0, "accuracy": 0.5, "val_loss": 0.5, "learning_rate": 0.25, "seconds": 75.0}
        self.assertEqual(rows[0], first)

        curves = []
        axis = types.SimpleNamespace(
            plot=lambda x, y, marker, label: curves.append((list(x), y, label)),
            set_title=lambda text: curves.append(text),
            set_xlabel=lambda text: None,
            legend=lambda: None,
        )
        matplotlib = types.ModuleType("matplotlib")
        matplotlib.pyplot = types.SimpleNamespace(subplots=lambda *a, **k: ("figure", [[axis] * a[1]]))
        made = with_module("matplotlib", matplotlib, lambda: tables.plot_of(STATUSES[-1], ("loss",)))
        self.assertEqual(made, "figure")
        self.assertEqual(curves, [([1, 2], [1, 1e-5], "training"), ([1, 2], [0.5, 5e-6], "validation"), "loss"])


def with_module(name, module, call):
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        return call()
    finally:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before


if __name__ == "__main__":
    unittest.main()
