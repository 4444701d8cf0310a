"""Goal: the dashboard in a real browser, on a cluster with two trained jobs: no script fails, nothing is wider than the
window at 400 and 1,400 pixels, texts can be read in light and dark, all can be used from the keyboard and has a name;
curves zoom, and jobs are compared.

    dashboard_test.py [FOLDER]      keeps screenshots there; 77: there is no Chromium or node on this machine
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile

from cli_test import Up
from cluster import check
from jobs import make_glyphs, small_job

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    programs = {name: shutil.which(name) for name in ("chromium", "node")}
    for name, path in programs.items():
        if path is None:
            print(f"skipped: {name} is not installed (deploy/install_deps.sh test)")
            return 77
    with tempfile.TemporaryDirectory() as work:
        folder = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else work
        os.makedirs(folder, exist_ok=True)
        spec = small_job(work, make_glyphs(work, 400, 100), epochs=6)
        with Up(work, "--ps", "2", "--workers", "2") as up:
            base = re.search(r"http://127\.0\.0\.1:\d+", up.log())
            check(base, f"cairn up does not say where its pages are: {up.log()}")
            for rate in ("0.003", "0.01"):
                up.cairn("submit", spec, "--set", f"optimizer.learning_rate={rate}", "--watch")
            script = os.path.join(HERE, "dashboard_page.mjs")
            done = subprocess.run(
                [programs["node"], script, programs["chromium"], base.group(0), "1", "2", folder],
                capture_output=True,
                text=True,
                timeout=600,
            )
            shutil.rmtree(f"{folder}/profile", ignore_errors=True)
            check(done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
