"""Goal: an S3 that takes requests and does not answer holds up the checkpoints of the job that writes there alone. A
job that is cancelled, and a worker that is stopped, give up what they upload, and leave what a killed writer leaves:
the job's next writer removes it.

The server is s3rver from npm; the test is skipped where npm cannot fetch it.
"""

import os
import signal

from cluster import Cluster, check
from jobs import make_glyphs, small_job, undisturbed
from s3_checkpoints_test import STEPS_PER_EPOCH, large_job, roots_of, steps, whole
from s3_server import run_with_server

EPOCHS = 3


def begin_stalled(c, proxy, name):
    """A job of which the second part of a checkpoint is on its way, and stays there."""
    proxy.heal()
    proxy.hold_on()
    held = proxy.held
    proxy.fault("hold", "partNumber=2", times=1_000_000)
    job = c.submit(large_job(c, EPOCHS, name), {"checkpoints.dir": f"out:/{name}", "checkpoints.every_epochs": 1})
    c.until(lambda: proxy.held > held, "a part is on its way")
    return job


def holds_up_no_other(c, server, proxy):
    want = undisturbed(2)
    stalled = begin_stalled(c, proxy, "stalled")
    settings = {"checkpoints.dir": "out:/other", "checkpoints.every_epochs": 1}
    other = c.wait(c.submit(small_job(c.dir, "local:/glyphs", 2), settings))
    check(other["digest"] == want, f"digest {other['digest']}, with folders {want}")
    check(steps(whole(server, "other"))[-1] == 2 * STEPS_PER_EPOCH, "its last checkpoint is there")
    keys = server.keys("runs/stalled/")
    check(not any(key.endswith("manifest.json") for key in keys), f"the first job's is still on its way: {keys}")
    return stalled


def is_given_up_when_cancelled(c, server, proxy, stalled):
    c.until(lambda: proxy.pending("runs/stalled/"), "a checkpoint is being uploaded")
    c.cairn("cancel", stalled)
    c.wait_for_log("worker-0", f"job {stalled}: the checkpoint of step \\d+ is given up")
    check(proxy.pending("runs/stalled/"), "what was begun is left")
    keys = server.keys("runs/stalled/")
    check(any("/writing-" in key for key in keys), f"and its mark: {keys}")
    check(not any(key.endswith("manifest.json") for key in keys), f"a manifest without a checkpoint: {keys}")


def is_given_up_when_stopped(c, server, proxy):
    want = c.wait(c.submit(large_job(c, EPOCHS, "large"), {"checkpoints.dir": "runs:/large"}))["digest"]
    job = begin_stalled(c, proxy, "stopped")
    c.kill("worker-0", signal.SIGTERM)  # waits for its end
    check(c.processes["worker-0"].returncode == 0, f"it ended with {c.processes['worker-0'].returncode}")
    check(proxy.pending("runs/stopped/"), "what was begun is left")
    proxy.heal()
    proxy.let_go()
    c.restart("worker-0")
    ended = c.wait(job)
    check(ended["digest"] == want, f"digest {ended['digest']}, with folders {want}")
    check(not proxy.pending("runs/stopped/"), f"left behind: {proxy.pending('runs/stopped/')}")
    check(steps(whole(server, "stopped"))[-1] == EPOCHS * STEPS_PER_EPOCH, "the last checkpoint is there")


def run(server, proxy):
    with Cluster(ps=1, workers=0, slots=8) as c:
        for folder in ("local", "runs"):
            os.makedirs(f"{c.dir}/{folder}")
        os.rename(make_glyphs(c.dir), f"{c.dir}/local/glyphs")
        c.add_worker("worker-0", *roots_of(c))
        c.wait_for_nodes(2)
        stalled = holds_up_no_other(c, server, proxy)
        is_given_up_when_cancelled(c, server, proxy, stalled)
        is_given_up_when_stopped(c, server, proxy)


def main():
    run_with_server(run)


if __name__ == "__main__":
    main()
