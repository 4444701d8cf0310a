"""Goal: `cairn trace` writes what every node of a running job does in some steps, in the Chrome trace event format:
every kind of span in every step, threads whose spans lie within one another, times of one clock; Chrome's own trace
viewer reads each of them. A node that dies is named, what cannot be traced is refused with what to do, and a trace ends
whatever happens to the one who asked for it.
"""

import collections
import json
import os
import signal
import subprocess

from cluster import BIN, SOURCE, Cluster, check
from jobs import make_glyphs, small_job
from npm_packages import install

CAIRN = os.path.join(BIN, "cairn")
WORKER_KINDS = {"decode", "data", "compute", "forward", "backward", "push", "wait", "pull"}
PS_KINDS = {"sum", "apply", "log", "replicate", "send"}
EPOCHS = 100000  # until it is cancelled
LOGGED = "backups: 1 durability: LOGGED_AND_REPLICATED"
VIEWER = "traceviewer@1.0.11"  # Chrome's, as an npm package


def read(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def ns(microseconds):
    return round(microseconds * 1000)


def spans_of(trace):
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def nodes_of(trace):
    """By pid: (role, name, what process_name says)."""
    nodes = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "M" and event["name"] == "process_name":
            role, name = event["args"]["name"].split(" ", 1)
            nodes[event["pid"]] = (role, name, event["args"])
    return nodes


def check_format(trace):
    threads = {(e["pid"], e["tid"]) for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
    nodes = nodes_of(trace)
    by_thread = collections.defaultdict(list)
    for event in trace["traceEvents"]:
        check(event["ph"] in ("M", "X") and event["pid"] in nodes and isinstance(event["args"], dict), event)
    for span in spans_of(trace):
        check(span["ts"] >= 0 and span["dur"] >= 0 and span["args"]["step"] >= 0 and span["name"], span)
        role = nodes[span["pid"]][0]
        check(span["cat"] in (WORKER_KINDS if role == "worker" else PS_KINDS), f"{role}: {span}")
        check((span["pid"], span["tid"]) in threads, f"a thread without a name: {span}")
        by_thread[span["pid"], span["tid"]].append((ns(span["ts"]), -ns(span["dur"])))
    for thread, spans in by_thread.items():
        ends = []
        for begin, length in sorted(spans):
            while ends and ends[-1] <= begin:
                ends.pop()
            check(not ends or begin - length <= ends[-1], f"thread {thread}: a span reaches beyond the one around it")
            ends.append(begin - length)


def check_steps(trace, steps):
    """Each kind in each step, on each node that has such work; the layers by their names."""
    other, nodes = trace["otherData"], nodes_of(trace)
    first, last = other["first_step"], other["last_step"]
    check(last - first + 1 == steps and other["missing"] == {}, other)
    kinds = collections.defaultdict(set)  # by role, name and step
    for span in spans_of(trace):
        role, name, _ = nodes[span["pid"]]
        check(first <= span["args"]["step"] <= last, span)
        kinds[role, name, span["args"]["step"]].add(span["cat"])
    check(sorted(name for _, name, _ in nodes.values()) == ["ps-0", "ps-1", "worker-0", "worker-1"], nodes)
    for step in range(first, last + 1):
        for worker in ("worker-0", "worker-1"):
            check(kinds["worker", worker, step] == WORKER_KINDS, f"{worker}, {step}: {kinds['worker', worker, step]}")
        both = kinds["ps", "ps-0", step] | kinds["ps", "ps-1", step]
        check(both == PS_KINDS and "apply" in kinds["ps", "ps-0", step] & kinds["ps", "ps-1", step], (step, both))
    for cat in ("forward", "backward"):
        layers = {span["name"] for span in spans_of(trace) if span["cat"] == cat and "layer" in span["args"]}
        check({"conv2d", "dense"} <= layers, f"{cat}: {layers}")


def check_order(trace):
    """New values are not at a worker before they were made, nor does a replica begin a step twice or out of order."""
    nodes = nodes_of(trace)
    # A node that died before it answered has no clock, and no spans.
    doubt = {pid: args.get("clock_uncertainty_us") for pid, (_, _, args) in nodes.items()}
    made, begun = {}, collections.defaultdict(list)
    for span in spans_of(trace):
        where = (span["args"].get("partition"), span["args"]["step"])
        if span["cat"] == "apply" and "copy" not in span["args"]:
            check(where not in made, f"made twice: {span}")
            made[where] = (span["ts"] + span["dur"], span["pid"])
        if span["cat"] == "compute":
            begun[span["pid"], span["args"]["replica"]].append((span["ts"], span["args"]["step"]))
    pulls = 0
    for span in spans_of(trace):
        if span["cat"] != "pull":
            continue
        end, ps = made[span["args"]["partition"], span["args"]["step"]]
        least = end - doubt[ps] - doubt[span["pid"]]
        check(span["ts"] + span["dur"] >= least, f"pulled before it was made at {end}: {span}")
        pulls += 1
    check(pulls > 0, "no pulls")
    for replica, steps in begun.items():
        check([step for _, step in sorted(steps)] == sorted({step for _, step in steps}), f"{replica}: {steps}")


def try_whole(c, job):
    done = c.cairn("trace", job, "--steps", "6", "-o", "trace.json")
    check(done.stderr == "", done.stderr)
    trace = read(f"{c.dir}/trace.json")
    first = trace["otherData"]["first_step"]
    says = f"trace.json: steps {first} to {first + 5} of job {job}, 4 nodes, "
    check(done.stdout.startswith(says), done.stdout)
    table = [line.split() for line in done.stdout.splitlines()[1:]]
    check(" ".join(table[0]) == "mean time of a span, and of a step, in ms:", done.stdout)
    check(table[1][0] == "worker" and "compute" in table[1] and table[4][0] == "ps" and "apply" in table[4], table)
    check({table[2][0], table[3][0]} == {"worker-0", "worker-1"}, table)
    check(all(len(row) == len(table[1]) and float(row[-1]) > 0 for row in table[2:4]), table)
    check(table[1][-1] == "step" and " ".join(table[7]).startswith("slowest layers, mean time"), table)
    check(table[8] == ["layer", "forward", "backward", "both"] and 11 <= len(table) <= 14, table)
    layers = {span["name"] for span in spans_of(trace) if "layer" in span["args"]}
    check({row[0] for row in table[9:]} <= layers, f"{table[9:]}, {layers}")
    check_format(trace)
    check_steps(trace, 6)
    check_order(trace)
    check(trace["otherData"]["job_name"] == "small" and trace["otherData"]["synchronous"], trace["otherData"])
    # It is replaced whole, and the job can be traced again at once.
    done = c.cairn("trace", "small", "--steps", "1", "-o", "trace.json", as_json=True)
    again = read(f"{c.dir}/trace.json")
    said, other = json.loads(done.stdout), again["otherData"]
    check(os.path.samefile(said["file"], f"{c.dir}/trace.json") and os.path.isabs(said["file"]), said)
    check(all(said[key] == other[key] for key in ("job_id", "first_step", "last_step", "steps_wanted")), said)
    check(sorted(n["name"] for n in said["nodes"]) == ["ps-0", "ps-1", "worker-0", "worker-1"], said)
    check(sum(n["spans"] for n in said["nodes"]) == len(spans_of(again)), said)
    check(2 <= len(said["slowest_layers"]) <= 5, said)
    check_steps(again, 1)
    check(again["otherData"]["first_step"] > first, "a later step")
    check(not [name for name in os.listdir(c.dir) if ".partial-" in name], os.listdir(c.dir))


def try_viewer(c, names):
    """Chrome's trace viewer finds every node, thread and span, and has nothing to say against them."""
    folder = os.path.join(os.path.dirname(BIN), "npm", VIEWER)
    why = install(VIEWER, folder)
    if why:
        print(f"not read by Chrome's trace viewer: {why}", flush=True)
        return
    for name in names:
        path = f"{c.dir}/{name}"
        argv = ["node", f"{SOURCE}/tests/integration/trace_viewer.cjs", folder, path]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
        check(done.returncode == 0, f"{name}: {done.stderr}")
        seen, trace = json.loads(done.stdout), read(path)
        check(seen["warnings"] == [], f"{name}: {seen['warnings']}")
        expected = collections.defaultdict(dict)
        names_of = {(e["pid"], e["tid"]): e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
        counts = collections.Counter((span["pid"], span["tid"]) for span in spans_of(trace))
        for pid, (role, node, _) in nodes_of(trace).items():
            expected[f"{role} {node}"] = {names_of[t]: counts[t] for t in names_of if t[0] == pid}
        check(seen["processes"] == expected, f"{name}: the viewer sees {seen['processes']}, not {dict(expected)}")
        ends = [span["ts"] + span["dur"] for span in spans_of(trace)]
        seconds = (max(ends) - min(span["ts"] for span in spans_of(trace))) / 1e6
        check(abs(seen["seconds"] - seconds) < 1e-6, f"{name}: {seen['seconds']} s, not {seconds}")


class Trace:
    """A `cairn trace` in the background."""

    def __init__(self, c, job, steps, path):
        argv = [CAIRN, "--coordinator", c.address, "trace", job, "--steps", str(steps), "-o", path]
        self.log = f"{c.dir}/trace.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(argv, cwd=c.dir, stdout=log, stderr=log)

    def running(self):
        return self.process.poll() is None

    def wait(self):
        code = self.process.wait(timeout=300)
        with open(self.log) as f:
            return code, f.read()


REFUSED = "a job has one trace at a time: try again when it has ended, at most 60 s after its beginning"


def start_trace(c, job, steps, path):
    """One that has begun, since the job is refused to another one; or it has ended already."""
    while True:
        trace = Trace(c, job, steps, path)

        def refused():
            done = c.cairn("trace", job, "--steps", "1", "-o", "other.json", ok=False)
            return done.returncode == 1 and REFUSED in done.stderr or not trace.running()

        c.until(refused, "the job is traced")
        if trace.running() or REFUSED not in trace.wait()[1]:  # the other one may have come before it
            return trace


def try_interrupted(c, job):
    """Ctrl-C: what there is is written, and the trace has ended."""
    trace = start_trace(c, job, 1000, "part.json")
    trace.process.send_signal(signal.SIGINT)
    code, text = trace.wait()
    check(code in (0, 1, 130), f"{code}: {text}")
    if code == 130:
        check("of 1000 steps: it was interrupted" in text, text)
        check_format(read(f"{c.dir}/part.json"))
    elif code == 1:
        check(f"no whole step of job {job} was recorded: it was interrupted" in text, text)
    # Killed: the trace ends because nobody reads it.
    trace = start_trace(c, job, 1000, "part.json")
    trace.process.kill()
    trace.wait()
    c.until(lambda: c.cairn("trace", job, "--steps", "1", "-o", "next.json", ok=False).returncode == 0, "it ends")
    check_steps(read(f"{c.dir}/next.json"), 1)


def try_moved(c, glyphs):
    """Replicas move to another worker: it begins anew with the nodes that work then, or all steps were there before."""
    c.restart("worker-1")
    c.until(lambda: all(n.get("alive") for n in c.nodes()), "worker-1 is back")
    job = c.submit(small_job(c.dir, glyphs, EPOCHS, LOGGED), {"name": "moves"})
    c.wait_for_step(job, 10)
    trace = start_trace(c, job, 1000, "moved.json")
    c.cairn("nodes", "drain", "worker-1")
    code, text = trace.wait()
    check(code == 0 and "did no more" not in text, f"{code}: {text}")
    written = read(f"{c.dir}/moved.json")
    check_format(written)
    nodes = sorted(name for _, name, _ in nodes_of(written).values())
    if "moved: the trace begins anew" in text:
        check(nodes == ["ps-0", "ps-1", "worker-0"], f"{nodes}: {text}")
    else:
        other = written["otherData"]
        check(other["last_step"] - other["first_step"] + 1 == 1000, f"{other}: {text}")
    c.cairn("cancel", job)
    c.wait(job, state="CANCELLED")


def try_killed(c, job):
    """A worker that dies is named, and the others' steps are there."""
    for steps in (300, 1000):
        trace = start_trace(c, job, steps, "killed.json")
        during = trace.running()
        if during:
            c.kill("worker-1")
        code, text = trace.wait()
        check(code == 0, f"{code}: {text}")
        if during:
            break
    check('cairn: missing of worker "worker-1": ' in text, text)
    written = read(f"{c.dir}/killed.json")
    check_format(written)
    nodes = {name: args for _, name, args in nodes_of(written).values()}
    check(sorted(nodes) == ["ps-0", "ps-1", "worker-0", "worker-1"], nodes)
    missing = written["otherData"]["missing"]
    check(list(missing) == ["worker-1"] and nodes["worker-1"]["missing"] == missing["worker-1"], missing)
    check("connect" in missing["worker-1"] or "is not known" in missing["worker-1"], missing)
    check_order(written)


def try_wrong(c, job):
    for arguments, expected, code in (
        (("99", "-o", "x.json"), "cairn: there is no job 99\n", 2),
        ((job, "--steps", "0", "-o", "x.json"), "cairn: --steps: 0; use 1 to 1000\n", 2),
        ((job, "--steps", "1001", "-o", "x.json"), "cairn: --steps: 1001; use 1 to 1000\n", 2),
        ((job, "--seconds", "0", "-o", "x.json"), "cairn: --seconds: 0; use 1 to 600\n", 2),
        ((job, "-o", "none/x.json"), f"cairn: -o none/x.json: there is no folder {c.dir}/none; make it first\n", 2),
        ((job, "-o", c.dir), f"cairn: -o {c.dir}: is a folder; name a file in it\n", 2),
        ((job, "-o", "/proc/x.json"), "cairn: -o /proc/x.json: cannot be written: No such file or directory\n", 2),
    ):
        done = c.cairn("trace", *arguments, ok=False)
        check(done.returncode == code and done.stderr == expected, f"{arguments}: {done.returncode}, {done.stderr}")
    done = c.cairn("trace", job, ok=False)
    check(done.returncode == 2 and "--output is required" in done.stderr, done.stderr)
    check(not os.path.exists(f"{c.dir}/x.json"), "a refused command wrote a file")


def try_ended(c, job):
    c.cairn("cancel", job)
    c.wait(job, state="CANCELLED")
    done = c.cairn("trace", job, "-o", "x.json", ok=False)
    expected = f"cairn: job {job} is cancelled: only the steps of a running job can be traced\n"
    check(done.returncode == 2 and done.stderr == expected, done.stderr)
    check(not os.path.exists(f"{c.dir}/x.json"), "a refused command wrote a file")


def try_asynchronous(c, glyphs):
    """Each replica goes its own way: what all nodes did is shown."""
    spec = small_job(c.dir, glyphs, EPOCHS, "strategy: PARAMETER_SERVER")
    job = c.submit(spec, {"name": "free"})
    c.wait_for_step(job, 10)
    c.cairn("trace", job, "--steps", "5", "-o", "free.json")
    trace = read(f"{c.dir}/free.json")
    check_format(trace)
    check(not trace["otherData"]["synchronous"] and trace["otherData"]["missing"] == {}, trace["otherData"])
    kinds = collections.defaultdict(set)
    for span in spans_of(trace):
        kinds[nodes_of(trace)[span["pid"]][0]].add(span["cat"])
    check(kinds["worker"] >= {"compute", "push", "wait", "pull"} and kinds["ps"] >= {"apply"}, kinds)
    c.cairn("cancel", job)
    c.wait(job, state="CANCELLED")


def main():
    with Cluster() as c:
        glyphs = make_glyphs(c.dir)
        try_asynchronous(c, glyphs)
        job = c.submit(small_job(c.dir, glyphs, EPOCHS, LOGGED))
        c.wait_for_step(job, 10)
        try_wrong(c, job)
        try_whole(c, job)
        try_interrupted(c, job)
        try_killed(c, job)
        try_ended(c, job)
        try_moved(c, glyphs)
        try_viewer(c, ("trace.json", "free.json", "killed.json", "moved.json"))
    print("ok", flush=True)


if __name__ == "__main__":
    main()
