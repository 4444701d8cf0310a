"""Goal: with TLS, the roles of a certificate decide. Every call is tried with a certificate of every role, against the
table of docs/security.md; nodes have the names of their certificates; a user sees and changes own jobs and those of
groups, an admin all. A certificate without a role is refused with what to do."""

import json
import os
import pathlib
import subprocess
import sys

import grpc
from cluster import BIN, SOURCE, Cluster, check
from jobs import make_glyphs, small_job

sys.path.insert(0, os.path.join(SOURCE, "tests/chaos"))
import wire  # noqa: E402

ROLES = ("coordinator", "ps", "worker", "user", "admin")
# By method: who may call it, by the roles' first letters; and how many messages it takes and gives, u(nary), s(tream).
USERS, NODES = "ua", "pw"
JOBS = "/cairn.v1.JobService/"
CALLS = {
    JOBS + "Submit": (USERS, "uu"),
    JOBS + "CheckJob": (USERS, "uu"),
    JOBS + "ListEvents": (USERS, "uu"),
    JOBS + "ReadLog": (USERS, "uu"),
    JOBS + "StartTrace": (USERS, "uu"),
    JOBS + "ReadTrace": (USERS, "uu"),
    JOBS + "EndTrace": (USERS, "uu"),
    JOBS + "ListJobs": (USERS, "uu"),
    JOBS + "GetJob": (USERS, "uu"),
    JOBS + "WatchJob": (USERS, "us"),
    JOBS + "CancelJob": (USERS, "uu"),
    JOBS + "DeleteJob": (USERS, "uu"),
    JOBS + "Evaluate": (USERS, "uu"),
    JOBS + "Predict": (USERS, "us"),
    JOBS + "ListNodes": (USERS + NODES, "uu"),
    JOBS + "DrainNode": ("a" + NODES, "uu"),
    "/cairn.v1.TokenService/CreateToken": ("a", "uu"),
    "/cairn.v1.TokenService/ListTokens": (USERS, "uu"),
    "/cairn.v1.TokenService/RevokeToken": (USERS, "uu"),
    "/cairn.v1.TokenService/Identify": (USERS, "uu"),
    "/cairn.v1.Coordinator/Session": (NODES, "ss"),
    "/cairn.v1.ParameterServer/Exchange": (NODES, "ss"),
    "/grpc.health.v1.Health/Check": ("cpwua", "uu"),
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": (USERS, "ss"),
}


def make(directory, *arguments):
    command = [f"{SOURCE}/deploy/make_certs.sh", directory, *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def channel(address, folder):
    read = [pathlib.Path(folder, name).read_bytes() for name in ("ca.crt", "tls.key", "tls.crt")]
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(*read), options=wire.CHANNEL_OPTIONS)


def outcome(to, method, kind, metadata=None):
    """The code and text of a call with an empty request."""
    make_call = {"uu": to.unary_unary, "us": to.unary_stream, "ss": to.stream_stream}[kind](method)
    request = iter([b""]) if kind[0] == "s" else b""
    try:
        answer = make_call(request, timeout=30, metadata=metadata)
        if kind[1] == "s":
            list(answer)
        return "OK", ""
    except grpc.RpcError as error:
        return error.code().name, error.details()


def try_table(c, certs):
    ps = c.wait_for_log("ps-0", r"listening on (127\.0\.0\.1:\d+)").group(1)
    tried = 0
    for role in ROLES:
        with channel(c.address, f"{certs}/a-{role}") as coordinator, channel(ps, f"{certs}/a-{role}") as server:
            for method, (allowed, kind) in CALLS.items():
                code, text = outcome(server if "ParameterServer" in method else coordinator, method, kind)
                refused = code == "PERMISSION_DENIED" and "docs/security.md" in text
                # A node that may drain itself is refused the node "" by its name; a user the log of no job.
                by_name = method.endswith(("DrainNode", "Session")) and role in ("ps", "worker") and "named so" in text
                by_name |= method.endswith("ReadLog") and role == "user" and "only admins read whole logs" in text
                expected = role[0] not in allowed
                check((refused and not by_name) == expected, f"{method} by {role}: {code}, {text}")
                tried += 1
            code, text = outcome(coordinator, JOBS + "Nothing", "uu")
            check(code == "UNIMPLEMENTED", f"no method, by {role}: {code}, {text}")
    print(f"{tried} cells of the table", flush=True)
    with channel(c.address, f"{certs}/nobody") as to:
        code, text = outcome(to, JOBS + "ListJobs", "uu")
        check(code == "PERMISSION_DENIED" and "your certificate names no role" in text, f"no role: {code}, {text}")


def hello(to, name, role):
    greeting = wire.cluster_pb2.Hello(name=name, role=role, address="127.0.0.1:1")
    messages = iter([wire.cluster_pb2.NodeMessage(hello=greeting)])
    try:
        return next(wire.session(to, messages)).WhichOneof("kind")
    except grpc.RpcError as error:
        return f"{error.code().name}: {error.details()}"


def try_names(c, certs):
    types = wire.types_pb2
    for folder, name, role, expected in (
        ("a-ps", "a-ps", types.PS, "welcome"),
        ("a-ps", "a-ps-2", types.PS, "welcome"),
        ("a-ps", "ps-0", types.PS, 'PERMISSION_DENIED: your certificate is that of the ps "a-ps"'),
        ("a-ps", "a-ps", types.WORKER, "PERMISSION_DENIED: a worker needs a certificate with the role worker"),
        ("a-worker", "ps-0", types.PS, "PERMISSION_DENIED: a ps needs a certificate with the role ps"),
        ("a-user", "ps-0", types.PS, "PERMISSION_DENIED: /cairn.v1.Coordinator/Session is for ps, worker"),
    ):
        with channel(c.address, f"{certs}/{folder}") as to:
            got = hello(to, name, role)
        check(got.startswith(expected), f"{name} with the certificate of {folder}: {got}")
    # Who looks for a node that does not join finds it there, not in the node's log alone.
    events = As(c, f"{certs}/root")("events", "--warnings")
    for told in (
        'a node called "ps-0" was refused: (from ipv4:127.0.0.1) your certificate is that of the ps "a-ps"',
        'a node called "ps-0" was refused: (from ipv4:127.0.0.1) a ps needs a certificate with the role ps',
        "a node from ipv4:127.0.0.1 was refused: /cairn.v1.Coordinator/Session is for ps, worker",
    ):
        check(told in events, f"no {told!r} in {events}")
    for program, role in (("cairn-ps", "ps"), ("cairn-worker", "worker"), ("cairn-coordinator", "coordinator")):
        where = {"cairn-worker": [], "cairn-ps": ["--data-dir", f"{c.dir}/x"]}.get(program)
        flags = ["--data-dir", f"{c.dir}/x"] if where is None else ["--coordinator", c.address, *where]
        argv = [os.path.join(BIN, program), *flags, "--tls-dir", f"{certs}/alice"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        told = (f"not the role {role}", f"DIR {role}:NAME (in an installed package: cairn-make-certs)")
        check(done.returncode == 2 and all(t in done.stderr for t in told), f"{program}: {done.stderr}")


class As:
    """`cairn` with somebody's certificate."""

    def __init__(self, c, folder):
        self.c, self.env = c, {**os.environ, "CAIRN_TLS_DIR": folder}

    def __call__(self, *args, says=None):
        argv = [os.path.join(BIN, "cairn"), "--coordinator", self.c.address, *args]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True, timeout=120)
        if says is None:
            check(done.returncode == 0, f"{args}: {done.stderr}")
        else:
            check(done.returncode != 0 and says in done.stderr, f"{args}: no {says!r} in: {done.stdout}{done.stderr}")
        return done.stdout


def try_owners(c, certs):
    alice, bob, carol, root = (As(c, f"{certs}/{name}") for name in ("alice", "bob", "carol", "root"))
    job_file = small_job(c.dir, make_glyphs(c.dir), 1)
    bob("jobs", "--mine")
    alice("submit", job_file, "--set", "name=hers", "--watch")
    job = next(j for j in json.loads(c.cairn("jobs", as_json=True).stdout)["jobs"] if j["spec"]["name"] == "hers")
    number = str(job["job_id"])
    check(job["owner"] == "alice" and job["groups"] == ["vision"], f"its owner: {job}")
    check("hers" in alice("jobs") and "hers" in root("jobs") and "hers" in carol("jobs"), "who may sees it")
    check("hers" not in bob("jobs"), "bob sees alice's job")
    check("hers" in alice("jobs", "--mine") and "hers" not in root("jobs", "--mine"), "--mine: one's own")
    theirs = f"job {number} is alice's"
    for args in (["job", number], ["cancel", number], ["delete", number], ["evaluate", number], ["watch", number]):
        bob(*args, says=theirs)
    for args in (["job", "hers"], ["delete", "hers"], ["evaluate", "hers"]):
        bob(*args, says='no job named "hers"')
    bob("predict", number, "-o", f"{c.dir}/stolen.npy", says=theirs)
    alice("nodes", "drain", "ps-0", says="DrainNode is for ps, worker, admin")
    # What happened and what was logged: of own jobs and of nodes; whole logs are for admins.
    check("succeeded" in alice("events", "--job", number) and "hers" in root("events"), "the events of one's own job")
    check("hers" not in bob("events") and "joined" in bob("events"), "bob sees what happened to alice's job")
    bob("events", "--job", number, says=theirs)
    check(f"job {number}:" in carol("logs", number), "the lines of a job of the group")
    bob("logs", number, says=theirs)
    alice("logs", "ps-0", says="only admins read whole logs")
    alice("logs", says="only admins read whole logs")
    check("listening" in root("logs", "ps-0"), "an admin reads whole logs")
    carol("evaluate", number)  # of the same group
    root("evaluate", number)
    alice("delete", number)
    # The coordinator that comes back knows whose jobs they are.
    bob("submit", job_file, "--set", "name=his", "--watch")
    c.kill("coordinator")
    c.restart("coordinator")
    c.wait_for_nodes(2)
    alice("delete", "his", says='no job named "his"')
    bob("delete", "his")


def try_quotas(c, certs, quotas):
    """A quota of a file that changes while the coordinator runs; and a name that is taken."""
    alice, bob, root = (As(c, f"{certs}/{name}") for name in ("alice", "bob", "root"))
    job_file = small_job(c.dir, make_glyphs(c.dir), 500, name="long.textproto")
    alice("submit", job_file, "--set", "name=one")
    alice("submit", job_file, "--set", "name=one", says="which has not ended, is called")
    alice(
        "submit", job_file, "--set", "name=two", says="quota of group vision: jobs=1; the jobs that have not ended have"
    )
    bob("submit", job_file, "--set", "name=one")
    root("submit", job_file, "--set", "name=two")
    with open(quotas, "w") as f:
        f.write("user alice jobs=2\n")
    argv = [os.path.join(BIN, "cairn"), "--coordinator", c.address, "submit", job_file, "--set", "name=two"]
    env = {**os.environ, "CAIRN_TLS_DIR": f"{certs}/alice"}
    c.until(
        lambda: subprocess.run(argv, env=env, capture_output=True, timeout=60).returncode == 0, "the new quota holds"
    )
    alice("submit", job_file, "--set", "name=three", says="quota of user alice: jobs=2")
    for who in (alice, bob):
        who("cancel", "one")
    alice("cancel", "two")


def check_audit(path):
    """What was done above is in the audit log, with who, from where and the outcome."""
    with open(path) as f:
        lines = [json.loads(line) for line in f]
    for who, call, what, outcome in (
        ("user alice", "Submit", "hers", "OK"),
        ("user bob", "CancelJob", "1", "PERMISSION_DENIED"),
        ("user bob", "DeleteJob", "hers", "NOT_FOUND"),
        ("admin root", "Evaluate", "1", "OK"),
        ("user alice", "/cairn.v1.JobService/DrainNode", None, "PERMISSION_DENIED"),
        ("ps a-ps", "/cairn.v1.Coordinator/Session", None, "PERMISSION_DENIED"),
        ("user a-user", "/cairn.v1.Coordinator/Session", None, "PERMISSION_DENIED"),
        ("user bob", "GetJob", "1", "PERMISSION_DENIED"),
        ("user alice", "DeleteJob", "1", "OK"),
        ("user bob", "DeleteJob", "his", "OK"),  # after the restart: the file goes on
    ):
        wanted = (who, call, what, outcome)
        found = [one for one in lines if (one["who"], one["call"], one.get("what"), one["outcome"]) == wanted]
        check(found, f"no {wanted} in the audit log of {len(lines)} lines")
        check(call.startswith("/") or found[0]["from"].startswith("ipv4:127.0.0.1:"), f"from where: {found[0]}")
    submitted = next(line for line in lines if line["call"] == "Submit" and line.get("what") == "hers")
    check(submitted["job_id"] == 1, f"the job's number: {submitted}")


def main():
    with Cluster(ps=0, workers=0) as probe:
        directory = probe.dir
        certs = f"{directory}/certs"
        make(certs, "coordinator+ps=*+worker=*+admin:node", *(f"{role}:a-{role}" for role in ROLES))
        make(certs, "user:alice,vision", "user:bob,speech", "user:carol,speech,vision", "admin:root")
        nameless(certs)
        os.environ["CAIRN_TLS_DIR"] = f"{certs}/node"
        audit, quotas = f"{directory}/audit.jsonl", f"{directory}/quotas"
        with open(quotas, "w") as f:
            f.write("default jobs=5\ngroup vision jobs=1\n")
        flags = {"coordinator_flags": ["--audit-log", audit, "--quotas", quotas], "ps_flags": ["--unix-socket", "none"]}
        with Cluster(ps=1, workers=1, **flags) as c:
            try_table(c, certs)
            try_names(c, certs)
            try_owners(c, certs)
            try_quotas(c, certs, quotas)
            check_audit(audit)
        del os.environ["CAIRN_TLS_DIR"]


def nameless(certs):
    """A certificate of the same authority without roles, and without any name that gRPC would take for an identity."""
    to = f"{certs}/nobody"
    os.makedirs(to)
    script = f"""set -e
openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out {to}/tls.key
openssl req -new -key {to}/tls.key -subj / -out {to}/request
openssl x509 -req -in {to}/request -CA {certs}/ca.crt -CAkey {certs}/ca.key -set_serial 77 -days 1 -out {to}/tls.crt
cp {certs}/ca.crt {to}/ca.crt"""
    subprocess.run(["bash", "-c", script], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
