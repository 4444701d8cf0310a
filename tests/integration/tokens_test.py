"""Goal: a token says who its bearer is, without a certificate, and nothing else is let in without one. Every call is
tried with a token of each role, against the table of docs/security.md; jobs belong to the token's user; a revoked token
is refused at once, also by a call that is under way, after a restart of the coordinator and by another one that took
over; no log, no store and no error has a secret; without TLS a token goes to loopback alone."""

import json
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import sys
import threading

import grpc
from cluster import BIN, SOURCE, Cluster, check
from jobs import make_glyphs, small_job
from roles_test import CALLS, JOBS, make, outcome

sys.path.insert(0, os.path.join(SOURCE, "tests/chaos"))
import wire  # noqa: E402

CAIRN = os.path.join(BIN, "cairn")
TOKEN = r"cairn-([0-9a-f]{16})-([0-9a-f]{64})"
TOKENS = "/cairn.v1.TokenService/"
WATCH = "/grpc.health.v1.Health/Watch"
secrets = set()  # of all tokens that were made


def run(address, *args, tls=None, env=None, code=0, says=""):
    """`cairn` with this --tls-dir alone."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("CAIRN_T")}
    if tls:
        own["CAIRN_TLS_DIR"] = tls
    argv = [CAIRN, "--coordinator", address, *args]
    done = subprocess.run(argv, env={**own, **(env or {})}, capture_output=True, text=True, timeout=120)
    check(done.returncode == code and says in done.stderr, f"{args}: exit {done.returncode}, no {says!r}: {done}")
    return done


def new_token(address, *args, tls=None, env=None):
    text = run(address, "token", "create", *args, "--name", "test", tls=tls, env=env).stdout.strip()
    found = re.fullmatch(TOKEN, text)
    check(found, f"no token: {text}")
    secrets.add(found[2])
    return text, found[1]


def bearer(text):
    return [("authorization", f"Bearer {text}")]


def try_watch(to, token):
    """A watch of the health service that is refused ends with the reason, and does not stay open."""
    code, text = outcome(to, WATCH, "us")
    check(code == "UNAUTHENTICATED" and "neither a token nor a certificate" in text, f"a watch: {code}, {text}")
    watch = to.unary_stream(WATCH)(b"", timeout=60, metadata=bearer(token))
    check(next(watch) == b"\x08\x01", "with a token it says that the coordinator serves")
    watch.cancel()


def try_table(address, ca, tokens):
    tried = 0
    with grpc.secure_channel(address, grpc.ssl_channel_credentials(ca), options=wire.CHANNEL_OPTIONS) as to:
        for method, (allowed, kind) in CALLS.items():
            if "ParameterServer" in method:
                continue
            code, text = outcome(to, method, kind)
            check(
                code == "UNAUTHENTICATED" and "neither a token nor a certificate" in text, f"{method}: {code}, {text}"
            )
            for role, token in tokens.items():
                code, text = outcome(to, method, kind, bearer(token))
                refused = code == "PERMISSION_DENIED" and "docs/security.md" in text
                # These say more: a node of one's own, a log of a job of one's own.
                by_name = method.endswith(("DrainNode", "ReadLog")) and role == "user" and refused
                expected = role[0] not in allowed or by_name
                check(refused == expected, f"{method} by the token of {role}: {code}, {text}")
                tried += 1
        good = tokens["user"]
        try_watch(to, good)
        other = good[:-1] + ("0" if good[-1] != "0" else "1")
        for wrong, says in (
            (bearer(other), "not known to this cluster"),
            (bearer(good[:22] + "-" + "0" * 64), "not known to this cluster"),
            (bearer("x"), 'is not "Bearer" and a token'),
            ([("authorization", f"Basic {good}")], 'is not "Bearer" and a token'),
            (bearer(good) + bearer(good), "two `authorization`s"),
        ):
            code, text = outcome(to, JOBS + "ListJobs", "uu", wrong)
            check(code == "UNAUTHENTICATED" and says in text, f"a wrong token: {code}, {text}")
            check(good[25:] not in text, f"the error tells the token: {text}")
    print(f"{tried} cells of the table with tokens", flush=True)


def try_owners(c, ca_dir, certs, alice, bob):
    """Jobs are the token's user's, whatever certificate comes with it."""
    job_file = small_job(c.dir, make_glyphs(c.dir), 1)
    mine, his = {"CAIRN_TOKEN": alice}, {"CAIRN_TOKEN": bob}
    run(c.address, "submit", job_file, "--set", "name=hers", "--watch", tls=ca_dir, env=mine)
    job = json.loads(run(c.address, "--json", "job", "hers", tls=ca_dir, env=mine).stdout)
    check(job["owner"] == "alice" and job["groups"] == ["vision"], f"its owner: {job['owner']}, {job['groups']}")
    number = str(job["job_id"])
    check("hers" in run(c.address, "jobs", "--mine", tls=ca_dir, env=mine).stdout, "--mine by a token")
    check("hers" not in run(c.address, "jobs", tls=ca_dir, env=his).stdout, "bob sees alice's job")
    run(c.address, "delete", number, tls=ca_dir, env=his, code=1, says=f"job {number} is alice's")
    # An admin's certificate with bob's token is bob.
    run(c.address, "delete", number, tls=f"{certs}/root", env=his, code=1, says=f"job {number} is alice's")
    run(c.address, "nodes", "drain", "ps-0", tls=f"{certs}/root", env=his, code=1, says="DrainNode is for")
    run(c.address, "evaluate", number, tls=f"{certs}/alice")  # her certificate
    check("alice, groups vision, by token" in run(c.address, "token", "whoami", tls=ca_dir, env=mine).stdout, "whoami")
    check(run(c.address, "health", tls=ca_dir, env=mine).stdout.endswith("serving\n"), "health with a token")


def try_revocation(c, ca_dir, root, alice):
    """A watch that is open ends too, also of a job of which there is no news."""
    for name, sets in (("long", []), ("waiting", ["--set", "min_workers=4"])):
        text, number = new_token(c.address, "alice", "--expires", "1h", tls=root)
        job = small_job(c.dir, make_glyphs(c.dir), 500, name=f"{name}.textproto")
        run(c.address, "submit", job, "--set", f"name={name}", *sets, tls=ca_dir, env={"CAIRN_TOKEN": text})
        env = {k: v for k, v in os.environ.items() if not k.startswith("CAIRN_T")}
        argv = [CAIRN, "--coordinator", c.address, "watch", name]
        env = {**env, "CAIRN_TLS_DIR": ca_dir, "CAIRN_TOKEN": text}
        watch = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = threading.Event()
        reader = threading.Thread(target=lambda: (watch.stdout.read(1), first.set(), watch.stdout.read()))
        reader.start()
        check(first.wait(120), "the watch shows something")
        run(c.address, "token", "revoke", number, tls=ca_dir, env={"CAIRN_TOKEN": text})  # one's own
        run(c.address, "jobs", tls=ca_dir, env={"CAIRN_TOKEN": text}, code=1, says="it was revoked")
        error = watch.stderr.read().decode()
        check(watch.wait(120) == 1 and "it was revoked" in error, f"the watch: {error}")
        reader.join()
        watch.stdout.close()
        watch.stderr.close()
        run(c.address, "cancel", name, tls=ca_dir, env={"CAIRN_TOKEN": alice})


def try_command_line(c, ca_dir, certs, alice, alice_id, bob_id):
    root = f"{certs}/root"
    mine = {"CAIRN_TOKEN": alice}
    for args in (["--token", alice, "jobs"], ["jobs", f"--token={alice}"], ["token", "revoke", alice]):
        done = run(c.address, *args, tls=ca_dir, env=mine, code=2, says="every user of this machine")
        check(alice[25:] not in done.stderr + done.stdout, f"the token is repeated: {done}")
    run(c.address, "jobs", tls=ca_dir, env={"CAIRN_TOKEN": alice[:-1]}, code=2, says="$CAIRN_TOKEN: holds no token")
    run(c.address, "jobs", tls=ca_dir, code=2, says="with ca.crt alone a token is needed")  # neither
    path = pathlib.Path(c.dir, "token")
    run(c.address, "token", "create", "alice", "--name", "file", "-o", str(path), tls=root, says="it is in")
    secrets.add(re.fullmatch(TOKEN + "\n", path.read_text())[2])
    check(stat.S_IMODE(path.stat().st_mode) == 0o600, "its file is the user's alone")
    run(
        c.address,
        "token",
        "create",
        "alice",
        "--name",
        "file",
        "-o",
        str(path),
        tls=root,
        code=2,
        says="give a new file",
    )
    run(c.address, "--token-file", str(path), "jobs", tls=ca_dir)
    path.chmod(0o644)
    run(c.address, "--token-file", str(path), "jobs", tls=ca_dir, says="any user of this machine can read the token")
    run(c.address, "run", tls=ca_dir, env=mine, code=2, says="a token names a person")
    # A user sees and revokes their own tokens; makes none.
    listed = run(c.address, "token", "list", tls=ca_dir, env=mine).stdout
    check(alice_id in listed and bob_id not in listed and "admin root" in listed, f"alice's tokens: {listed}")
    everything = json.loads(run(c.address, "--json", "token", "list", tls=root).stdout)["tokens"]
    check({alice_id, bob_id} <= {one["id"] for one in everything}, "an admin sees all")
    run(c.address, "token", "revoke", bob_id, tls=ca_dir, env=mine, code=2, says="there is no such token, or it is not")
    run(c.address, "token", "create", "alice", "--name", "x", tls=ca_dir, env=mine, code=1, says="is for admin")
    for args, says in (
        (["a b", "--name", "x"], "user: give 1 to 128 of the characters"),
        (["alice", "--name", "x/y"], "name: give 1 to 128"),
        (["alice", "--name", "x", "--group", "*"], "groups: give 1 to 128"),
        (["alice", "--name", "x", "--expires", "367d"], "a minute to 366 days"),
        (["alice", "--name", "x", "--expires", "soon"], '--expires: "soon" is no time'),
    ):
        run(c.address, "token", "create", *args, tls=root, code=2, says=says)


def check_audit(path, alice_id):
    lines = [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]
    wanted = (
        ("admin root", "CreateToken", f"user alice, token {alice_id}", "OK"),
        (f"user alice, token {alice_id}", "Submit", "hers", "OK"),
        (f"user alice, token {alice_id}", "/cairn.v1.TokenService/CreateToken", None, "PERMISSION_DENIED"),
        (f"refused token {alice_id}", "/cairn.v1.JobService/ListJobs", None, "UNAUTHENTICATED"),
    )
    for one in wanted:
        found = [line for line in lines if (line["who"], line["call"], line.get("what"), line["outcome"]) == one]
        check(found, f"no {one} in the audit log of {len(lines)} lines")
    strangers = [line for line in lines if line["who"] == "no role"]
    check(strangers, "calls of a stranger are in the audit log")
    check(any(line["call"] == "RevokeToken" and line["outcome"] == "OK" for line in lines), "revocations are there")


def check_no_secret(folder):
    """In no file that the daemons have written: logs, audit log, store."""
    looked = 0
    for path in pathlib.Path(folder).rglob("*"):
        if not path.is_file() or path.name == "token":
            continue
        content = path.read_bytes()
        looked += 1
        for secret in secrets:
            check(secret.encode() not in content, f"{path} has a secret")
    check(looked > 10 and len(secrets) > 4, f"{looked} files, {len(secrets)} secrets")


def over_tls(certs, ca_dir):
    root = f"{certs}/root"
    ca = pathlib.Path(ca_dir, "ca.crt").read_bytes()
    with Cluster(ps=0, workers=0) as folder:
        audit = f"{folder.dir}/audit.jsonl"
        make(f"{folder.dir}/foreign", "admin:root")
        flags = ["--accept-tokens", "--audit-log", audit]
        with Cluster(ps=1, workers=1, coordinator_flags=flags) as c:
            alice, alice_id = new_token(c.address, "alice", "--group", "vision", tls=root)
            bob, bob_id = new_token(c.address, "bob", tls=root)
            admin, _ = new_token(c.address, "chief", "--role", "admin", tls=root)
            second, _ = new_token(c.address, "carol", tls=ca_dir, env={"CAIRN_TOKEN": admin})
            run(c.address, "jobs", tls=ca_dir, env={"CAIRN_TOKEN": second})
            try_table(c.address, ca, {"user": alice, "admin": admin})
            try_foreign_certificate(c.address, certs, f"{folder.dir}/foreign", admin)
            try_owners(c, ca_dir, certs, alice, bob)
            try_revocation(c, ca_dir, root, alice)
            try_command_line(c, ca_dir, certs, alice, alice_id, bob_id)
            run(c.address, "token", "revoke", bob_id, tls=root)
            c.kill("coordinator")
            c.restart("coordinator")
            c.wait_for_nodes(2)
            run(c.address, "jobs", tls=ca_dir, env={"CAIRN_TOKEN": alice})
            run(c.address, "jobs", tls=ca_dir, env={"CAIRN_TOKEN": bob}, code=1, says="it was revoked")
            by_python(c.address, ca_dir, alice)
            check_audit(audit, alice_id)
            check_no_secret(c.dir)
            check_no_secret_in(audit)


def try_foreign_certificate(address, certs, foreign, token):
    """That a certificate may be left out does not let one of another authority in, with or without a token."""
    files = [pathlib.Path(certs, "root", "ca.crt"), *(pathlib.Path(foreign, "root", n) for n in ("tls.key", "tls.crt"))]
    credentials = grpc.ssl_channel_credentials(*(path.read_bytes() for path in files))
    for metadata in (None, bearer(token)):
        with grpc.secure_channel(address, credentials, options=wire.CHANNEL_OPTIONS) as to:
            code, text = outcome(to, JOBS + "ListJobs", "uu", metadata)
            check(code == "UNAVAILABLE", f"a certificate of another authority: {code}, {text}")


def check_no_secret_in(path):
    text = pathlib.Path(path).read_text()
    check(not any(secret in text for secret in secrets), "the audit log has a secret")


BY_PYTHON = """
import os, cairn
address, token = os.environ["ADDRESS"], os.environ["TOKEN"]
with cairn.Client(address, ca=os.environ["CA"], token=token) as client:
    assert "hers" in [job.name for job in client.jobs()]
try:
    cairn.Client(address, token=token[:-1])
    raise SystemExit("a token that is cut short is taken")
except ValueError as error:
    assert "token: is no token" in str(error) and token[25:-1] not in str(error), error
with cairn.Client("10.0.0.1:7070", token=token) as client:
    try:
        client.jobs()
        raise SystemExit("a token is sent without TLS")
    except ValueError as error:
        assert "is not sent to 10.0.0.1:7070 without TLS" in str(error), error
print("done")
"""


def by_python(address, ca_dir, token):
    env = {k: v for k, v in os.environ.items() if not k.startswith("CAIRN_T")}
    own = {"PYTHONPATH": os.path.join(BIN, "../python"), "ADDRESS": address, "TOKEN": token, "CA": f"{ca_dir}/ca.crt"}
    argv = [sys.executable, "-c", BY_PYTHON]
    done = subprocess.run(argv, env={**env, **own}, capture_output=True, text=True, timeout=120)
    check(done.stdout == "done\n", f"the Python client with a token: {done}")


def refused_without_the_flag(certs):
    """A coordinator without --accept-tokens lets nobody in without a certificate, and takes no tokens."""
    with Cluster(ps=0, workers=0) as c:
        some = "cairn-" + "0" * 16 + "-" + "0" * 64
        done = run(c.address, "jobs", tls=f"{certs}/root", env={"CAIRN_TOKEN": some}, code=1)
        check("takes no tokens" in done.stderr, done.stderr)
        done = run(c.address, "token", "create", "x", "--name", "x", tls=f"{certs}/root", code=2)
        check("start cairn-coordinator with --accept-tokens" in done.stderr, done.stderr)
        ca = pathlib.Path(certs, "root", "ca.crt").read_bytes()
        with grpc.secure_channel(c.address, grpc.ssl_channel_credentials(ca), options=wire.CHANNEL_OPTIONS) as to:
            code, text = outcome(to, JOBS + "ListJobs", "uu")
            check(code == "UNAVAILABLE", f"no handshake without a certificate: {code}, {text}")


def own_address():
    """This machine's, as others reach it; None: it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("10.255.255.255", 1))
        except OSError:
            return None
        address = s.getsockname()[0]
    return None if address.startswith("127.") else address


def without_tls():
    with Cluster(ps=0, workers=0, coordinator_flags=["--accept-tokens"]) as c:
        token, number = new_token(c.address, "alice")  # loopback: anybody may do everything
        mine = {"CAIRN_TOKEN": token}
        check("alice, by token" in run(c.address, "token", "whoami", env=mine).stdout, "a token on loopback")
        run(c.address, "token", "create", "x", "--name", "x", env=mine, code=1, says="is for admin")
        run(c.address, "jobs", env={"CAIRN_TOKEN": token[:-64] + "0" * 64}, code=1, says="not known to this cluster")
        run("10.0.0.1:7070", "jobs", env=mine, code=2, says="the token is not sent to 10.0.0.1:7070 without TLS")
        own = own_address()
        if own is None:
            print("no address beyond loopback here", flush=True)
            return
        flags = ["--listen", f"{own}:0", "--data-dir", f"{c.dir}/open", "--insecure", "--accept-tokens"]
        c.kill("coordinator")
        shutil.copytree(f"{c.dir}/coordinator", f"{c.dir}/open")
        c.commands["open"] = ["cairn-coordinator", *flags]
        c.restart("open")
        address = c.wait_for_log("open", r"listening on (\S+:\d+),").group(1)
        with grpc.insecure_channel(address, options=wire.CHANNEL_OPTIONS) as to:
            code, text = outcome(to, JOBS + "ListJobs", "uu", bearer(token))
            check(code == "UNAUTHENTICATED" and f"revoke token {number}" in text, f"an overheard token: {code}, {text}")
            code, text = outcome(to, TOKENS + "Identify", "uu")
            check(code == "OK", f"without a token: {code}, {text}")
        run(address, "token", "create", "x", "--name", "x", code=2, says="over a connection without TLS")


def with_etcd(certs, ca_dir):
    if shutil.which("etcd") is None:
        print("no etcd here", flush=True)
        return
    with Cluster(ps=0, workers=0, coordinators=2, etcd=True, coordinator_flags=["--accept-tokens"]) as c:
        leader = c.wait_for_leader()
        root = f"{certs}/root"
        token, number = new_token(c.address, "alice", tls=root)
        mine = {"CAIRN_TOKEN": token}
        addresses = dict(zip(c.coordinators, c.address.split(",")))
        standby = next(name for name in c.coordinators if name != leader)
        # The standby cannot know tokens: it says who leads, and answers nothing else.
        several = f"{addresses[standby]},{addresses[leader]}"
        run(several, "jobs", tls=ca_dir, env=mine)
        ca = pathlib.Path(ca_dir, "ca.crt").read_bytes()
        to_standby = addresses[standby]
        with grpc.secure_channel(to_standby, grpc.ssl_channel_credentials(ca), options=wire.CHANNEL_OPTIONS) as to:
            for method, (_, kind) in CALLS.items():
                if "JobService" not in method and "TokenService" not in method:
                    continue
                code, text = outcome(to, method, kind, bearer("cairn-" + "0" * 16 + "-" + "0" * 64))
                check(code == "UNAVAILABLE" and "stands by" in text, f"{method} of a standby: {code}, {text}")
        c.kill(leader)
        c.wait_for_leader(other_than=leader)
        run(several, "jobs", tls=ca_dir, env=mine)
        run(several, "token", "revoke", number, tls=root)
        run(several, "jobs", tls=ca_dir, env=mine, code=1, says="it was revoked")
        c.restart(leader)
        c.wait_for_log(leader, "standing by")


def main():
    with Cluster(ps=0, workers=0) as probe:
        certs = f"{probe.dir}/certs"
        make(certs, "coordinator+ps=*+worker=*+admin:node", "user:alice,vision", "admin:root")
        ca_dir = f"{probe.dir}/ca"
        os.makedirs(ca_dir)
        shutil.copy(f"{certs}/root/ca.crt", ca_dir)
        without_tls()
        os.environ["CAIRN_TLS_DIR"] = f"{certs}/node"
        over_tls(certs, ca_dir)
        refused_without_the_flag(certs)
        with_etcd(certs, ca_dir)
        del os.environ["CAIRN_TLS_DIR"]


if __name__ == "__main__":
    main()
