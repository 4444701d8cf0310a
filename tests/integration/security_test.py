"""What a cluster refuses: to listen for other machines without TLS, unless it is told to; jobs whose paths lead out of
the workers' roots, at submission, with the field, the path and the roots. Within the roots a job runs, and may name a
root instead of a folder.
"""

import os
import subprocess

from cluster import BIN, Cluster, check
from jobs import make_glyphs, small_job


def start(program, *args):
    argv = [os.path.join(BIN, program), *args]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60)


def listening(c):
    commands = {
        "cairn-coordinator": ["--data-dir", f"{c.dir}/other"],
        "cairn-ps": ["--coordinator", c.address, "--data-dir", f"{c.dir}/other-ps"],
    }
    for program, flags in commands.items():
        done = start(program, *flags, "--listen", "0.0.0.0:0")
        check(done.returncode == 2, f"{program} ends with {done.returncode}: {done.stderr}")
        for text in ("listen: 0.0.0.0:0 can be reached from other machines", "--tls-dir", "--insecure"):
            check(text in done.stderr, f"{program} does not say {text!r}: {done.stderr}")
    done = start("cairn-coordinator", "--data-dir", f"{c.dir}/pages", "--listen", "127.0.0.1:0", "--http", "0.0.0.0:0")
    check(done.returncode == 2 and "--http: 0.0.0.0:0 can be reached" in done.stderr, done.stderr)
    c.commands["open"] = ["cairn-coordinator", "--listen", "0.0.0.0:0", "--data-dir", f"{c.dir}/open", "--insecure"]
    c.restart("open")
    c.wait_for_log("open", r"without TLS \(--insecure\)")
    c.wait_for_log("open", r"listening on 0\.0\.0\.0:(\d+)")


def refused(c, says, *sets):
    args = [a for s in sets for a in ("--set", s)]
    done = c.cairn("submit", small_job(c.dir, f"{c.dir}/in/data", 1), *args, ok=False)
    for text in (*says, f"data={c.dir}/in/data (read), runs={c.dir}/in/runs"):
        check(text in done.stderr, f"{sets}: no {text!r} in: {done.stderr}")


def paths(c):
    os.symlink("/etc", f"{c.dir}/in/runs/out")
    elsewhere = [
        ("data.path", ["data.path=/etc"]),
        ("data.path", [f"data.path={c.dir}/in/data/../../outside"]),
        ("data.cache_dir", ["data.cache_dir=/tmp/cairn-cache"]),
        ("data.cache_dir", [f"data.cache_dir={c.dir}/in/data/cache"]),
        ("checkpoints.dir", ["checkpoints.dir=/tmp/cairn-checkpoints"]),
        ("checkpoints.dir", [f"checkpoints.dir={c.dir}/in/runs/out/cairn"]),
        ("initial_weights", ["initial_weights=/etc/weights.safetensors"]),
        ("resume_from", ["resume_from=/var/checkpoints"]),
    ]
    for field, sets in elsewhere:
        refused(c, [f"{field}: ", sets[0].split("=", 1)[1]], *sets)
    inside = c.submit(
        small_job(c.dir, f"{c.dir}/in/data", 1), {"checkpoints.dir": "runs:/named", "data.path": "data:/"}
    )
    c.until(lambda: c.job(inside)["state"] == "SUCCEEDED", "a job that stays inside", 120)
    check(os.listdir(f"{c.dir}/in/runs/named"), "its checkpoints are below the root")


def main():
    with Cluster(ps=1, workers=0) as c:
        os.makedirs(f"{c.dir}/in/runs")
        os.makedirs(f"{c.dir}/outside")
        made = make_glyphs(c.dir)
        os.rename(made, f"{c.dir}/in/data")
        c.add_worker("worker-0", "--root", f"data={c.dir}/in/data:ro", "--root", f"runs={c.dir}/in/runs")
        c.wait_for_nodes(2)
        listening(c)
        paths(c)


if __name__ == "__main__":
    main()
