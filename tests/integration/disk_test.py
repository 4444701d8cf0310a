"""Failing disks: full, read-only, damaged. A process that cannot continue says so within 30 s, with the path or the
node's name; the others continue.

A full or read-only disk is a small tmpfs in a separate mount namespace of the daemon (unshare; no root needed if the
kernel allows user namespaces). If that is not possible, those cases are skipped with the reason. A limit on file sizes
(RLIMIT_FSIZE) works everywhere.
"""

import glob
import os
import resource
import subprocess
import sys
import time

from cluster import Cluster, check
from jobs import make_glyphs, small_job

WITHIN_S = 30
LONG = 1000000  # in epochs: far longer than the test takes on any machine
# One partition, on the first ps to join, without a backup.
ON_ONE_PS = {"max_workers": 1, "partition_bytes": 4 << 20, "backups": 0, "durability": "LOGGED"}
ON_ALL_PS = {"max_workers": 1, "partition_bytes": 12288, "backups": 0, "durability": "LOGGED"}


def namespace_refused():
    """Why a daemon cannot have its own file system here; None if it can."""
    probe = on_tmpfs("/tmp", "size=1m") + ["true"]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, timeout=30)
    except OSError as error:
        return str(error)
    return None if done.returncode == 0 else done.stderr.strip()


def on_tmpfs(path, options):
    """A command prefix under which `path` is a tmpfs that exists as long as the process."""
    return [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        f'mount -t tmpfs -o {options} none "$0" && exec "$@"',
        path,
    ]


def with_file_size(limit):
    """Runs in the child process: its files cannot grow beyond `limit` bytes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))


def ends(c, name, says, code=1):
    """The daemon ends by itself, with an error that contains all of `says`."""
    try:
        got = c.processes[name].wait(timeout=WITHIN_S)
    except subprocess.TimeoutExpired:
        check(False, f"{name} goes on after {WITHIN_S} s")
    check(got == code, f"{name}: exit {got}, wanted {code}")
    for text in says:
        check(text in c.log(name), f"{name} ended without naming {text!r}")


def others_alive(c, but):
    for name, process in c.processes.items():
        check(name == but or process.poll() is None, f"{name} ended too, with {process.poll()}")


def advances(c, job):
    step = int(c.job(job)["step"])
    c.until(lambda: int(c.job(job)["step"]) > step, f"a further step of job {job}")


def says_why(c, job, names):
    """Within 30 s the job's reason contains all of `names`; the job has failed or is waiting."""

    def look():
        status = c.job(job)
        check(status["state"] != "SUCCEEDED", f"job {job} succeeded on a broken disk")
        return all(n in status.get("reason", "") for n in names) and status

    return c.until(look, f"job {job} names {names}", WITHIN_S)


# ---- full ----


def ps_full(c, limit, prefix):
    """ps-1's disk holds a few MB. The job that is stored there stops with the reason; the job on ps-0 continues."""
    data = make_glyphs(c.dir)
    healthy = c.submit(small_job(c.dir, data, LONG), ON_ONE_PS)
    c.wait_for_step(healthy, 5)
    c.prepare["ps-1"] = with_file_size(limit) if limit else None
    c.prefix["ps-1"] = prefix(f"{c.dir}/ps-1") if prefix else []
    os.makedirs(f"{c.dir}/ps-1", exist_ok=True)
    c.add_ps("ps-1")
    c.wait_for_nodes(4)
    doomed = c.submit(small_job(c.dir, data, LONG), ON_ALL_PS)
    # On a busy machine the disk may be full before this looks.
    c.until(lambda: int(c.job(doomed)["step"]) >= 1, f"a step of job {doomed}")
    end = time.monotonic() + 300  # until it is full
    c.until(lambda: "ps-1" in c.job(doomed).get("reason", ""), "ps-1's disk is full", end - time.monotonic())
    status = says_why(c, doomed, ["ps-1"])
    last = c.log("ps-1").strip().splitlines()[-1]
    check(c.processes["ps-1"].poll() in (None, 1), f"ps-1 ended with {c.processes['ps-1'].poll()}: {last}")
    check(f"{c.dir}/ps-1" in c.log("ps-1"), "ps-1 does not name its path")
    print(f"full: {status['state']}: {status['reason']}\n    {last}", flush=True)
    others_alive(c, but="ps-1")
    advances(c, healthy)
    c.cairn("cancel", healthy)


def coordinator_full(c):
    """The coordinator exits when it cannot store; nodes keep running and find it again once there is space."""
    data = make_glyphs(c.dir)
    job = c.submit(small_job(c.dir, data, LONG), ON_ONE_PS)
    c.wait_for_step(job, 2)
    c.kill("coordinator")
    c.prepare["coordinator"] = with_file_size(64 << 10)
    c.restart("coordinator")
    end = time.monotonic() + 120
    while c.processes["coordinator"].poll() is None:  # every submission is stored
        check(time.monotonic() < end, "the coordinator stores more than its disk holds")
        c.cairn("submit", small_job(c.dir, data, 1), "--set", "min_workers=9", ok=False)
    ends(c, "coordinator", [f"{c.dir}/coordinator"])
    others_alive(c, but="coordinator")
    c.prepare["coordinator"] = None
    c.restart("coordinator")
    c.wait_for_nodes(3)
    c.wait_for_step(job, int(c.job(job)["step"]) + 1)


# ---- read-only, or none ----


def start_refused(c, name, path, says):
    """The daemon does not start with this data directory; no other process is affected."""
    at = c.commands[name].index("--data-dir") + 1
    good = c.commands[name][at]
    c.commands[name][at] = path
    c.restart(name)
    ends(c, name, says)
    others_alive(c, but=name)
    c.commands[name][at] = good


def comes_back(c, name):
    c.restart(name)
    c.wait_for_nodes(3)


def unusable_directories(c):
    file = f"{c.dir}/a-file"
    with open(file, "w") as f:
        f.write("x")
    for name in ("ps-0", "coordinator"):
        c.kill(name)
        for path in (file, f"{file}/below", "/proc/cairn"):
            start_refused(c, name, path, [path])
        comes_back(c, name)


def read_only(c):
    for name in ("ps-0", "coordinator"):
        c.kill(name)
        path = f"{c.dir}/read-only-{name}"
        os.makedirs(path)
        c.prefix[name] = on_tmpfs(path, "ro,size=1m")
        start_refused(c, name, path, [path, "ead-only"])
        del c.prefix[name]
        comes_back(c, name)


# ---- damaged ----


def flip(path, share):
    """Alters eight bytes at the fraction `share` of the file."""
    with open(path, "r+b") as f:
        f.seek(0, 2)
        at = int(f.tell() * share)
        f.seek(at)
        old = f.read(8)
        f.seek(at)
        f.write(bytes(b ^ 0x5A for b in old))


def alter(pattern):
    """Damages the largest file, which certainly contains data. Damages all tables in several places, since the data in
    one place may be outdated."""
    found = sorted((f for f in glob.glob(pattern) if os.path.getsize(f) > 0), key=os.path.getsize)
    check(found, f"no {pattern}: {os.listdir(os.path.dirname(pattern))}")
    tables = pattern.endswith(".sst")
    for path in found if tables else found[-1:]:
        for share in (0.05, 0.3, 0.6, 0.9) if tables else (0.4,):
            flip(path, share)


def damaged(c, node, store, kinds):
    """Damages each kind of file in turn, in a copy of the state after a kill -9."""
    c.kill(node)
    good = f"{store}.good"
    subprocess.run(["cp", "-a", store, good], check=True)
    for kind in kinds:
        alter(f"{store}/{kind}")
        mark = len(c.log(node))
        c.restart(node)

        def told():
            text = c.log(node)[mark:]
            return c.processes[node].poll() is not None or "damaged" in text or "Corruption" in text or "joined" in text

        c.until(told, f"{node} says what is damaged ({kind})", WITHIN_S)
        text = c.log(node)[mark:]
        if c.processes[node].poll() is not None:
            check(c.processes[node].returncode == 1, f"{node} {kind}: exit {c.processes[node].returncode}\n{text}")
            check(store in text, f"{node} {kind}: ends without naming {store}\n{text}")
        others_alive(c, but=node)
        yield kind, text
        if c.processes[node].poll() is None:
            c.kill(node)
        subprocess.run(["rm", "-rf", store], check=True)
        subprocess.run(["cp", "-a", good, store], check=True)


def damaged_ps(c):
    data = make_glyphs(c.dir)
    healthy = c.submit(small_job(c.dir, data, LONG), ON_ONE_PS)
    c.wait_for_step(healthy, 1)
    c.add_ps("ps-1")
    c.wait_for_nodes(4)
    doomed = c.submit(small_job(c.dir, data, LONG), ON_ALL_PS)
    c.wait_for_step(doomed, 40)
    c.kill("ps-1")
    c.restart("ps-1")  # reopening a store writes its tables
    c.wait_for_step(doomed, int(c.job(doomed)["step"]) + 20)
    for kind, text in damaged(
        c, "ps-1", f"{c.dir}/ps-1/store", ("db/MANIFEST-*", "db/CURRENT", "db/*.sst", "db/*.log", "values/*.values")
    ):
        status = says_why(c, doomed, ["ps-1"])
        advances(c, healthy)
        line = next((l for l in text.splitlines() if " E ps-1]" in l), "(no error)")
        print(f"damaged {kind}: {line}\n    job: {status['state']}: {status['reason']}", flush=True)
        if status["state"] == "FAILED":
            break


def damaged_with_a_backup(c):
    """Every table, and then the manifest, of a stopped ps is damaged. The job always continues with its backups. The ps
    says which path is damaged, gets no work if it keeps running, and can rejoin with an empty directory."""
    c.add_ps("ps-1")
    c.wait_for_nodes(4)
    job = c.submit(
        small_job(c.dir, make_glyphs(c.dir), LONG), {**ON_ALL_PS, "backups": 1, "durability": "LOGGED_AND_REPLICATED"}
    )
    c.wait_for_step(job, 40)
    store = f"{c.dir}/ps-1/store"
    for _ in range(2):  # reopening a store writes its tables
        comes_back_whole(c, job)
    for pattern in ("db/*.sst", "db/MANIFEST-*"):
        c.kill("ps-1")
        alter(f"{store}/{pattern}")
        mark = len(c.log("ps-1"))
        c.restart("ps-1")
        c.until(
            lambda: c.processes["ps-1"].poll() is not None or store in c.log("ps-1")[mark:],
            f"ps-1 names {store}",
            WITHIN_S,
        )
        text = c.log("ps-1")[mark:]
        check(
            "orruption" in text or "damaged" in text or "mismatch" in text,
            f"ps-1 does not say that it is damaged:\n{text}",
        )
        others_alive(c, but="ps-1")
        advances(c, job)
        print(f"{pattern} damaged: {[l for l in text.splitlines() if store in l][0]}", flush=True)
        if c.processes["ps-1"].poll() is None:
            node = c.until(
                lambda: next((n for n in c.nodes() if n["name"] == "ps-1" and n.get("fault")), None),
                "cairn nodes says it",
            )
            check(f"{c.dir}/ps-1" in node["fault"], node["fault"])
            check("failed" in c.cairn("nodes").stdout, "the table of nodes says it")
            c.kill("ps-1")
        subprocess.run(["rm", "-rf", f"{c.dir}/ps-1"], check=True)
        comes_back_whole(c, job)
    advances(c, job)


def comes_back_whole(c, job):
    """ps-1 is stopped if it is running, started, and has copies in sync again."""
    if c.processes["ps-1"].poll() is None:
        c.kill("ps-1")
    mark = len(c.log("ps-1"))
    c.restart("ps-1")
    c.until(lambda: "joined the cluster" in c.log("ps-1")[mark:], "ps-1 joins again")
    generation = int(c.job(job)["generation"])
    c.until(lambda: holds(c, job, "ps-1"), f"ps-1 holds copies in sync in generation {generation} or later", timeout=90)


def holds(c, job, name):
    """The ps has a copy in sync of every partition; there are two ps and one backup."""
    return all(
        p["primary"] == name or any(b["node"] == name and b.get("in_sync") for b in p.get("backups", []))
        for p in c.job(job)["partitions"]
    )


def damaged_coordinator(c):
    data = make_glyphs(c.dir)
    job = c.submit(small_job(c.dir, data, LONG), ON_ONE_PS)
    c.wait_for_step(job, 2)
    for kind, text in damaged(c, "coordinator", f"{c.dir}/coordinator", ("db/MANIFEST-*", "db/CURRENT", "db/*.log")):
        # Its message arrives before its end.
        c.until(
            lambda: c.processes["coordinator"].poll() is not None, f"the coordinator ends on a damaged {kind}: {text}"
        )
        print(f"damaged {kind}: {text.strip().splitlines()[-1]}", flush=True)
    c.restart("coordinator")
    c.wait_for_nodes(3)
    c.wait_for_step(job, int(c.job(job)["step"]) + 1)


def one_name(c):
    """A data directory is that of one ps. Started without its name it has it still; with another one it does not start.
    What an earlier release left, without the name, is not joined under a new one."""
    job = c.submit(small_job(c.dir, make_glyphs(c.dir), LONG), ON_ONE_PS)
    c.wait_for_step(job, 2)
    named = c.commands["ps-0"]
    at = named.index("--name")
    unnamed = named[:at] + named[at + 2 :]
    c.kill("ps-0")
    c.commands["ps-0"] = [*unnamed, "--name", "ps-7"]
    c.restart("ps-0")
    ends(c, "ps-0", ['it is that of ps "ps-0", not of "ps-7"', "start it with --name ps-0"], code=2)
    c.commands["ps-0"] = unnamed
    c.restart("ps-0")
    advances(c, job)
    check([n["name"] for n in c.nodes() if n["name"].startswith("ps")] == ["ps-0"], f"its name: {c.nodes()}")
    c.kill("ps-0")
    os.remove(f"{c.dir}/ps-0/name")
    c.restart("ps-0")
    ends(c, "ps-0", ["start it with the same --name once more"], code=2)
    c.commands["ps-0"] = named
    c.restart("ps-0")
    advances(c, job)
    check(os.path.exists(f"{c.dir}/ps-0/name"), "the name is kept now")


def main():
    refused = namespace_refused()
    cases = [
        lambda c: ps_full(c, 2 << 20, None),
        coordinator_full,
        unusable_directories,
        damaged_ps,
        damaged_coordinator,
        damaged_with_a_backup,
        one_name,
    ]
    if refused is None:
        cases += [lambda c: ps_full(c, None, lambda path: on_tmpfs(path, "size=6m")), read_only]
    else:
        print(f"left out: a disk of one's own needs mount namespaces: {refused}", flush=True)
    wanted = sys.argv[1:]
    for number, case in enumerate(cases):
        if wanted and str(number) not in wanted:
            continue
        with Cluster(ps=1, workers=2) as c:
            case(c)
        print(f"case {number} done", flush=True)


if __name__ == "__main__":
    main()
