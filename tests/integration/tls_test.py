"""Goal: a whole cluster over mutual TLS (--tls-dir, deploy/make_certs.sh). It has the same bits as without, with
workers on TCP, backups and a ps that is killed. A process without a certificate, or with one of another authority, gets
no access and no answer, and learns why. Also etcd over TLS, if it is installed."""

import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request

from cluster import BIN, SOURCE, Cluster, attempts, check, free_port
from jobs import make_glyphs, small_job, undisturbed

CAIRN = os.path.join(BIN, "cairn")


def make_certs(directory, name):
    """A certificate with every role, for nodes of any name."""
    roles = "coordinator+ps=*+worker=*+admin"
    command = [f"{SOURCE}/deploy/make_certs.sh", directory, f"{roles}:{name}"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return os.path.join(directory, name)


def environment(tls_dir):
    env = {k: v for k, v in os.environ.items() if k != "CAIRN_TLS_DIR"}
    return {**env, "CAIRN_TLS_DIR": tls_dir} if tls_dir else env


def refused(address, tls_dir, says):
    out = subprocess.run(
        [CAIRN, "--coordinator", address, "nodes"], env=environment(tls_dir), capture_output=True, text=True, timeout=60
    )
    seen = f"`cairn nodes` with {tls_dir}: exit {out.returncode}, {out.stderr}"
    check(out.returncode == 1 and says in out.stderr, seen)
    check(out.stderr.startswith("cairn: ") and out.stderr.count("\n") == 1, f"gRPC's own lines: {seen}")
    check(out.stderr.index(says) < out.stderr.index("is it running?"), f"TLS is the likelier cause: {seen}")


def check_expiry(c):
    """Every daemon's page says when its certificate expires."""
    tls_dir = os.environ["CAIRN_TLS_DIR"]
    known = ssl.create_default_context(cafile=f"{tls_dir}/ca.crt")
    known.load_cert_chain(f"{tls_dir}/tls.crt", f"{tls_dir}/tls.key")
    known.check_hostname = False
    for name in ("coordinator", "ps-0", "worker-0"):
        page = c.wait_for_log(name, r"metrics and (?:health|probes) on (https://\S+)").group(1)
        text = urllib.request.urlopen(f"{page}/metrics", timeout=60, context=known).read().decode()
        expires = re.search(r"^cairn_certificate_expiry_seconds (\S+)$", text, re.M)
        left = float(expires.group(1)) - time.time() if expires else 0
        check(364 * 86400 < left <= 365 * 86400, f"{name}: {left} s of 365 days\n{text}")


def train(directory, data, epochs):
    pages = ["--http", "127.0.0.1:0"]
    with Cluster(
        ps=2, workers=2, ps_flags=["--unix-socket", "none", *pages], worker_flags=pages, coordinator_flags=pages
    ) as c:
        check_expiry(c)
        job = c.submit(small_job(directory, data, epochs))
        c.wait_for_step(job, 5)
        c.kill("ps-1")
        c.restart("ps-1")
        status = c.wait(job)
        check("TLS" in c.log("ps-0") and "TLS" in c.log("worker-0"), "the log says so")
        refused(c.address, None, "does it speak TLS")
        refused(c.address, os.path.join(directory, "other", "node"), "does it speak TLS, with a certificate")
        # A worker with a foreign certificate says why it waits, and is not in the cluster.
        log = os.path.join(directory, "stranger.log")
        with open(log, "w") as f:
            stranger = subprocess.Popen(
                [os.path.join(BIN, "cairn-worker"), "--coordinator", c.address, "--name", "stranger"],
                env=environment(None),
                stdout=f,
                stderr=f,
            )
        try:
            c.until(lambda: "no coordinator at" in open(log).read(), "the stranger says why it waits")
            check(all(n["name"] != "stranger" for n in c.nodes()), "a stranger is in the cluster")
        finally:
            stranger.terminate()
            stranger.wait(timeout=20)
        return status["digest"]


def same_digest(directory, data, tls_dir, epochs):
    os.environ.pop("CAIRN_TLS_DIR", None)
    plain = undisturbed(epochs)
    os.environ["CAIRN_TLS_DIR"] = tls_dir
    digest = train(directory, data, epochs)
    check(digest == plain, f"over TLS {digest}, in plain {plain}")
    print(f"one digest, {digest}", flush=True)


def up_with_a_named_certificate(directory):
    """`cairn up` with a machine's own certificate: its nodes are named after it, so that they may join."""
    command = [f"{SOURCE}/deploy/make_certs.sh", f"{directory}/named", "coordinator+ps+worker+admin:host-a"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    env = environment(f"{directory}/named/host-a")
    port = str(free_port())
    argv = [CAIRN, "up", "--ps", "1", "--workers", "1", "--slots", "1", "--port", port, "--dir", f"{directory}/up"]
    up = subprocess.Popen(argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with Cluster(ps=0, workers=0) as c:  # only for its waiting

            def alive():
                argv = [CAIRN, "--coordinator", f"127.0.0.1:{port}", "nodes"]
                done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
                return "host-a-ps-0" in done.stdout and "host-a-worker-0" in done.stdout

            c.until(alive, "the nodes of `cairn up` join")
    finally:
        up.terminate()
        up.wait(timeout=60)


def with_etcd(directory, tls_dir):
    """The state is in an etcd that requires certificates too."""
    if shutil.which("etcd") is None:
        print("etcd over TLS: skipped, there is no etcd", flush=True)
        return
    with Cluster(ps=0, workers=0) as c:  # only for its folder and cleanup
        for attempt in range(5):
            if leads_with_etcd(c, f"coordinator-{attempt}", f"{directory}/etcd-{attempt}", tls_dir):
                return
        check(False, "etcd ended each time")


def leads_with_etcd(c, coordinator, etcd_dir, tls_dir):
    """Returns False if etcd ended because another process took one of its ports."""
    port, peer = free_port(), free_port()
    etcd = subprocess.Popen(
        [
            "etcd",
            "--data-dir",
            etcd_dir,
            "--listen-client-urls",
            f"https://127.0.0.1:{port}",
            "--advertise-client-urls",
            f"https://127.0.0.1:{port}",
            "--listen-peer-urls",
            f"http://127.0.0.1:{peer}",
            "--cert-file",
            f"{tls_dir}/tls.crt",
            "--key-file",
            f"{tls_dir}/tls.key",
            "--trusted-ca-file",
            f"{tls_dir}/ca.crt",
            "--client-cert-auth",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        c.commands[coordinator] = [
            "cairn-coordinator",
            "--listen",
            "127.0.0.1:0",
            "--state",
            f"etcd://127.0.0.1:{port}/test",
        ]
        c.restart(coordinator)
        c.until(lambda: "leading, with 0 jobs" in c.log(coordinator) or etcd.poll() is not None, f"{coordinator} leads")
        return etcd.poll() is None
    finally:
        etcd.terminate()
        etcd.wait(timeout=60)


def main():
    with tempfile.TemporaryDirectory(prefix="cairn-tls-") as directory:
        data = make_glyphs(directory)
        make_certs(os.path.join(directory, "other"), "node")
        tls_dir = make_certs(os.path.join(directory, "certs"), "node")
        attempts(lambda times: same_digest(directory, data, tls_dir, 3 * times))
        os.environ.pop("CAIRN_TLS_DIR", None)
        up_with_a_named_certificate(directory)
        os.environ["CAIRN_TLS_DIR"] = tls_dir
        with_etcd(directory, tls_dir)
        wrong = subprocess.run(
            [
                os.path.join(BIN, "cairn-ps"),
                "--coordinator",
                "127.0.0.1:1",
                "--data-dir",
                f"{directory}/x",
                "--tls-dir",
                f"{directory}/nowhere",
            ],
            capture_output=True,
            text=True,
            timeout=60,
        )
        check(wrong.returncode == 2 and "nowhere/ca.crt: cannot be read" in wrong.stderr, wrong.stderr)
        check(not os.path.exists(f"{directory}/x"), "a wrong flag leaves nothing behind")
    print("ok", flush=True)


if __name__ == "__main__":
    sys.exit(main())
