"""Runs the pods of rendered objects as processes of this machine, as a kubelet would: the commands of containers and
init containers with their environment, volumes as folders, secrets as files, probes and hooks. A pod has an address of
its own (127.0.0.2, ...) and the names that its services give it, in /etc/hosts; so this runs in a network and with
mounts of its own (isolated). What a container may write to, and policies, are not enforced.
"""

import base64
import os
import re
import shlex
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request

ISOLATED = "unshare --user --map-root-user --net --mount --pid --fork --mount-proc --kill-child".split()
WAIT_S = 120


class PodFailure(Exception):
    pass


def isolated(skip):
    """Starts this program again with a network, mounts and processes of its own; returns there."""
    if os.environ.get("CAIRN_ISOLATED"):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    probe = subprocess.run([*ISOLATED, "ip", "link", "set", "lo", "up"], capture_output=True, text=True)
    if probe.returncode != 0:
        skip(f"no network of its own can be had here: {probe.stderr.strip()}")
    done = subprocess.run([*ISOLATED, sys.executable, *sys.argv], env={**os.environ, "CAIRN_ISOLATED": "1"})
    sys.exit(done.returncode)


class Pod:
    def __init__(self, cluster, workload, index, address):
        self.cluster, self.address = cluster, address
        self.name = f"{workload['metadata']['name']}-{index}"
        self.spec = workload["spec"]["template"]["spec"]
        self.container = self.spec["containers"][0]
        self.dir = os.path.join(cluster.dir, self.name)
        self.process = None
        os.mkdir(self.dir)
        for volume in self.spec.get("volumes", []):
            if "secret" in volume:
                self.write_secret(volume["name"], cluster.secrets[volume["secret"]["secretName"]])

    def folder(self, volume):
        claims = {v["name"]: v for v in self.spec.get("volumes", []) if "persistentVolumeClaim" in v}
        path = os.path.join(self.cluster.dir if volume in claims else self.dir, "volumes", volume)
        os.makedirs(path, exist_ok=True)
        return path

    def write_secret(self, volume, data):
        for key, value in data.items():
            with open(os.path.join(self.folder(volume), key), "wb") as f:
                f.write(base64.b64decode(value))
            os.chmod(f.name, 0o400)

    # ---- containers ----

    def on_this_machine(self, container, text):
        mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
        if mounts:  # all at once: what takes one's place may hold another's path
            paths = "|".join(map(re.escape, mounts))
            text = re.sub(rf"({paths})(?=[/:]|$)", lambda match: self.folder(mounts[match[1]]), text)
        return text.replace("0.0.0.0", self.address)

    def environment(self, container):
        fields = {"metadata.name": self.name, "metadata.namespace": "cairn", "spec.nodeName": f"node-of-{self.name}"}
        found = {"PATH": f"{self.cluster.programs}:/usr/bin:/bin"}
        for each in container.get("env", []):
            value = each.get("value") or fields[each["valueFrom"]["fieldRef"]["fieldPath"]]
            found[each["name"]] = self.on_this_machine(container, value)
        return found

    def start(self):
        for container in self.spec.get("initContainers", []):
            done = self.run(container, container["command"])
            if done.returncode != 0:
                raise PodFailure(f"{self.name}: {container['name']}: exit {done.returncode}: {done.stderr}")
        environment = self.environment(self.container)
        command = [self.expanded(word, environment) for word in self.container["command"]]
        with open(os.path.join(self.dir, "log"), "ab") as log:
            self.process = subprocess.Popen(
                [self.on_this_machine(self.container, word) for word in command],
                env=environment,
                cwd=self.dir,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    @staticmethod
    def expanded(word, environment):
        return re.sub(r"\$\((\w+)\)", lambda match: environment[match[1]], word)

    def run(self, container, command):
        environment = self.environment(container)
        words = [self.expanded(word, environment) for word in command] if command is container["command"] else command
        return subprocess.run(words, env=environment, cwd=self.dir, capture_output=True, text=True, timeout=WAIT_S)

    def stop(self):
        """preStop, then SIGTERM; the exit codes of both."""
        code = 0
        hook = self.container.get("lifecycle", {}).get("preStop")
        if hook:
            done = self.run(self.container, hook["exec"]["command"])
            code = done.returncode
            if code != 0:
                print(f"{self.name}: {shlex.join(hook['exec']['command'])}: {done.stderr}", flush=True)
        self.process.send_signal(signal.SIGTERM)
        return code, self.process.wait(timeout=15)

    # ---- probes ----

    def passes(self, kind):
        probe = self.container[kind]
        if "exec" in probe:
            return self.run(self.container, probe["exec"]["command"]).returncode == 0
        get = probe["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        url = f"{get.get('scheme', 'HTTP').lower()}://{self.address}:{ports[get['port']]}{get['path']}"
        unchecked = ssl.create_default_context()
        unchecked.check_hostname = False
        unchecked.verify_mode = ssl.CERT_NONE
        try:
            with urllib.request.urlopen(url, timeout=5, context=unchecked) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            return False

    def ready(self):
        return all(self.passes(kind) for kind in ("startupProbe", "livenessProbe", "readinessProbe"))


class Pods:
    def __init__(self, objects, folder, binaries, source):
        self.dir = folder
        self.secrets = {o["metadata"]["name"]: o["data"] for o in objects if o["kind"] == "Secret"}
        self.programs = os.path.join(folder, "programs")
        os.mkdir(self.programs)
        for program in ("cairn", "cairn-coordinator", "cairn-ps", "cairn-worker"):
            os.symlink(os.path.join(binaries, program), os.path.join(self.programs, program))
        os.symlink(os.path.join(source, "deploy/drain.sh"), os.path.join(self.programs, "cairn-drain"))
        self.pods, hosts = {}, ["127.0.0.1 localhost"]
        for o in objects:
            if o["kind"] not in ("StatefulSet", "Deployment"):
                continue
            name = o["metadata"]["name"]
            for index in range(o["spec"].get("replicas", 1)):
                pod = Pod(self, o, index, f"127.0.0.{len(self.pods) + 2}")
                self.pods[pod.name] = pod
                hosts.append(f"{pod.address} {pod.name}.{name}.cairn.svc {name if index == 0 else ''}")
        with open(os.path.join(folder, "hosts"), "w", encoding="utf-8") as f:
            f.write("\n".join(hosts) + "\n")
        subprocess.run(["mount", "--bind", f.name, "/etc/hosts"], check=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        for pod in self.pods.values():
            if pod.process is not None and pod.process.poll() is None:
                pod.process.kill()
                pod.process.wait()
            if kind is not None and os.path.exists(os.path.join(pod.dir, "log")):
                with open(os.path.join(pod.dir, "log"), encoding="utf-8", errors="replace") as f:
                    print(f"---- {pod.name} ----\n{f.read()[-2000:]}", flush=True)
        subprocess.run(["umount", "/etc/hosts"], check=True)
        shutil.rmtree(self.dir, ignore_errors=True)

    def until(self, what, true):
        end = time.monotonic() + WAIT_S
        while not true():
            for pod in self.pods.values():
                if pod.process is not None and pod.process.poll() not in (None, 0):
                    raise PodFailure(f"{pod.name} ended with {pod.process.returncode}")
            if time.monotonic() > end:
                raise PodFailure(f"not within {WAIT_S} s: {what}")
            time.sleep(0.2)
