"""Callbacks: each decision is made once and does not depend on the number of workers, even if workers and the
coordinator are killed at the end of an epoch. Their files are complete after the chief was killed. A cluster that was
lost resumes from its backup and reaches the same digest.

TensorBoard's files are read by a separate reader (tensorboard_files.py).

    callbacks_test.py [CASE]...
"""

import csv
import glob
import json
import os
import struct
import sys
import time

from cluster import Cluster, attempts, check
from jobs import make_glyphs, restart_all, small_job, undisturbed
from tensorboard_files import events, scalar

STEPS = 30  # per epoch


def worse_after(epochs):
    """A learning rate so high from then on that the best epoch is not the last one on any processor."""
    return (
        "callbacks { learning_rate_scheduler { schedule { piecewise_constant_decay { "
        "boundaries: %d values: [0.003, 0.5] } } } }" % (epochs - 1)
    )


# ---- helpers ----


def figures(status, split, name):
    return [float(e[split][name]) for e in status["epochs"]]


def idle(c, names):
    """Whether none of the processes computes for a while: the replicas are waiting."""

    def times():
        total = 0
        for name in names:
            with open(f"/proc/{c.processes[name].pid}/stat") as f:
                total += sum(int(x) for x in f.read().rsplit(")", 1)[1].split()[11:13])
        return total

    before = times()
    time.sleep(1)
    return times() - before <= 4


def tensors(path):
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(length)), f.read()
    return {k: data[v["data_offsets"][0] : v["data_offsets"][1]] for k, v in header.items() if k != "__metadata__"}


def early_job(directory, patience):
    """Stops long before its last epoch; more patience makes it stop later."""
    more = (
        "callbacks { early_stopping { monitor: 'val_loss' min_delta: 0.05 patience: %d } } "
        "callbacks { csv_logger { filename: '%s/log.csv' } }"
    )
    return small_job(directory, make_glyphs(directory), 11 + patience, more % (patience, directory))


def early_stopping():
    """The same epoch and the same bits with one worker, and with three of which one is killed, like the coordinator, at
    the end of an epoch."""

    def run(patience):
        with Cluster(ps=1, workers=1) as c:
            job = c.submit(early_job(c.dir, patience))
            want = c.wait(job)
            epochs = len(want["epochs"])
            check(patience < epochs < 11 + patience, f"{epochs} epochs were trained")
            check(
                want["reason"].startswith(f"stopped early after epoch {epochs}: val_loss did not improve on"),
                want["reason"],
            )
            check(int(want["step"]) == epochs * STEPS, f"step {want['step']}")
            check("the job ends" in c.cairn("job", job).stdout, "cairn job tells of it")
            check(undisturbed(epochs) == want["digest"], "waiting at the end of epochs changes no bit")
        with Cluster(ps=2, workers=3) as c:
            job = c.submit(early_job(c.dir, patience))
            c.wait_for_step(job, 10)
            c.kill("coordinator")
            c.until(lambda: idle(c, ["worker-0", "worker-1", "worker-2"]), "the replicas wait at the end of the epoch")
            c.kill("worker-0")
            c.restart("coordinator")
            status = c.wait(job)
            check(
                len(status["epochs"]) == epochs and status["digest"] == want["digest"],
                f"{len(status['epochs'])} epochs, digest {status['digest']}; undisturbed {epochs}, {want['digest']}",
            )
            check(
                figures(status, "validation", "loss") == figures(want, "validation", "loss"),
                "the same figures, to the last bit",
            )
            with open(f"{c.dir}/log.csv", newline="") as f:
                rows = list(csv.DictReader(f))
            check([int(r["epoch"]) for r in rows] == list(range(epochs)), f"{rows}")
        print(f"early_stopping: epoch {epochs}, same digest", flush=True)

    attempts(run)


def best_weights():
    """restore_best_weights: the digest is that of a job trained for exactly that many epochs."""
    with Cluster(ps=2, workers=2) as c:
        data = make_glyphs(c.dir)
        rates = worse_after(3)
        more = (
            "checkpoints { dir: '%s/checkpoints' } "
            "callbacks { early_stopping { patience: 2 restore_best_weights: true } }" % c.dir
        )
        status = c.wait(c.submit(small_job(c.dir, data, 8, rates + more)))
        losses = figures(status, "validation", "loss")
        best = losses.index(min(losses)) + 1
        check(best == len(losses) - 2, f"no epoch after the best was thrown away: {losses}")
        want = c.wait(c.submit(small_job(c.dir, data, best, rates)))
        check(
            status["digest"] == want["digest"],
            f"digest {status['digest']}, that of epoch {best} of {losses} is {want['digest']}",
        )
    print(f"best_weights: epoch {best} of {len(losses)}", flush=True)


def reduce_lr():
    """The learning rates are those that Keras' ReduceLROnPlateau sets for these figures."""
    with Cluster(ps=1, workers=2) as c:
        more = (
            "callbacks { reduce_lr_on_plateau { factor: 0.5 patience: 1 cooldown: 1 min_delta: 0.2 min_lr: 0.0004 } }"
        )
        status = c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir), 9, more)))
    f32 = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
    rate, best, wait, cooldown, want = f32(0.003), float("inf"), 0, 0, []
    for loss in figures(status, "validation", "loss"):
        want.append(rate)
        if cooldown > 0:
            cooldown -= 1
            wait = 0
        if loss < best - 0.2:
            best, wait = loss, 0
        elif cooldown == 0:
            wait += 1
            if wait >= 1 and rate > f32(0.0004):
                rate, cooldown, wait = f32(max(rate * 0.5, 0.0004)), 1, 0
    rates = [f32(float(e["learning_rate"])) for e in status["epochs"]]
    check(rates == want, f"rates {rates}, Keras' {want}")
    check(len(set(rates)) > 2, f"it was reduced: {rates}")
    print(f"reduce_lr: {rates}", flush=True)


def files():
    """Model files, the CSV and TensorBoard's events are complete, with each epoch once, although the chief is killed
    twice."""

    def run(times):
        epochs = 6 * times
        with Cluster(ps=1, workers=2) as c:
            more = """
                callbacks { model_checkpoint { filepath: '%(dir)s/models/m-{epoch:02d}-{val_loss:.3f}.safetensors' } }
                callbacks { csv_logger { filename: '%(dir)s/log.csv' } }
                callbacks { tensorboard { log_dir: '%(dir)s/logs' histogram_freq: 2 } }
                callbacks { learning_rate_scheduler {
                  schedule { exponential_decay { decay_steps: 1 decay_rate: 0.5 } } } }"""
            job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs, more % {"dir": c.dir}))
            for epoch in (1, 3 * times):
                c.wait_for_step(job, epoch * STEPS + 3)
                # A chief that has written nothing yet leaves no file behind.
                c.while_running(
                    job,
                    lambda _: glob.glob(f"{c.dir}/logs/train/events.out.tfevents.*"),
                    "the first figures are written",
                )
                chief = c.chief(job)
                c.kill(chief)
                c.while_running(job, lambda status: status["chief"] not in ("", chief), "another chief")
                c.restart(chief)
                c.wait_for_nodes(3)
            status = c.wait(job)
            train, validation = figures(status, "train", "loss"), figures(status, "validation", "loss")
            names = sorted(n for n in os.listdir(f"{c.dir}/models") if not n.startswith("."))  # next to the checkpoints
            check(
                names == [f"m-{i + 1:02d}-{loss:.3f}.safetensors" for i, loss in enumerate(validation)],
                f"{names} of {validation}",
            )
            c.cairn("export", job, "-o", f"{c.dir}/final.safetensors")
            check(
                tensors(f"{c.dir}/models/{names[-1]}") == tensors(f"{c.dir}/final.safetensors"),
                "the last file is the final weights",
            )
            check(tensors(f"{c.dir}/models/{names[0]}") != tensors(f"{c.dir}/final.safetensors"), "the first is not")

            with open(f"{c.dir}/log.csv", newline="") as f:
                text = f.read()
            lines = text.split("\r\n")
            check(lines[0] == "epoch,accuracy,learning_rate,loss,val_accuracy,val_loss" and lines[-1] == "", text)
            rows = list(csv.DictReader(lines))
            check([int(r["epoch"]) for r in rows] == list(range(epochs)), text)
            check(
                [float(r["loss"]) for r in rows] == train and [float(r["val_loss"]) for r in rows] == validation, text
            )
            check(all(abs(float(r["learning_rate"]) - 0.003 * 0.5**i) < 1e-9 for i, r in enumerate(rows)), text)

            f32 = lambda x: struct.unpack("<f", struct.pack("<f", x))[0]
            found = events(f"{c.dir}/logs/train")
            check(
                scalar(found, "epoch_loss") == [(i, f32(x)) for i, x in enumerate(train)],
                f"{scalar(found, 'epoch_loss')}",
            )
            check([s for s, _ in scalar(found, "epoch_accuracy")] == list(range(epochs)), "accuracy")
            check(
                [v for _, v in scalar(found, "epoch_learning_rate")]
                == [f32(float(e["learning_rate"])) for e in status["epochs"]],
                "rates",
            )
            check(all(v > 0 for _, v in scalar(found, "epoch_images_per_second")), "images/s")
            histograms = scalar(found, "dense/kernel/histogram")
            check([s for s, _ in histograms] == list(range(0, epochs, 2)), f"{[s for s, _ in histograms]}")
            sizes = {sum(row[2] for row in rows) for _, rows in histograms}
            check(len(sizes) == 1 and sizes.pop() > 100, "every weight is counted")
            graphs = scalar(found, "graph")
            check(len(graphs) == 1 and "conv2d" in graphs[0][1] and "dense" in graphs[0][1], f"{graphs}")
            check(len(scalar(found, "version")) >= 2, "the next chief has a file of its own")
            seen = events(f"{c.dir}/logs/validation")
            check(scalar(seen, "epoch_loss") == [(i, f32(x)) for i, x in enumerate(validation)], "validation")

    attempts(run)
    print("files: whole", flush=True)


def backup():
    """The whole cluster and its disks are lost: the same job, resubmitted, resumes from its backup and reaches the
    digest of the undisturbed run."""

    def run(times):
        epochs = 5 * times
        want = undisturbed(epochs)
        with Cluster(ps=2, workers=2) as kept:  # its directory outlives the first cluster
            data, directory = make_glyphs(kept.dir), f"{kept.dir}/backup"
            more = "callbacks { backup_and_restore { backup_dir: '%s' save_freq: '20' } }" % directory
            with Cluster(ps=2, workers=2) as c:
                job = c.submit(small_job(c.dir, data, epochs, more))
                c.while_running(job, lambda status: len(status.get("checkpoints", [])) >= 2, "two checkpoints")
                for name in list(c.processes):
                    c.kill(name, wait=False)
            job = kept.submit(small_job(kept.dir, data, epochs, more))
            status = kept.wait(job)
            check(
                int(status["restored_step"]) >= 20 and status["restored_from"].startswith(directory),
                f"{status.get('restored_from')}",
            )
            check(status["digest"] == want, f"digest {status['digest']}, undisturbed {want}")
            kept.until(lambda: not glob.glob(f"{directory}/step-*"), "the backup is removed")

            # The coordinator and its state remain: the job continues by itself.
            job = kept.submit(small_job(kept.dir, data, epochs, more))
            kept.while_running(job, lambda status: len(status.get("checkpoints", [])) >= 2, "two checkpoints")
            restart_all(kept)
            status = kept.wait(job)
            check(status["digest"] == want, f"digest {status['digest']}, undisturbed {want}")

    attempts(run)
    print("backup: same digest", flush=True)


def not_finite():
    with Cluster(ps=1, workers=1) as c:
        job = c.submit(
            small_job(c.dir, make_glyphs(c.dir), 4, "callbacks { terminate_on_nan { } }"),
            {"optimizer": "{sgd {} learning_rate: 1e30}"},
        )
        status = c.wait(job, state="FAILED")
        check(
            status["reason"].startswith("the loss is not finite in epoch 1; lower optimizer.learning_rate"),
            status["reason"],
        )
        check(int(status["not_finite_step"]) < STEPS, f"not_finite_step {status['not_finite_step']}")
    print("not_finite: said so", flush=True)


def asynchronous():
    """Asynchronous replicas also wait at the end of the epoch."""
    with Cluster(ps=2, workers=2) as c:
        more = "strategy: PARAMETER_SERVER callbacks { early_stopping { min_delta: 10 patience: 2 } }"
        status = c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir), 8, more)))
        check(
            len(status["epochs"]) == 3 and int(status["step"]) == 3 * STEPS,
            f"{len(status['epochs'])} epochs, step {status['step']}",
        )
    print("asynchronous: stopped", flush=True)


def keras_archives():
    """The .keras files of ModelCheckpoint can be loaded, as weights and as a model: the same figures to the last
    digit."""
    with Cluster(ps=2, workers=2) as c:
        more = """
            callbacks { model_checkpoint { filepath: '%(dir)s/m-{epoch}.keras' } }
            callbacks { model_checkpoint {
              filepath: '%(dir)s/best.keras' monitor: 'val_accuracy' mode: MODE_MAX save_best_only: true } }"""
        job_file = small_job(c.dir, make_glyphs(c.dir), 3, worse_after(2) + more % {"dir": c.dir})
        job = c.submit(job_file)
        status = c.wait(job)
        wanted = c.evaluate(job)
        again = c.evaluate_with(job, "--weights", f"{c.dir}/m-3.keras")
        check((again["loss"], again["accuracy"]) == (wanted["loss"], wanted["accuracy"]), f"{again}, {wanted}")
        accuracies = figures(status, "validation", "accuracy")
        best = max(accuracies)
        check(best > accuracies[-1], f"the last epoch is the best: {accuracies}")
        kept = c.evaluate_with(job, "--weights", f"{c.dir}/best.keras", "--split", "validation")
        check(kept["accuracy"] == best, f"the best epoch's: {kept['accuracy']}, {best}")
        plain = small_job(c.dir, f"{c.dir}/glyphs", 1, name="plain.textproto")
        other = str(
            json.loads(
                c.cairn(
                    "submit", plain, "--model", f"{c.dir}/m-3.keras", "--set", "steps_per_epoch=1", as_json=True
                ).stdout
            )["job_id"]
        )
        c.wait(other)
        again = c.evaluate_with(other, "--weights", f"{c.dir}/m-3.keras")
        check(
            (again["loss"], again["accuracy"]) == (wanted["loss"], wanted["accuracy"]), f"as a model: {again}, {wanted}"
        )
        print(f"keras_archives: accuracy {wanted['accuracy']}, best of validation {best}", flush=True)


CASES = (early_stopping, best_weights, reduce_lr, files, keras_archives, backup, not_finite, asynchronous)


def main():
    wanted = sys.argv[1:]
    for case in CASES:
        if not wanted or case.__name__ in wanted:
            case()


if __name__ == "__main__":
    main()
