"""Goal: hostile clients beside jobs that train. Whatever they send, the daemons live, within a bound of memory; users
are answered; the jobs end with the digest of an undisturbed run; and once the clients are gone, so are their
descriptors, threads and sessions.

    hostile.py                     each kind for a short, fixed amount of work: the ctest
    hostile.py --seconds 60        each kind for that long, in turn with undisturbed times, and with times beside
                                   processes that use as much of the processors and send nothing (control.py): prints
                                   a table, and checks the step time (at most 10 % longer than beside those) and the
                                   longest wait (1 s) too
    hostile.py --kinds silent,half-tls --clusters plain,stranger --workers 1

abuse.py and abuse_calls.py have the kinds. They are done to three clusters: "plain", without TLS; with mutual TLS to a
"stranger", who has no certificate; and with mutual TLS to a "user". The hostile clients come from another address of
this machine, 127.0.0.2, as if from another machine: limits are per machine."""

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import grpc

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))
import abuse_calls  # noqa: E402
import http2  # noqa: E402
import wire  # noqa: E402
from abuse import KINDS  # noqa: E402
from beside_hostile import Honest, Meter, Training, call  # noqa: E402
from cluster import SOURCE, Cluster, check  # noqa: E402
from jobs import SMALL_CNN, make_glyphs  # noqa: E402
from wire import cluster_pb2, job_status_pb2  # noqa: E402

# The bound of a daemon's resident memory, MiB, in all of it: what requests may hold (docs/security.md) and the daemon
# itself.
RESIDENT_MIB_MAX = {"coordinator": 384, "ps": 1024, "worker": 512}
HOSTILE = "127.0.0.2"  # the hostile machine
OPEN_FILES = 600  # of a daemon: so few that a flood of connections reaches it
DESCRIPTORS_MORE_MAX = 16  # afterwards: files of stores, connections of honest users
THREADS_MORE_MAX = 8
BACK_SECONDS_MAX = 90
STEP_LONGER_MAX = 1.10
WAIT_SECONDS_MAX = 1.0
WINDOWS = 3  # of a kind, when its time is measured
REFERENCE_SECONDS_MAX = 8  # of a time without hostile clients

# Kinds against TLS by who has no certificate: what comes before a call, and one call to see that it is refused.
OF_STRANGER = ["silent", "half-preface", "half-tls", "connect-flood", "odd-frames", "unfinished-submits"]
# By a user: what a certificate makes possible.
OF_USER = ["settings-only", "open-streams", "rapid-reset", "header-tables", "bad-headers", *abuse_calls.KINDS]


def is_taken(address):
    """Whether a connection of the hostile machine is left open. For half a second after one made too many calls none
    is."""
    try:
        with http2.dial(address, HOSTILE) as one:
            one.settimeout(0.2)
            return one.recv(1) != b""
    except TimeoutError:
        return True
    except OSError:
        return False


class Clusters:
    """Makes one after another, with certificates."""

    def __init__(self, directory, epochs, workers):
        self.directory = directory
        self.workers = workers
        self.job_text = SMALL_CNN % {"data": make_glyphs(directory), "epochs": epochs, "more": ""}
        self.job_text = self.job_text.replace(" validation_split: 0.1", "")
        self.digest = self.undisturbed()
        self.ended = 0
        command = [f"{SOURCE}/deploy/make_certs.sh", f"{directory}/certs"]
        roles = ["coordinator+ps=*+worker=*+admin:node", "user:mallory"]
        subprocess.run([*command, *roles], check=True, stdout=subprocess.DEVNULL)
        os.mkdir(f"{directory}/certs/stranger")
        shutil.copy(f"{directory}/certs/ca.crt", f"{directory}/certs/stranger")

    def undisturbed(self):
        with Cluster(ps=1, workers=1) as c:
            with open(f"{self.directory}/job.textproto", "w") as f:
                f.write(self.job_text)
            return c.wait(c.submit(f"{self.directory}/job.textproto", {"backups": 0}))["digest"]

    @contextlib.contextmanager
    def of(self, who):
        tls = {"plain": None, "stranger": "stranger", "user": "mallory"}[who]
        os.environ.pop("CAIRN_TLS_DIR", None)
        if tls is not None:
            os.environ["CAIRN_TLS_DIR"] = f"{self.directory}/certs/node"
        cluster = Cluster(ps=2, workers=self.workers, coordinator_flags=["--http", "127.0.0.1:0"])
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))  # noqa: E731
        cluster.prepare = {name: few for name in ("coordinator", "ps-0", "ps-1")}
        with cluster:
            with Meter(cluster) as meter, Training(cluster, self.job_text, self.digest) as training:
                cluster.until(lambda: training.check() or training.runs.is_set(), "the job trains")
                with Honest(cluster, training, self.job_text) as honest:
                    yield Field(
                        cluster, meter, training, honest, tls and f"{self.directory}/certs/{tls}", self.job_text
                    )
            check(training.ended > 0, "no job ended")
            self.ended = training.ended


class Field:
    """A cluster, what goes on in it, and hostile clients."""

    def __init__(self, cluster, meter, training, honest, tls_dir, job_text):
        self.cluster, self.meter, self.training, self.honest = cluster, meter, training, honest
        self.tls_dir, self.job_text = tls_dir, job_text
        self.pages = cluster.wait_for_log("coordinator", r"pages, metrics and probes on https?://(\S+)").group(1)
        self.addresses = {"coordinator": cluster.address}
        with self.channel() as channel:
            for node in call(channel, "ListNodes", cluster_pb2.ListNodesRequest(), cluster_pb2.ListNodesResponse).nodes:
                self.addresses[node.name] = node.address

    def channel(self):
        return wire.open_channel(self.cluster.address)

    def check(self):
        for beside in (self.meter, self.training, self.honest):
            beside.check()

    def start(self, kind, steps, seconds):
        """A process for each daemon that is attacked."""
        started = []
        for name in KINDS[kind][2]:
            self.cluster.until(lambda name=name: is_taken(self.addresses[name]), f"{name} takes connections again")
            what = {
                "kind": kind,
                "address": self.addresses[name],
                "pages": self.pages,
                "job": self.training.job,
                "job_text": self.job_text,
                "source": HOSTILE,
                "tls_dir": self.tls_dir,
            }
            argv = ["nice", sys.executable, f"{HERE}/abuse.py", json.dumps(what), str(steps), str(seconds)]
            started.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True))
        return started

    def abuse(self, kind, steps=0, seconds=600.0):
        """Returns the answers, counted. At least one round of a user's calls is made meanwhile."""
        answers = {}
        rounds = self.honest.rounds
        started = self.start(kind, steps, seconds)
        try:
            self.cluster.until(
                lambda: self.check() or all(one.poll() is not None for one in started), f"{kind} is done", 120 + seconds
            )
        finally:
            for one in started:
                one.terminate()
                said = one.communicate()[0]
                for answer, count in (json.loads(said) if said else {"failed": 1}).items():
                    answers[answer] = answers.get(answer, 0) + count
        check("failed" not in answers and answers, f"{kind}: abuse.py ended without answers")
        self.cluster.until(lambda: self.check() or self.honest.rounds >= rounds + 2, f"{kind}: users are answered")
        return answers

    def clean(self):
        """Removes the jobs of hostile users."""
        with self.channel() as channel:
            jobs = call(channel, "ListJobs", cluster_pb2.ListJobsRequest(), cluster_pb2.ListJobsResponse).jobs
            for job in jobs:
                if job.spec.name.startswith("large-"):
                    request = cluster_pb2.GetJobRequest(job_id=job.job_id)
                    call(channel, "CancelJob", request, job_status_pb2.JobStatus)
                    self.cluster.until(lambda: self.deleted(channel, request), f"job {job.job_id} is deleted")

    def deleted(self, channel, request):
        try:
            call(channel, "DeleteJob", request, cluster_pb2.DeleteJobResponse)
        except grpc.RpcError as error:
            return error.code() == grpc.StatusCode.NOT_FOUND
        return True

    def back(self, kind, before):
        """Waits until the daemons have no more descriptors and threads than before, and the cluster no more nodes."""

        def left():
            self.check()
            more = []
            for name, now in self.meter.now().items():
                if now.descriptors > before[name].descriptors + DESCRIPTORS_MORE_MAX:
                    more.append(f"{name}: {now.descriptors} descriptors, {before[name].descriptors} before")
                if now.threads > before[name].threads + THREADS_MORE_MAX:
                    more.append(f"{name}: {now.threads} threads, {before[name].threads} before")
            with self.channel() as channel:
                reply = call(channel, "ListNodes", cluster_pb2.ListNodesRequest(), cluster_pb2.ListNodesResponse)
            more += [node.name for node in reply.nodes if node.alive and node.name not in self.cluster.processes]
            return more

        end = time.monotonic() + BACK_SECONDS_MAX
        while more := left():
            check(time.monotonic() < end, f"{kind}: left behind: {more[:10]}")
            time.sleep(0.1)

    def bounded(self, kind):
        for name, most in self.meter.most.items():
            bound = RESIDENT_MIB_MAX[name.split("-")[0]]
            check(most.resident_mib <= bound, f"{kind}: {name} has {most.resident_mib:.0f} MiB, more than {bound}")


def shown(answers):
    return ", ".join(f"{count} {answer}" for answer, count in sorted(answers.items(), key=lambda one: -one[1])[:4])


def short(field, kind):
    before = field.meter.now()
    field.meter.reset()
    begin = time.monotonic()
    answers = field.abuse(kind, KINDS[kind][1])
    took = time.monotonic() - begin
    field.bounded(kind)
    field.clean()
    done = time.monotonic()
    field.back(kind, before)
    back = time.monotonic() - done
    most = ", ".join(f"{name} {one.resident_mib:.0f}" for name, one in sorted(field.meter.most.items()))
    longest, what = field.honest.longest(begin, time.monotonic())
    print(f"{kind}: {took:.1f} s, back after {back:.1f} s: {shown(answers)}; MiB: {most}; ", end="")
    print(f"longest wait {longest:.2f} s ({what})", flush=True)


@contextlib.contextmanager
def controls(shares):
    started = [subprocess.Popen(["nice", sys.executable, f"{HERE}/control.py", f"{share:.3f}"]) for share in shares]
    try:
        yield
    finally:
        for one in started:
            one.terminate()
            one.wait()


class Window:
    """One time with the hostile client, between one without and one with its controls."""

    def __init__(self, field, kind, seconds):
        quiet = time.monotonic()
        pause(field, min(seconds, REFERENCE_SECONDS_MAX))
        begin, used = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        daemons = field.meter.processor_seconds()
        self.answers = field.abuse(kind, seconds=seconds)
        end = time.monotonic()
        self.wait = field.honest.longest(begin, end)
        spent = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.client = (spent.ru_utime - used.ru_utime + spent.ru_stime - used.ru_stime) / (end - begin)
        after = field.meter.processor_seconds()
        self.attacked = max(after[name] - daemons[name] for name in KINDS[kind][2]) / (end - begin)
        field.clean()
        beside = len(KINDS[kind][2])
        control = time.monotonic()
        with controls([min(1.0, self.client / beside)] * beside):
            pause(field, min(seconds, REFERENCE_SECONDS_MAX))
        self.quiet = field.training.steps(quiet, begin)[0]
        self.hostile = field.training.steps(begin, end)[0]
        self.control = field.training.steps(control, time.monotonic())[0]


def pause(field, seconds):
    begin = time.monotonic()
    field.cluster.until(lambda: field.check() or time.monotonic() >= begin + seconds, "the time is over")


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def long(field, kind, seconds):
    """Returns the table's row, and what of the contract does not hold."""
    before = field.meter.now()
    field.meter.reset()
    windows = [Window(field, kind, seconds / WINDOWS) for _ in range(WINDOWS)]
    field.bounded(kind)
    field.back(kind, before)
    answers = {}
    for answer, count in (one for window in windows for one in window.answers.items()):
        answers[answer] = answers.get(answer, 0) + count
    whole = [window for window in windows if min(window.quiet, window.hostile, window.control) > 0]
    check(whole, f"{kind}: no window saw a step of each; give it more --seconds")
    to_quiet = median(window.hostile / window.quiet for window in whole)
    to_control = median(window.hostile / window.control for window in whole)
    most = {name.split("-")[0]: 0 for name in field.meter.most}
    for name, one in field.meter.most.items():
        most[name.split("-")[0]] = max(most[name.split("-")[0]], one.resident_mib)
    wait, what = max(window.wait for window in windows)
    steps = " ".join(f"{w.quiet * 1000:.1f}/{w.control * 1000:.1f}/{w.hostile * 1000:.1f}" for w in windows)
    row = f"| {kind} | {shown(answers)} | {steps} | {to_quiet:.2f}, {to_control:.2f} | "
    row += f"{median(w.client for w in windows):.2f}, {median(w.attacked for w in windows):.2f} | "
    row += f"{most['coordinator']:.0f}, {most['ps']:.0f}, {most['worker']:.0f} | {wait:.2f} ({what}) |"
    broken = [f"{kind}: a step takes {to_control:.2f} times as long"] if to_control > STEP_LONGER_MAX else []
    broken += [f"{kind}: {what} waited {wait:.2f} s"] if wait > WAIT_SECONDS_MAX else []
    return row, broken


HEAD = """ms a step: undisturbed/beside controls/hostile; the last to each of the others, medians; processors that the
hostile clients use, and the daemon that they attack
| kind | answers | ms a step | to those | processors | MiB: coordinator, ps, worker | longest wait, s |
|---|---|---|---|---|---|---|"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0)
    parser.add_argument("--kinds", default="")
    parser.add_argument("--clusters", default="plain,stranger,user")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="cairn-hostile-")
    broken = []
    try:
        clusters = Clusters(directory, args.epochs, args.workers)
        for who in args.clusters.split(","):
            kinds = {"plain": list(KINDS), "stranger": OF_STRANGER, "user": OF_USER}[who]
            wanted = args.kinds.split(",") if args.kinds else kinds
            with clusters.of(who) as field:
                print(f"---- {who} ----" + (f"\n{HEAD}" if args.seconds else ""), flush=True)
                for kind in [kind for kind in kinds if kind in wanted]:
                    if args.seconds:
                        row, more = long(field, kind, args.seconds)
                        broken += more
                        print(row, flush=True)
                    else:
                        short(field, kind)
            print(f"{clusters.ended} jobs ended with the digest of an undisturbed one", flush=True)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    check(not broken, "\n".join(broken))


if __name__ == "__main__":
    main()
