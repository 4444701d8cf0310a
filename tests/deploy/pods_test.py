"""Goal: the pods of the overlays dev and tls, started with the commands, environment, secrets and names that their
objects say (pods.py), make a cluster that is ready by its own probes and trains. A ps and a worker that are stopped as
Kubernetes does it (preStop, SIGTERM) hold nothing when they are stopped, the job goes on, and the ps has work again
after its init container ran. Without a certificate nobody gets anything from the overlay tls but the probes; a node's
certificate drains that node alone, and a user's none. Jobs do not reach what is not below a worker's root.

    pods_test.py SOURCE BIN        77: no kubectl, or no network of its own
"""

import json
import os
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

import tools
from kubernetes_test import render
from pods import PodFailure, Pods, isolated


class Trial:
    def __init__(self, pods, certs):
        self.pods, self.certs = pods, certs
        self.user = certs and f"{certs}/alice"

    def run(self, *words, tls_dir=None):
        environment = {"PATH": f"{self.pods.programs}:/usr/bin:/bin", "CAIRN_COORDINATOR": "cairn-coordinator:7070"}
        if tls_dir:
            environment["CAIRN_TLS_DIR"] = tls_dir
        return subprocess.run(["cairn", *words], env=environment, capture_output=True, text=True, timeout=120)

    def cairn(self, *words, code=0):
        done = self.run(*words, tls_dir=self.user)
        if done.returncode != code:
            raise PodFailure(f"cairn {' '.join(words)}: exit {done.returncode}: {done.stderr}")
        return done.stdout

    def refused(self, said, *words, who=None):
        done = self.run(*words, tls_dir=who or self.user)
        if done.returncode == 0 or said not in done.stderr:
            raise PodFailure(f"cairn {' '.join(words)} by {who}: exit {done.returncode}: {done.stderr}")

    def node(self, name):
        nodes = json.loads(self.cairn("--json", "nodes"))["nodes"]
        return next(node for node in nodes if node["name"] == name)

    def step(self):
        return int(json.loads(self.cairn("--json", "job", "glyphs"))["step"])

    def wait_for_steps(self, when):
        goal = self.step() + 20
        self.pods.until(f"20 more steps, {when}", lambda: self.step() >= goal)

    def wait_until_ready(self, names):
        for name in names:
            self.pods.until(f"{name} is ready", self.pods.pods[name].ready)

    def start(self):
        for pod in self.pods.pods.values():
            pod.start()
        self.wait_until_ready(self.pods.pods)

    def submit(self, source):
        data = os.path.join(self.pods.dir, "volumes/data/glyphs")
        self.cairn("data", "make", "glyphs", data, "--count", "1200", "--test-count", "200")
        job = os.path.join(source, "examples/glyphs/job.textproto")
        self.cairn("submit", job, "--set", f"data.path={data}", "--set", "epochs=10000")
        self.pods.until("the job runs", lambda: "running" in self.cairn("jobs"))
        self.wait_for_steps("all pods run")
        outside = f"{self.pods.dir}/elsewhere"
        self.refused("does not lie below a root", "submit", job, "--set", f"data.path={outside}", "--set", "name=out")

    def stop(self, name):
        pod = self.pods.pods[name]
        before = self.node(name)
        if not before["partitions"] and not before["slots_used"]:
            raise PodFailure(f"{name} has no work before it is drained: {before}")
        hook, end = pod.stop()
        if hook != 0 or end != 0:
            raise PodFailure(f"{name}: preStop ended with {hook}, the daemon with {end}")
        after = self.node(name)
        if after["partitions"] or after["slots_used"]:
            raise PodFailure(f"{name} was stopped with its work: {after}")
        self.wait_for_steps(f"{name} is stopped")


def check_strangers(trial):
    """Who shows no certificate: refused by gRPC, and by all pages but the probes."""
    trial.user = None
    trial.cairn("nodes", code=1)
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    for pod in trial.pods.pods.values():
        if pod.process.poll() is not None:
            continue
        try:
            urllib.request.urlopen(f"https://{pod.address}:7080/metrics", timeout=5, context=unchecked).read()
            raise PodFailure(f"{pod.name} answers /metrics to a stranger")
        except urllib.error.HTTPError as refused:
            if refused.code != 403:
                raise


def check_drains(trial):
    """A user drains nothing, a pod none of another kind; an admin may."""
    for who in ("alice", "cairn-worker", "cairn-coordinator"):
        trial.refused("your certificate is that of", "nodes", "drain", "cairn-ps-1", who=f"{trial.certs}/{who}")
    for words in ((), ("--undo",)):
        done = trial.run("nodes", "drain", "cairn-ps-1", *words, tls_dir=f"{trial.certs}/me")
        if done.returncode != 0:
            raise PodFailure(f"an admin drains: exit {done.returncode}: {done.stderr}")


def check_overlay(name, objects, certs, source, binaries):
    with Pods(objects, tempfile.mkdtemp(prefix="cairn-pods-"), binaries, source) as pods:
        trial = Trial(pods, certs)
        trial.start()
        print(f"{name}: {len(pods.pods)} pods are ready", flush=True)
        trial.submit(source)
        if certs:
            check_drains(trial)
        trial.stop("cairn-ps-1")
        pods.pods["cairn-ps-1"].start()
        trial.wait_until_ready(["cairn-ps-1"])
        if trial.node("cairn-ps-1")["draining"]:
            raise PodFailure("cairn-ps-1 came back and is still drained")
        trial.stop("cairn-worker-1")
        trial.wait_until_ready(["cairn-coordinator-0", "cairn-ps-0", "cairn-ps-1", "cairn-worker-0"])
        if certs:
            check_strangers(trial)
    print(f"{name}: a ps and a worker were drained, stopped, and the job went on", flush=True)


def main():
    source, binaries = (os.path.abspath(path) for path in sys.argv[1:3])
    kubernetes = tools.find()
    isolated(tools.skip)
    with tempfile.TemporaryDirectory(prefix="cairn-pods-") as work:
        rendered = render(kubernetes, source, work)
        certs = os.path.join(work, "deploy/kubernetes/overlays/tls/certs")
        check_overlay("tls", rendered["tls"], certs, source, binaries)
        check_overlay("dev", rendered["dev"], None, source, binaries)


if __name__ == "__main__":
    main()
