"""Goal: `cairn logs`, `cairn events` and `cairn submit --dry-run` from a user's point of view: lines of each daemon and
of a job, in order and followed to the job's end; events of jobs and nodes; a daemon that is killed says so; a dry run
that finds what a submission would find, and leaves nothing behind. The Python client has the same."""

import json
import os
import signal
import subprocess
import sys
import tempfile

from cli_test import Up, run, until
from cluster import BIN, check
from jobs import make_glyphs, small_job

CAIRN = os.path.join(BIN, "cairn")


def lines(done):
    return [line for line in done.stdout.splitlines() if line]


def try_dry_run(up, spec):
    text = up.cairn("submit", spec, "--dry-run").stdout
    check('job "small" could be submitted; nothing was' in text, text)
    check("start       at once, if no other job waits" in text and "steps " in text and "partitions " in text, text)
    check("time        a replica's step: " in text and "an epoch: at least " in text, text)
    told = json.loads(up.cairn("--json", "submit", spec, "--dry-run").stdout)
    probe = told["probe"]
    check(probe["steps"] == 5 and probe["step_ms"] > probe["data_ms"] >= 0 and probe["program_bytes"] > 0, probe)
    check(probe["slots"] == 2 and probe["epoch_seconds_at_least"] > 0, probe)
    short = up.cairn("submit", spec, "--dry-run", "--set", "epochs=1", "--set", "steps_per_epoch=1").stdout
    check("time        not measured: the job has one step, which would be one to warm up" in short, short)
    check(told["would_wait_for"] == "" and told["total_steps"] > 0 and told["spec"]["name"] == "small", told)
    for setting, expected in (
        ("data.path=/nowhere", "data.path"),
        ("batch_size=0", "batch_size"),
        ("optimizer.sgd.learning_rate=-1", "learning_rate"),
    ):
        wrong = up.cairn("submit", spec, "--dry-run", "--set", setting, code=2)
        check(expected in wrong.stderr, wrong.stderr)
    waits = up.cairn("submit", spec, "--dry-run", "--set", "min_workers=4").stdout
    check("start       waits for workers: 2 alive, min_workers is 4" in waits, waits)
    both = up.cairn("submit", spec, "--dry-run", "--watch", code=2)
    check("--dry-run: submits nothing" in both.stderr, both.stderr)
    check(json.loads(up.cairn("--json", "jobs").stdout)["jobs"] == [], "a dry run submitted a job")


def try_logs(up, spec):
    follow = subprocess.Popen(
        [CAIRN, "events", "-f", "--limit", "1"], env=up.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    first = follow.stdout.readline()
    up.cairn("submit", spec)
    # Followed while it runs, until it has ended.
    told = [json.loads(line) for line in lines(up.cairn("--json", "logs", "1", "-f"))]
    check(any(line["daemon"] == "coordinator" and "job 1: succeeded" in line["text"] for line in told), told)
    check({line["daemon"].split("-")[0] for line in told} == {"coordinator", "ps", "worker"}, told)
    check(all(line["text"].startswith("job 1:") for line in told), told)
    numbers = [(line["daemon"], line["number"]) for line in told]
    check(len(set(numbers)) == len(numbers), f"a line was told twice: {numbers}")
    job = lines(up.cairn("logs", "small", "--tail", "10000"))
    check(any("coordinator] job 1: succeeded" in line for line in job) and len(job) >= len(told), job)
    check([line[:23] for line in job] == sorted(line[:23] for line in job), "lines are not in order")

    newest = json.loads(up.cairn("--json", "logs", "ps-0", "--tail", "1").stdout)
    check(newest["daemon"] == "ps-0" and newest["severity"] == "info" and newest["number"] > 1, newest)
    check("listening on" in up.cairn("logs", "ps-0").stdout, "the first lines of a ps are kept")
    check("job 1" in up.cairn("logs").stdout, "the coordinator's own log")
    check(up.cairn("logs", "worker-0", "--level", "error").stdout == "", "nothing went wrong")
    for arguments, expected in (
        (("logs", "nothing"), 'there is no node and no job "nothing"'),
        (("logs", "--node", "nothing"), 'there is no node "nothing"'),
        (("logs", "--node", "nothing", "-f"), 'there is no node "nothing"'),
        (("events", "--node", "nothing"), 'there is no node "nothing"'),
        (("logs", "ps-0", "--node", "ps-1"), "--node: give it or NAME, not both"),
        (("logs", "ps-0", "--level", "loud"), "use debug, info, warning or error"),
        (("events", "--job", "nothing"), "nothing"),
    ):
        refused = up.cairn(*arguments, code=2)
        check(expected in refused.stderr, refused.stderr)

    events = lines(up.cairn("events"))
    check(any('ps "ps-0" joined' in line for line in events), events)
    check(any('job 1 "small": running: steps' in line for line in events), events)
    of_job = [json.loads(line) for line in lines(up.cairn("--json", "events", "--job", "small"))]
    check(of_job and all(event["job_id"] == 1 for event in of_job), of_job)
    check([event["number"] for event in of_job] == sorted(event["number"] for event in of_job), of_job)
    of_node = lines(up.cairn("events", "--node", "worker-1"))
    check(len(of_node) == 1 and 'worker "worker-1" joined' in of_node[0], of_node)
    told = [first]
    while "succeeded" not in told[-1]:
        told.append(follow.stdout.readline())
        check(told[-1], f"the follower ended: {told}")
    check(sum("queued" in line for line in told) == 1, told)
    follow.send_signal(signal.SIGINT)
    check(follow.wait(30) == 130, "Ctrl-C ends it")


def try_lost(up):
    """A worker that is killed and started again: its log begins anew, and the events say what happened."""
    before = json.loads(up.cairn("--json", "logs", "worker-0", "--tail", "1").stdout)["time_ms"]
    pids = {}
    for pid in up.children():
        with open(f"/proc/{pid}/cmdline") as f:
            words = f.read().split("\0")
        if "worker-0" in words or any(word.endswith("worker-0") for word in words):
            pids[pid] = words
    check(len(pids) == 1, f"one process is worker-0: {pids}")
    os.kill(next(iter(pids)), signal.SIGKILL)

    def restarted():
        done = subprocess.run([CAIRN, "--json", "logs", "worker-0"], env=up.env, capture_output=True, text=True)
        first = done.stdout.splitlines()[:1]
        return done.returncode == 0 and first and json.loads(first[0])["time_ms"] > before

    until(restarted, "the new process' log can be read")
    text = up.cairn("events", "--node", "worker-0").stdout
    check("has lost its session" in text or "was restarted" in text or text.count("joined") == 2, text)


PYTHON = """
import sys, cairn
with cairn.Client(sys.argv[1]) as client:
    checked = client.check(sys.argv[2])
    assert checked.job_id == 0 and checked.total_steps > 0 and checked.reason == "", checked
    try:
        client.check(sys.argv[2], set={"data.path": "/nowhere"})
    except cairn.InvalidArgument as error:
        assert "data.path" in str(error), error
    else:
        raise AssertionError("data that is not there")
    assert len(client.jobs()) == 1
    events = client.events(job="small")
    assert events and all(event.job_id == 1 for event in events), events
    assert any("joined" in event.text for event in client.events(node="ps-0"))
    assert all(event.warning for event in client.events(warnings_only=True))
    texts = [line.text for line in client.logs("ps-0")]
    assert any("listening on" in text for text in texts), texts
    assert all(text.startswith("job 1:") for text in (line.text for line in client.logs("ps-0", job="small")))
    assert len(client.logs(tail=2)) == 2
    try:
        client.logs("nothing")
    except cairn.NotFound as error:
        assert "there is no node" in str(error), error
    else:
        raise AssertionError("a node that is not there")
"""


def main():
    with tempfile.TemporaryDirectory() as directory:
        glyphs = make_glyphs(directory)
        spec = small_job(directory, glyphs)
        with Up(directory, "--ps", "2", "--workers", "2", "--slots", "1") as up:
            try_dry_run(up, spec)
            try_logs(up, spec)
            module = os.path.join(os.path.dirname(BIN), "python")
            if os.path.isdir(module):
                subprocess.run(
                    [sys.executable, "-c", PYTHON, up.env["CAIRN_COORDINATOR"], spec],
                    env={**up.env, "PYTHONPATH": module},
                    check=True,
                    timeout=120,
                )
            try_lost(up)
    print("ok")


if __name__ == "__main__":
    main()
