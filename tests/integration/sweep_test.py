"""Goal: `cairn sweep` on a real cluster: a grid's trials train, with a table, lines of JSON and a page; a client that
is killed at any moment goes on, and no trial is submitted twice; halving chooses the same trials for any number at once
and resumes those that it paused; a trial that fails is said; what is wrong is refused before anything is submitted."""

import json
import os
import re
import shutil
import signal
import subprocess

from cluster import BIN, Cluster, TooLate, attempts, check
from jobs import make_glyphs, small_job

SETTINGS = ["--set", "replicas=1", "--set", "backups=0"]
RATES = "optimizer.learning_rate=0.003,0.0001,0.01"


def sweep(c, *args, code=0, as_json=False):
    done = c.cairn("sweep", *args, ok=False, as_json=as_json)
    check(done.returncode == code, f"sweep {args}: exit {done.returncode}, wanted {code}\n{done.stdout}\n{done.stderr}")
    return done


def trials(c, folder):
    with open(os.path.join(c.dir, folder, "trials.jsonl")) as f:
        return [json.loads(line) for line in f]


def jobs(c):
    return json.loads(c.cairn("jobs", as_json=True).stdout).get("jobs", [])


def check_refusals(c, job):
    for args, text in [
        (["--grid", RATES, "--by", "val_acuracy"], "did you mean val_accuracy?"),
        (["--by", "val_loss"], "there is nothing to sweep"),
        (["--by", "val_loss", "--grid", "optimizer.learning_rte=0.1,0.2"], 'has no field "learning_rte"'),
        (
            ["--by", "val_loss", "--grid", "batch_size=60,none"],
            'trial 2 (batch_size=none): batch_size=none: "none" is not a whole number',
        ),
        (
            ["--by", "val_loss", "--grid", "optimizer.learning_rate=0.1,-1"],
            "trial 2 (learning_rate=-1): optimizer.learning_rate: -1",
        ),
    ]:
        error = sweep(c, job, *args, code=2).stderr
        check(text in error, f"{args}: {error}")
    check(jobs(c) == [], "nothing was submitted")
    check(not os.path.exists(os.path.join(c.dir, "small-sweep")), "nothing was written")
    listed = sweep(c, job, "--grid", RATES, "--by", "loss", "--dry-run").stdout
    check("trial 3: learning_rate=0.01\n3 trials\n" in listed, listed)
    error = sweep(c, "-o", "nowhere", code=2).stderr
    check("there is no sweep in" in error, error)


def check_page(page, all_trials, scored):
    with open(page) as f:
        text = f.read()
    check("src=" not in text and "href=" not in text and "url(" not in text, "the page needs other files")
    if not shutil.which("node"):
        print("without node the page's script is not run", flush=True)
        return
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sweep_page.mjs")
    done = subprocess.run(["node", script, page], capture_output=True, text=True, timeout=60)
    check(done.returncode == 0, done.stderr)
    made = json.loads(done.stdout)
    check(made["about"].startswith(f"{all_trials} of {all_trials} trials have ended"), made["about"])
    # A line in the coordinates and a curve for each trial with figures; a row for each trial, and the head.
    check(made["counts"]["path.trial"] == 2 * scored and made["counts"]["tr"] == all_trials + 1, str(made))


def check_grid(c, job):
    """A batch of more examples than the data have is refused by the cluster, which alone knows them."""
    grid = ["--grid", RATES, "--grid", "batch_size=60,100000", *SETTINGS]
    done = sweep(c, job, *grid, "--by", "val_accuracy", "--max-parallel", "2", "-o", "grid", code=3)
    print(done.stdout, flush=True)
    check(
        re.search(r"^#\s+TRIAL\s+JOB\s+STATE\s+EPOCHS\s+learning_rate\s+batch_size\s+val_accuracy$", done.stdout, re.M),
        "table",
    )
    rows = trials(c, "grid")
    check([r["state"] for r in rows] == ["succeeded", "failed"] * 3, str([(r["state"], r["reason"]) for r in rows]))
    check(all("batch_size" in r["reason"] for r in rows[1::2]), rows[1]["reason"])
    check("trial 2: refused: " in done.stdout, done.stdout)
    for row in rows[::2]:
        status = c.job(str(row["job"]))
        check(status["spec"]["name"] == f"small-t{row['trial']}", status["spec"]["name"])
        check(abs(row["score"] - status["epochs"][-1]["validation"]["accuracy"]) < 1e-9, f"{row} {status['epochs']}")
        check(row["parameters"]["optimizer.learning_rate"] in (0.003, 0.0001, 0.01), str(row["parameters"]))
    best = max(rows[::2], key=lambda r: r["score"])
    check(f"best: trial {best['trial']}, " in done.stdout, done.stdout)
    check_page(os.path.join(c.dir, "grid/index.html"), 6, 3)
    before = len(jobs(c))
    again = sweep(c, job, *grid, "--by", "val_accuracy", "-o", "grid", code=3)  # all have ended
    check("6 of 6 trials have ended" in again.stdout, again.stdout)
    sweep(c, "-o", "grid", code=3)
    check(len(jobs(c)) == before, "no trial again")
    other = sweep(c, job, *grid, "--by", "val_loss", "-o", "grid", code=2).stderr
    check("holds another sweep: --by" in other, other)


def start(c, *args):
    argv = [os.path.join(BIN, "cairn"), "--coordinator", c.address, "sweep", *args]
    return subprocess.Popen(argv, cwd=c.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def of_sweep(c, name):
    return [j for j in jobs(c) if j["spec"]["name"].startswith(name + "-t")]


def check_kills(c, job):
    """SIGINT with the first job, then SIGKILL at once and when so many jobs are there."""
    args = [job, "--grid", "seed=1,2,3,4", "--by", "val_loss", *SETTINGS, "--set", "name=killed", "-o", "killed"]
    process = start(c, *args, "--max-parallel", "1")
    c.until(lambda: of_sweep(c, "killed") or process.poll() is not None, "a job")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    check(process.returncode == 130 and "goes on with it" in err, f"{process.returncode}\n{out}\n{err}")
    for count in (1, 2, 3, 4):
        process = start(c, *args, "--max-parallel", "2")
        c.until(lambda: len(of_sweep(c, "killed")) >= count or process.poll() is not None, f"{count} jobs")
        process.kill()
        process.communicate(timeout=60)
    lines = sweep(c, "-o", "killed", as_json=True).stdout.splitlines()
    check(all(json.loads(line)["trial"] in (1, 2, 3, 4) for line in lines), str(lines))
    check([r["state"] for r in trials(c, "killed")] == ["succeeded"] * 4, str(trials(c, "killed")))
    names = sorted(j["spec"]["name"] for j in of_sweep(c, "killed"))
    check(names == [f"killed-t{i}" for i in (1, 2, 3, 4)], f"a trial was submitted twice: {names}")


def check_cancel_on_interrupt(c, job):
    args = [job, "--grid", "seed=1,2", "--by", "val_loss", *SETTINGS, "--set", "name=left", "--set", "epochs=500"]
    process = start(c, *args, "-o", "left", "--cancel-on-interrupt")
    c.until(lambda: len(of_sweep(c, "left")) == 2, "both jobs")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    check(process.returncode == 130 and "goes on with it" in err, f"{process.returncode}\n{out}\n{err}")
    check(all(j["state"] == "CANCELLED" for j in of_sweep(c, "left")), "cancelled")
    check([r["state"] for r in trials(c, "left")] == ["waiting"] * 2, str(trials(c, "left")))


def check_halving(c, job, times):
    """times: how much longer the job is, so that trials are seen at a rung before they are at their end."""
    epochs = 4 * times
    rungs = [r for r in (1, 2, 4, 8, 16, 32) if r < epochs]
    rates = "optimizer.learning_rate=0.01,0.003,0.0001,0.00001"
    args = [job, "--grid", rates, "--by", "val_loss", "--halving", "--halving-factor", "2", *SETTINGS]
    args += ["--set", f"epochs={epochs}", "--set", f"name=halved{times}"]
    outcomes = []
    for parallel in (1, 4):
        folder = f"halved-{times}-{parallel}"
        done = sweep(c, *args, "--max-parallel", str(parallel), "-o", folder)
        print(done.stdout, flush=True)
        rows = trials(c, folder)
        outcomes.append([(r["rung"], r["score"]) for r in rows])
        check(sorted(r["rung"] for r in rows) == [0, 0, 1, len(rungs)], str(rows))
        winner = next(r for r in rows if r["rung"] == len(rungs))
        check(winner["state"] == "succeeded" and winner["epochs"] == epochs, str(winner))
        check([e for e, _ in winner["curve"]] == list(range(1, epochs + 1)), str(winner["curve"]))
        check(all(r["state"] == "stopped" for r in rows if r["rung"] < len(rungs)), str(rows))
        if parallel == 1 and "from its checkpoint" not in done.stdout:
            raise TooLate("the winner was never paused")
    check(outcomes[0] == outcomes[1], f"another choice with another number at once: {outcomes}")


def main():
    with Cluster(ps=1, workers=1, slots=2) as c:
        job = small_job(c.dir, make_glyphs(c.dir), 2)
        check_refusals(c, job)
        check_grid(c, job)
        check_kills(c, job)
        attempts(lambda times: check_halving(c, job, times))
        check_cancel_on_interrupt(c, job)


main()
