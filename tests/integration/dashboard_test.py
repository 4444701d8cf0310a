"""Goal: the dashboard in a real browser. On a cluster with two trained jobs: no script fails, nothing is wider than the
window at 400 and 1,400 pixels, texts can be read in light and dark, all can be used from the keyboard and has a name;
curves zoom, and jobs are compared. By the keyboard a job is submitted, cancelled and deleted, a node drained and
undrained; another site's page can do none of that. With 1,000 jobs a page draws no more than with 50. A page of a
coordinator that leads no more follows the leader.

    dashboard_test.py [FOLDER]      keeps screenshots there; 77: there is no Chromium or node on this machine
"""

import concurrent.futures
import contextlib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

from cli_test import Up
from cluster import Cluster, check
from jobs import make_glyphs, small_job

HERE = os.path.dirname(os.path.abspath(__file__))
JOBS = 1000
SCRIPT_S = 900
PAGES = r"pages, metrics and probes on (http://\S+)"


class Browser:
    """Runs the scripts beside this file with Chromium; their screenshots go to `folder`."""

    def __init__(self, programs, folder):
        self.programs = programs
        self.folder = folder

    def command(self, script, *args):
        return [self.programs["node"], os.path.join(HERE, script), self.programs["chromium"], *args, self.folder]

    def run(self, script, *args):
        done = subprocess.run(self.command(script, *args), capture_output=True, text=True, timeout=SCRIPT_S)
        check(done.returncode == 0, f"{script}: {done.stdout}\n{done.stderr[-3000:]}")
        print(f"{script}\n{done.stdout}", end="", flush=True)


def post(base, path, fields, **headers):
    """Status and body of what a page does when something is changed."""
    usual = {"Content-Type": "application/json", "X-Cairn-Action": "1"}
    request = urllib.request.Request(base + path, data=json.dumps(fields).encode(), headers={**usual, **headers})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def trained_and_changed(browser, work):
    data = make_glyphs(work, 400, 100)
    spec = small_job(work, data, epochs=6)
    long = small_job(work, data, epochs=5000, name="long.textproto")
    with Up(work, "--ps", "2", "--workers", "2") as up:
        base = re.search(r"http://127\.0\.0\.1:\d+", up.log())
        check(base, f"cairn up does not say where its pages are: {up.log()}")
        for rate in ("0.003", "0.01"):
            up.cairn("submit", spec, "--set", f"optimizer.learning_rate={rate}", "--watch")
        browser.run("dashboard_page.mjs", base.group(0), "1", "2")
        browser.run("dashboard_actions.mjs", base.group(0), long, "worker-1")
        check_foreign(base.group(0), up)


def check_foreign(base, up):
    """A request that a browser made for another site is refused, whatever else it has."""
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": base.replace("http:", "https:")},
        {"Origin": base, "Sec-Fetch-Site": "cross-site"},
    ):
        status, answer = post(base, "/api/v1/jobs/1/delete", {}, **headers)
        check(status == 403 and "another site" in answer["error"], f"{headers}: {status}, {answer}")
    check('"job_id":1,' in up.cairn("--json", "job", "1").stdout.replace(" ", ""), "job 1 is there")
    status, answer = post(base, "/api/v1/jobs/1/delete", {}, **{"Origin": base, "Sec-Fetch-Site": "same-origin"})
    check(status == 200 and answer["job_id"] == 1, f"the page's own: {status}, {answer}")


@contextlib.contextmanager
def cluster_of_ended_jobs(count):
    """A cluster, and where its pages are. Its jobs never ran, without a worker: each was submitted and cancelled."""
    flags = ["--http", "127.0.0.1:0", "--keep-ended-jobs", f"without_weights={count}"]
    with Cluster(ps=0, workers=0, coordinator_flags=flags) as c:
        with open(small_job(c.dir, f"{c.dir}/glyphs"), encoding="utf-8") as file:
            text = file.read()
        base = c.wait_for_log("coordinator", PAGES).group(1)

        def make(i):
            named = text.replace('name: "small"', f'name: "many-{i:04}"')
            status, job = post(base, "/api/v1/jobs", {"text": named})
            check(status == 200, f"submission {i}: {status}, {job}")
            status, job = post(base, f"/api/v1/jobs/{job['job_id']}/cancel", {})
            check(status == 200 and job["state"] == "CANCELLED", f"cancellation {i}: {status}, {job}")

        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            list(pool.map(make, range(count)))
        yield c, base


def many_jobs(browser):
    with cluster_of_ended_jobs(JOBS) as (_, base):
        browser.run("dashboard_many.mjs", base, str(JOBS))


def leader_changes(browser):
    if shutil.which("etcd") is None:
        print("no etcd on this machine: a page whose leader changes was not looked at", flush=True)
        return
    with Cluster(ps=0, workers=0, coordinators=2, etcd=True, coordinator_flags=["--http", "127.0.0.1:0"]) as c:
        leader = c.wait_for_leader()
        other = next(name for name in c.coordinators if name != leader)
        at, behind = (c.wait_for_log(name, PAGES).group(1) for name in (leader, other))
        command = browser.command("dashboard_leader.mjs", at, behind)
        script = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            if script.stdout.readline() == "open\n":
                c.kill(leader, signal.SIGSTOP, wait=False)
                c.wait_for_leader(other_than=leader)
                c.kill(leader, signal.SIGCONT, wait=False)  # it finds that it leads no more
            _, errors = script.communicate(timeout=SCRIPT_S)
            check(script.returncode == 0, f"dashboard_leader.mjs: {errors[-3000:]}")
        finally:
            if script.poll() is None:
                script.terminate()
                script.wait(timeout=60)
    print("pages follow the leader", flush=True)


def main():
    programs = {name: shutil.which(name) for name in ("chromium", "node")}
    for name, path in programs.items():
        if path is None:
            print(f"skipped: {name} is not installed (deploy/install_deps.sh test)")
            return 77
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else work
        os.makedirs(folder, exist_ok=True)
        browser = Browser(programs, folder)
        try:
            trained_and_changed(browser, work)
            many_jobs(browser)
            leader_changes(browser)
        finally:
            for profile in glob.glob(f"{folder}/profile*"):
                shutil.rmtree(profile, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
