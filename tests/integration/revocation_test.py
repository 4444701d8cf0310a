"""Goal: a certificate that is revoked while its bearer is connected is of no more use: calls on an open connection and
pages are refused, an open watch ends, a worker loses its session and does not come back; the others go on. A list
that goes away stays in use."""

import os
import ssl
import subprocess
import urllib.error
import urllib.request

from cluster import BIN, SOURCE, Cluster, check
from jobs import make_glyphs, small_job
from roles_test import JOBS, channel, make, outcome

CAIRN = os.path.join(BIN, "cairn")


def page(base, folder):
    known = ssl.create_default_context(cafile=f"{folder}/ca.crt")
    known.load_cert_chain(f"{folder}/tls.crt", f"{folder}/tls.key")
    try:
        with urllib.request.urlopen(f"{base}/api/v1/jobs", context=known, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def main():
    with Cluster(ps=0, workers=0) as folder:
        certs = f"{folder.dir}/certs"
        make(certs, "coordinator+ps=*+worker=*+admin:node", "worker:other", "user:alice", "user:bob")
        os.environ["CAIRN_TLS_DIR"] = f"{certs}/node"
        with Cluster(ps=1, workers=1, coordinator_flags=["--http", "127.0.0.1:0"]) as c:
            revoked_one(c, certs)
        del os.environ["CAIRN_TLS_DIR"]


def revoked_one(c, certs):
    c.add_worker("other", "--tls-dir", f"{certs}/other")
    c.wait_for_nodes(3)
    base = c.wait_for_log("coordinator", r"pages, metrics and probes on (https://\S+)").group(1)
    job = c.submit(small_job(c.dir, make_glyphs(c.dir), 5000))
    c.wait_for_step(job, 10)
    alice = {**os.environ, "CAIRN_TLS_DIR": f"{certs}/alice"}
    mine = small_job(c.dir, f"{c.dir}/glyphs", 1, name="mine.textproto")
    argv = [
        CAIRN,
        "--coordinator",
        c.address,
        "submit",
        mine,
        "--set",
        "name=mine",
        "--set",
        "min_workers=4",
        "--watch",
    ]
    watch = subprocess.Popen(argv, env=alice, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with channel(c.address, f"{certs}/alice") as to, channel(c.address, f"{certs}/bob") as of_bob:
        check(outcome(to, JOBS + "ListJobs", "uu")[0] == "OK", "alice is let in")
        check(page(base, f"{certs}/alice")[0] == 200, "alice sees the page")
        c.until(lambda: "mine" in c.cairn("jobs").stdout, "her job is there", 60)
        subprocess.run([f"{SOURCE}/deploy/revoke_certs.sh", certs, "alice", "other"], check=True)
        c.until(lambda: outcome(to, JOBS + "ListJobs", "uu")[0] == "UNAUTHENTICATED", "alice is refused", 120)
        code, text = outcome(to, JOBS + "ListJobs", "uu")
        check("your certificate was revoked" in text, f"{code}: {text}")
        check(outcome(of_bob, JOBS + "ListJobs", "uu")[0] == "OK", "bob is let in")
        c.wait_for_log("coordinator", r"crl.pem: 2 certificates are revoked")
    c.until(lambda: page(base, f"{certs}/alice")[0] == 401, "alice does not see the page", 120)
    check(page(base, f"{certs}/bob")[0] == 200, "bob sees the page")
    c.until(lambda: not alive(c, "other"), "the other worker is out", 120)
    c.cairn("cancel", "mine")  # the news that ends alice's watch
    error = watch.communicate(timeout=120)[1]
    check(watch.returncode == 1 and "was revoked" in error, f"the watch: {watch.returncode}, {error}")
    before = c.job(job)["step"]
    c.wait_for_step(job, before + 50)
    check(not alive(c, "other"), "the other worker is back")
    os.remove(f"{certs}/node/crl.pem")
    c.wait_for_log("coordinator", r"crl.pem is gone; the list before stays in use")
    with channel(c.address, f"{certs}/alice") as to:
        check(outcome(to, JOBS + "ListJobs", "uu")[0] == "UNAUTHENTICATED", "the former list is in use")


def alive(c, name):
    return any(n["name"] == name and n.get("alive") for n in c.nodes())


if __name__ == "__main__":
    main()
