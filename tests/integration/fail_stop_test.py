"""Disks that fail under a ps and a coordinator: a call fails (EIO, no space, a short write), each at many places. The
daemon says which path failed and ends with 1, or goes on where the call did not matter; once it is started again on a
disk that works the job ends with the digest of the undisturbed run.

The calls are those of the daemon itself: a preloaded library (tests/unit/storage/faulty_calls.cc) stands before the C
library and lets one of them fail.
"""

import os
import random
import subprocess
import sys

from cluster import BIN, Cluster, check
from jobs import make_glyphs, small_job

LIBRARY = os.path.join(BIN, "..", "tests", "libcairn_faulty_files.so")
EPOCHS = 3
# Everything on one ps, without a backup, synced before it is acknowledged.
JOB = {"max_workers": 1, "partition_bytes": 12288, "backups": 0, "durability": "LOGGED", "fsync": "true"}
SEED = int(os.environ.get("CAIRN_TEST_SEED", "20261124"))


def preload(folder, call, kind):
    return [
        "env",
        f"LD_PRELOAD={LIBRARY}",
        f"CAIRN_FAULT_FOLDER={folder}",
        f"CAIRN_FAULT_CALL={call}",
        f"CAIRN_FAULT_KIND={kind}",
    ]


def digest_of(c, job):
    return c.until(lambda: c.job(job).get("digest"), f"job {job} ends", timeout=300)


def fails(c, name, call, kind, want):
    """The daemon runs with the fault until the job has ended, or until it ends itself; then it is started without."""
    c.kill(name)
    job = None
    mark = len(c.log(name))
    c.prefix[name] = preload(f"{c.dir}/{name}", call, kind)
    c.restart(name)
    ended = lambda: c.processes[name].poll() is not None
    try:
        c.until(lambda: ended() or len(c.nodes()) == 2, "the daemon serves or ends", 60)
    except subprocess.CalledProcessError:
        check(ended(), f"{name} neither serves nor ends")
    if not ended():
        spec = small_job(c.dir, c.data, EPOCHS)
        job = c.until(lambda: c.try_submit(spec, JOB) or (ended() and "none"), f"a job is there, or {name} ends", 120)
        job = None if job == "none" else job
        if job is not None:

            def over():
                return ended() or (c.try_job(job) or {}).get("digest")

            c.until(over, f"job {job} or {name} ends", timeout=300)
    del c.prefix[name]
    died = ended()
    if died:
        text = c.log(name)[mark:]
        code = c.processes[name].returncode
        check(code == 1, f"call {call} {kind}: {name} ended with {code}\n{text}")
        check(f"{c.dir}/{name}" in text, f"call {call} {kind}: {name} ended without naming its path\n{text}")
        check(kind != "short", f"call {call}: {name} ended because of a short write\n{text}")
        c.restart(name)
        c.wait_for_nodes(2)
    if job is None:
        job = c.submit(small_job(c.dir, c.data, EPOCHS), JOB)
    check(digest_of(c, job) == want, f"call {call} {kind}: another digest")
    return died


def cases(c, name, want, count):
    random.seed(SEED)
    ends = tried = 0
    # Many calls are those of RocksDB's own log, which do not matter: until one that does was met.
    while tried < count or (ends == 0 and tried < 10 * count):
        call = random.randrange(400 if name == "ps-0" else 120)
        ends += fails(c, name, call, ("io", "no_space", "short")[tried % 3], want)
        tried += 1
    check(ends > 0, f"{name}: none of {tried} failed calls mattered")
    print(f"{name}: {tried} failed calls, it ended at {ends} of them", flush=True)


def main():
    if not os.path.exists(LIBRARY):
        print(f"{LIBRARY} is not built")
        return 77
    count = int(os.environ.get("CAIRN_TEST_ROUNDS", "9"))
    with Cluster(ps=1, workers=1) as c:
        c.data = make_glyphs(c.dir)
        want = digest_of(c, c.submit(small_job(c.dir, c.data, EPOCHS), JOB))
        cases(c, "ps-0", want, count)
        cases(c, "coordinator", want, count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
