"""Goal: a coordinator's HTTPS pages show each caller what its role may see: a user, by certificate or token, nodes and
own jobs alone; an admin, a node and who watches over the cluster everything; nobody else anything but the probes. A
wrong token is in the audit log."""

import json
import os
import pathlib
import shutil
import ssl
import urllib.error
import urllib.request

from cluster import Cluster, check
from jobs import make_glyphs, small_job
from roles_test import make
from tokens_test import new_token, run


def page(base, path, ca_dir, *, token=None, certificate=None):
    """The status and the text of an HTTPS page."""
    known = ssl.create_default_context(cafile=f"{ca_dir}/ca.crt")
    if certificate:
        known.load_cert_chain(f"{certificate}/tls.crt", f"{certificate}/tls.key")
    request = urllib.request.Request(base + path, headers={"Authorization": token} if token else {})
    try:
        with urllib.request.urlopen(request, context=known, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def try_pages_of_jobs(c, ca_dir, certs, alice, bob):
    """A user sees own jobs alone, on every page; who watches over the cluster, and an admin, all."""
    base = c.wait_for_log("coordinator", r"pages, metrics and probes on (https://\S+)").group(1)
    number = json.loads(run(c.address, "--json", "job", "hers", tls=f"{certs}/root").stdout)["job_id"]
    callers = {
        "alice's token": ({"token": f"Bearer {alice}"}, True),
        "alice's certificate": ({"certificate": f"{certs}/alice"}, True),
        "a user's whose programs compute": ({"certificate": f"{certs}/dave"}, False),
        "bob's token": ({"token": f"Bearer {bob}"}, False),
        "bob's token, an admin's certificate": ({"token": f"Bearer {bob}", "certificate": f"{certs}/root"}, False),
        "a node's certificate": ({"certificate": f"{certs}/node"}, True),
        "an admin's certificate": ({"certificate": f"{certs}/root"}, True),
        "a certificate without a role": ({"certificate": f"{certs}/prometheus"}, True),
    }
    for name, (by, sees) in callers.items():
        for path, text in (
            ("/api/v1/jobs", '"hers"'),
            ("/api/v1/overview", '"hers"'),
            ("/api/v1/events", f'"job_id":{number},'),
            ("/metrics", 'cairn_jobs{state="succeeded"} 1\n'),
        ):
            status, body = page(base, path, ca_dir, **by)
            check(status == 200 and (text in body) == sees, f"{path} by {name}: {status}, {text} in {body[:300]}")
        status, body = page(base, f"/api/v1/jobs/{number}", ca_dir, **by)
        check(status == (200 if sees else 403), f"job {number} by {name}: {status}, {body[:200]}")
        status, body = page(base, "/api/v1/jobs/hers", ca_dir, **by)
        check(status == (200 if sees else 404), f"job hers by {name}: {status}, {body[:200]}")


def try_pages(c, ca_dir, token):
    """A coordinator's HTTPS pages, to who has a token."""
    base = c.wait_for_log("coordinator", r"pages, metrics and probes on (https://\S+)").group(1)
    wrong = token[:-64] + "0" * 64
    for authorization, status, says in (
        (None, 403, "or a token"),
        (f"Bearer {wrong}", 401, "not known to this cluster"),
        (f"Basic {token}", 401, "is not"),
        (f"Bearer {token}", 200, '"jobs"'),
    ):
        got, text = page(base, "/api/v1/jobs", ca_dir, token=authorization)
        check(got == status and says in text, f"{authorization and authorization[:10]}: {got}, {text}")
    check(page(base, "/healthz", ca_dir)[0] == 200, "a probe has no token")


def main():
    with Cluster(ps=0, workers=0) as folder:
        certs, ca_dir, audit = (f"{folder.dir}/{name}" for name in ("certs", "ca", "audit.jsonl"))
        make(
            certs,
            "coordinator+ps=*+worker=*+admin:node",
            "user:alice",
            "user+worker:dave",
            "admin:root",
            "monitor:prometheus",
        )
        os.makedirs(ca_dir)
        shutil.copy(f"{certs}/root/ca.crt", ca_dir)
        os.environ["CAIRN_TLS_DIR"] = f"{certs}/node"
        flags = ["--accept-tokens", "--audit-log", audit, "--http", "127.0.0.1:0"]
        with Cluster(ps=1, workers=1, coordinator_flags=flags) as c:
            alice, _ = new_token(c.address, "alice", tls=f"{certs}/root")
            bob, _ = new_token(c.address, "bob", tls=f"{certs}/root")
            job = small_job(c.dir, make_glyphs(c.dir), 1)
            run(c.address, "submit", job, "--set", "name=hers", "--watch", tls=ca_dir, env={"CAIRN_TOKEN": alice})
            try_pages(c, ca_dir, alice)
            try_pages_of_jobs(c, ca_dir, certs, alice, bob)
            lines = [json.loads(line) for line in pathlib.Path(audit).read_text().splitlines()]
            wrong = [line["who"] for line in lines if line["call"] == "pages (--http)"]
            check(f"refused token {alice[6:22]}" in wrong, f"the wrong token of the pages in the audit log: {wrong}")
        del os.environ["CAIRN_TLS_DIR"]


if __name__ == "__main__":
    main()
