"""Goal: a coordinator's HTTPS pages show each caller what its role may see: a user, by certificate or token, nodes and
own jobs alone; an admin, a node and who watches over the cluster everything; nobody else anything but the probes. What
a page changes, each caller may change who may by gRPC, and no other site's page with a user's certificate; the audit
log has it. A wrong token is in the audit log too. With --http-read-only nobody changes anything."""

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


POSTED = {"Content-Type": "application/json", "X-Cairn-Action": "1"}


def page(base, path, ca_dir, *, token=None, certificate=None, fields=None, headers=None):
    """The status and the text of an HTTPS page. fields: of a POST."""
    known = ssl.create_default_context(cafile=f"{ca_dir}/ca.crt")
    if certificate:
        known.load_cert_chain(f"{certificate}/tls.crt", f"{certificate}/tls.key")
    sent = {**({"Authorization": token} if token else {}), **(POSTED if fields is not None else {}), **(headers or {})}
    body = None if fields is None else json.dumps(fields).encode()
    request = urllib.request.Request(base + path, data=body, headers=sent)
    try:
        with urllib.request.urlopen(request, context=known, timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def try_pages_of_jobs(c, ca_dir, certs, alice, bob):
    """A user sees own jobs alone, on every page; who watches over the cluster, and an admin, all."""
    base = pages_of(c)
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


def pages_of(c):
    return c.wait_for_log("coordinator", r"pages, metrics and probes on (https://\S+)").group(1)


def callers_of(certs, alice, bob):
    """(name, how they show who they are, whether they are a user or admin, whether alice's jobs are theirs to change,
    whether they drain worker-0)."""
    return (
        ("alice's token", {"token": f"Bearer {alice}"}, True, True, False),
        ("alice's certificate", {"certificate": f"{certs}/alice"}, True, True, False),
        ("a user's whose programs compute", {"certificate": f"{certs}/dave"}, True, False, False),
        ("bob's token", {"token": f"Bearer {bob}"}, True, False, False),
        (
            "bob's token, an admin's certificate",
            {"token": f"Bearer {bob}", "certificate": f"{certs}/root"},
            True,
            False,
            False,
        ),
        ("a certificate of an admin and node", {"certificate": f"{certs}/node"}, True, True, True),
        ("an admin's certificate", {"certificate": f"{certs}/root"}, True, True, True),
        ("the node's own certificate", {"certificate": f"{certs}/worker-0"}, False, False, True),
        ("a certificate without a role", {"certificate": f"{certs}/prometheus"}, False, False, False),
        ("nobody", {}, False, False, False),
    )


def try_actions(c, ca_dir, certs, alice, bob):
    """Each caller with each action, against the table of docs/security.md."""
    base = pages_of(c)
    hers = {"token": f"Bearer {alice}"}
    text = pathlib.Path(c.dir, "job.textproto").read_text() + "min_workers: 4\n"  # waits

    def new_job(by, name):
        named = text.replace('name: "small"', f'name: "{name}"')
        return page(base, "/api/v1/jobs", ca_dir, fields={"text": named}, **by)

    def change(by, path, **more):
        return page(base, path, ca_dir, fields=more.pop("fields", {}), **by, **more)

    tried = 0
    for i, (name, by, person, owns, drains) in enumerate(callers_of(certs, alice, bob)):
        status, body = new_job(hers, f"waits-{i}")
        check(status == 200, f"alice submits: {status}, {body}")
        job = json.loads(body)["job_id"]
        steps = (
            ("submit", new_job(by, f"own-{i}"), person),
            ("cancel alice's job", change(by, f"/api/v1/jobs/{job}/cancel"), owns),
            ("of another site", change(by, f"/api/v1/jobs/{job}/cancel", headers={"Origin": "https://evil"}), False),
            ("alice cancels", change(hers, f"/api/v1/jobs/{job}/cancel"), True),
            ("delete alice's job", change(by, f"/api/v1/jobs/{job}/delete"), owns),
            ("drain", change(by, "/api/v1/nodes/worker-0/drain"), drains),
            ("undrain", change(by, "/api/v1/nodes/worker-0/drain", fields={"undo": True}), drains),
        )
        for what, (got, answer), may in steps:
            check(got == (200 if may else 403), f"{what} by {name}: {got}, {answer}")
            check(may or json.loads(answer)["error"], f"{what} by {name}: {answer}")
            tried += 1
        if by:
            rights = json.loads(page(base, "/api/v1/rights", ca_dir, **by)[1])
            told = (rights["submit"], rights["cancel"], rights["delete"])
            check(told == (person, person, person), f"the rights of {name}: {rights}")
            rows = json.loads(page(base, "/api/v1/overview", ca_dir, **by)[1])["nodes"]
            may_drain = next(row["may_drain"] for row in rows if row["name"] == "worker-0")
            check(may_drain == drains, f"{name} is shown that it may drain: {may_drain}")
    status, answer = change(hers, "/api/v1/jobs", fields={"text": "x" * (9 << 20)})  # sent whole before it reads
    check(status == 413 and json.loads(answer)["code"] == "INVALID_ARGUMENT", f"a large body: {status}, {answer}")
    print(f"{tried} changes by pages", flush=True)


def check_audit(path, alice):
    lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    by_token = f"user alice, token {alice[6:22]}"
    for who, call, outcome in (
        (by_token, "Submit", "OK"),
        (by_token, "CancelJob", "OK"),
        ("worker dave, user dave", "CancelJob", "PERMISSION_DENIED"),
        ("admin root", "DrainNode (undo)", "OK"),
        ("no role", "/cairn.v1.JobService/CancelJob", "PERMISSION_DENIED"),
    ):
        found = [
            line for line in lines if line["who"].startswith(who) and (line["call"], line["outcome"]) == (call, outcome)
        ]
        check(found, f"no {call} of {who}, {outcome}, in {sorted({(one['who'], one['call']) for one in lines})}")
        if not call.startswith("/"):
            check(found[0]["from"].startswith("ipv4:127.0.0.1:"), f"from where: {found[0]}")
    wrong = [line["who"] for line in lines if line["call"] == "pages (--http)"]
    check(f"refused token {alice[6:22]}" in wrong, f"the wrong token of the pages in the audit log: {wrong}")


def try_read_only(certs, ca_dir):
    flags = ["--http", "127.0.0.1:0", "--http-read-only"]
    with Cluster(ps=0, workers=1, coordinator_flags=flags) as c:
        base = pages_of(c)
        admin = {"certificate": f"{certs}/root"}
        for path in ("/api/v1/jobs", "/api/v1/jobs/1/cancel", "/api/v1/jobs/1/delete", "/api/v1/nodes/worker-0/drain"):
            status, text = page(base, path, ca_dir, fields={}, **admin)
            check(status == 403 and "--http-read-only" in text, f"{path}: {status}, {text}")
        check(page(base, "/api/v1/nodes", ca_dir, **admin)[0] == 200, "pages are shown")


def try_pages(c, ca_dir, token):
    """A coordinator's HTTPS pages, to who has a token."""
    base = pages_of(c)
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
            "worker:worker-0",
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
            try_actions(c, ca_dir, certs, alice, bob)
            check_audit(audit, alice)
        try_read_only(certs, ca_dir)
        del os.environ["CAIRN_TLS_DIR"]


if __name__ == "__main__":
    main()
