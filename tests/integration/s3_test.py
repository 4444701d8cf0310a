"""Goal: a job whose data set lies on S3 trains to the same bits as one that reads files, while the server answers with
errors, cut, short and slow replies. Objects are fetched once for all workers of a machine and again only if they
changed. What cannot be is refused: at the worker's start, or at submission by field and cause. No log has a secret.

The server is s3rver from npm; the test is skipped where npm cannot fetch it.
"""

import gzip
import os
import signal
import subprocess
import tempfile

from cluster import BIN, Cluster, check
from jobs import make_glyphs, restart_alone, small_job
from s3_server import BUCKET, SECRET, run_with_server

FILES = 4  # of the data set glyphs
LABELS = "t10k-labels-idx1-ubyte.gz"
WRONG = "a-secret-that-nobody-has"


def roots_of(c, cache="cache"):
    return [
        *("--root", f"data=s3://{BUCKET}/sets:ro"),
        *("--root", f"local={c.dir}/local:ro"),
        *("--root", f"runs={c.dir}/runs"),
        *("--s3-cache", f"{c.dir}/{cache}"),
    ]


def train(c, path):
    return c.wait(c.submit(small_job(c.dir, path, 1)))["digest"]


def refused(c, says, *sets, path="data:/glyphs"):
    args = [a for s in sets for a in ("--set", s)]
    done = c.cairn("submit", small_job(c.dir, path, 1), *args, ok=False)
    check(done.returncode != 0, f"{path} {sets} is accepted")
    for text in says:
        check(text in done.stderr, f"{path} {sets}: no {text!r} in: {done.stderr}")


def trains_to_the_same_bits(c, proxy):
    local = train(c, "local:/glyphs")
    for kind in ("503", "cut", "short", "slow"):
        proxy.fault(kind, f"/{BUCKET}/sets/glyphs/", times=2)
    proxy.fault("503", "list-type=2")
    remote = train(c, "data:/glyphs")
    check(remote == local, f"from S3 {remote}, from files {local}")
    check(not proxy.unused(), f"faults that nobody met: {proxy.unused()}")
    return local


def fetches_once(c, proxy, digest):
    proxy.forget()
    c.add_worker("worker-1", *roots_of(c))
    c.wait_for_nodes(3)
    check(train(c, "data:/glyphs") == digest, "another digest with two workers")
    check(train(c, f"s3://{BUCKET}/sets/glyphs") == digest, "another digest by the address")
    for name in ("worker-0", "worker-1"):
        c.kill(name)
        c.restart(name)
    c.wait_for_nodes(3)
    check(train(c, "data:/glyphs") == digest, "another digest after a restart")
    job = c.submit(small_job(c.dir, "local:/glyphs", 1))
    c.wait(job)
    losses = [c.evaluate_with(job, "--data", f"{root}:/glyphs")["loss"] for root in ("local", "data")]
    check(losses[0] == losses[1], f"evaluated on files and on S3: {losses}")
    check(proxy.asked_for("list-type=2") >= 3, "each time the objects are listed")
    check(proxy.asked_for("/sets/glyphs/") == 0, f"objects were fetched again: {proxy.asked}")


def takes_new_objects(c, server, proxy):
    proxy.forget()
    with gzip.open(f"{c.dir}/local/glyphs/{LABELS}") as file:
        labels = bytearray(file.read())
    labels[-1] = (labels[-1] + 1) % 10
    server.put(f"sets/glyphs/{LABELS}", gzip.compress(bytes(labels)))
    train(c, "data:/glyphs")
    check(proxy.asked_for(f"GET /bucket/sets/glyphs/{LABELS}") == 1, "the new labels are fetched once")
    check(proxy.asked_for("/sets/glyphs/train") == 0, "the rest is in the cache")


def is_refused(c, server, proxy):
    says = [f'data.cache_dir: "data:/glyphs" lies in the S3 root data=s3://{BUCKET}/sets', "but not this"]
    refused(c, says, "data.cache_dir=data:/glyphs", path="local:/glyphs")
    refused(c, ["data.path: ", "s3://bucket/sets/none: there is no object of this key"], path="data:/none")
    refused(c, ["data.path: ", "no file can be called like it"], path="data:/a/../b")
    server.put("sets/o d+d=(\u00e9)~/%2e.bin", b"x")  # is signed, fetched and called as it is
    refused(c, ["data:/o d+d=(\u00e9)~: cannot tell the format", "found %2e.bin"], path="data:/o d+d=(\u00e9)~")
    server.put("sets/fresh/train.csv", b"a,b\n1,0\n2,1\n" * 50)
    proxy.fault("etag", "/sets/fresh/", times=100)
    refused(c, ["s3://bucket/sets/fresh/train.csv: was changed after it was listed", "another"], path="data:/fresh")
    proxy.heal()


def waits_for_data(c, proxy, digest):
    """A worker that cannot fetch a job's data waits, fails no job by its end, and lets go of one that is cancelled."""
    c.add_worker("worker-2", *roots_of(c, "another-cache"))
    c.wait_for_nodes(4)
    proxy.fault("503", "/sets/glyphs/train-images", times=1_000_000)
    job = c.submit(small_job(c.dir, "data:/glyphs", 1))
    c.wait_for_log("worker-2", "data:/glyphs: fetching")
    c.cairn("cancel", job)
    c.wait(job, state="CANCELLED")
    check(train(c, "local:/glyphs") == digest, "another digest after a job was cancelled")
    job = c.submit(small_job(c.dir, "data:/glyphs", 1))
    c.wait_for_log("worker-2", rf"job {job}: \d of 4 replicas")
    c.kill("worker-2", signal.SIGTERM)
    check(c.wait(job)["digest"] == digest, "another digest after a worker left")
    proxy.heal()


def small_caches(c):
    c.kill("worker-1")
    c.commands["worker-0"] += ["--s3-cache-bytes", "100KiB"]
    restart_alone(c)
    refused(c, ["data.path: ", f"{FILES} objects of ", "do not fit into this worker's cache of 100.0 KiB"])


def wrong_keys(c):
    os.environ["AWS_SECRET_ACCESS_KEY"], os.environ["AWS_SESSION_TOKEN"] = WRONG, ""
    restart_alone(c)
    refused(c, ["data.path: ", "HTTP 403 SignatureDoesNotMatch", "check the keys of AWS_ACCESS_KEY_ID"])
    for name in c.processes:
        check(WRONG not in c.log(name) and "Signature=" not in c.log(name), f"{name} logs a secret")
    os.environ["AWS_SECRET_ACCESS_KEY"] = SECRET


def starts():
    worker = [os.path.join(BIN, "cairn-worker"), "--coordinator", "127.0.0.1:1"]
    with tempfile.TemporaryDirectory() as work:
        cases = [
            (["--root", "a=s3://bucket/x/y:ro", "--root", "b=s3://bucket/x"], {}, "but lies below s3://bucket/x"),
            (["--root", "data=s3://b_/../x:ro"], {}, "no name of a bucket"),
            (["--root", "data=s3://bucket/x:ro"], {"AWS_ACCESS_KEY_ID": ""}, "half of the keys is missing"),
            (["--root", "data=s3://bucket/x:ro"], {"AWS_ENDPOINT_URL": "here"}, "is not of the form http[s]://"),
            (["--root", "data=s3://bucket/x:ro", "--root", work, "--s3-cache", f"{work}/s3"], {}, "by --s3-cache DIR"),
        ]
        for flags, variables, says in cases:
            env = {**os.environ, "XDG_CACHE_HOME": f"{work}/cache", **variables}
            done = subprocess.run([*worker, *flags], capture_output=True, text=True, timeout=60, env=env)
            check(
                done.returncode == 2 and says in done.stderr, f"{flags}: {done.returncode}, no {says!r}: {done.stderr}"
            )


def run(server, proxy):
    starts()
    with Cluster(ps=1, workers=0) as c:
        for folder in ("local", "runs"):
            os.makedirs(f"{c.dir}/{folder}")
        os.rename(make_glyphs(c.dir), f"{c.dir}/local/glyphs")
        server.put_folder("sets/glyphs", f"{c.dir}/local/glyphs")
        c.add_worker("worker-0", *roots_of(c))
        c.wait_for_nodes(2)
        digest = trains_to_the_same_bits(c, proxy)
        fetches_once(c, proxy, digest)
        waits_for_data(c, proxy, digest)
        takes_new_objects(c, server, proxy)
        is_refused(c, server, proxy)
        small_caches(c)
        wrong_keys(c)


def main():
    run_with_server(run)


if __name__ == "__main__":
    main()
