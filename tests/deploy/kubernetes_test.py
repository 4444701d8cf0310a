"""Goal: every object of deploy/kubernetes is one that Kubernetes accepts, and fits the others and Cairn's programs.
Pods meet the Pod Security Standard "restricted". The network policies allow what Cairn needs and nothing else. Faults
that are planted are found.

    kubernetes_test.py SOURCE BIN        77: kubectl or the schemas cannot be had (tools.py)
"""

import copy
import os
import re
import shutil
import subprocess
import sys
import tempfile

import tools
import yaml

sys.path.insert(0, os.path.join(tools.SOURCE, "tests/lint"))
from kubernetes_lint import check_objects, check_restricted, of_kind, pods, selects  # noqa: E402

OVERLAYS = ("dev", "tls", "production")
CERTIFICATES = (
    "coordinator:cairn-coordinator,cairn-coordinator.cairn.svc",
    "ps:cairn-ps,*.cairn-ps.cairn.svc",
    "worker:cairn-worker",
    "user:alice",
    "admin:me",
)
LABEL, PART = "app.kubernetes.io/name", "app.kubernetes.io/component"
# Who: (labels of the pod, its namespace's name).
PODS = {
    "coordinator": ({LABEL: "cairn", PART: "coordinator"}, "cairn"),
    "ps": ({LABEL: "cairn", PART: "ps"}, "cairn"),
    "worker": ({LABEL: "cairn", PART: "worker"}, "cairn"),
    "user": ({"cairn-client": "true"}, "science"),
    "program": ({"cairn-client": "true", "cairn-program": "true"}, "science"),
    "stranger": ({"app": "web"}, "cairn"),
    "prometheus": ({"app": "prometheus"}, "monitoring"),
    "dns": ({"k8s-app": "kube-dns"}, "kube-system"),
}
ALLOWED = {
    *((who, "coordinator", 7070) for who in ("ps", "worker", "user", "program")),
    *((who, "ps", 7071) for who in ("ps", "worker", "program")),
    *(("prometheus", whom, 7080) for whom in ("coordinator", "ps", "worker")),
    *((who, "dns", 53) for who in ("ps", "worker")),
}


# ---- network policies ----


def peer_matches(peer, pod, own_namespace):
    labels, namespace = pod
    if "namespaceSelector" in peer:
        if not selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": namespace}):
            return False
    elif namespace != own_namespace:
        return False
    return selects(peer.get("podSelector", {}), labels)


def direction_allows(policies, pod, other, port, direction, peers):
    labels, namespace = pod
    chosen = [
        p
        for p in policies
        if namespace == p["metadata"]["namespace"]
        and selects(p["spec"]["podSelector"], labels)
        and direction in p["spec"]["policyTypes"]
    ]
    rules = [rule for p in chosen for rule in p["spec"].get(direction.lower(), [])]
    return not chosen or any(
        port in [each["port"] for each in rule["ports"]] and any(peer_matches(x, other, namespace) for x in rule[peers])
        for rule in rules
    )


def check_policies(objects):
    policies = of_kind(objects, "NetworkPolicy")
    for who, source in PODS.items():
        for whom, target in PODS.items():
            for port in (53, 7070, 7071, 7080):
                if "cairn" not in (source[0].get(LABEL), target[0].get(LABEL)):
                    continue
                allowed = direction_allows(policies, source, target, port, "Egress", "to")
                allowed = allowed and direction_allows(policies, target, source, port, "Ingress", "from")
                if allowed != ((who, whom, port) in ALLOWED):
                    yield f"network policies: {who} to {whom}:{port} is {'allowed' if allowed else 'refused'}"


# ---- certificates ----


def check_roles(objects):
    """Pods show a certificate with the role of their daemon, and the name by which they join; who is no daemon shows
    none of their roles, and cannot pose as a server."""
    made, of_pods = {o["spec"]["secretName"]: o["spec"] for o in of_kind(objects, "Certificate")}, set()
    for o, pod in pods(objects) if made else ():
        secrets = [v["secret"]["secretName"] for v in pod.get("volumes", []) if "secret" in v]
        role = pod["containers"][0]["command"][0].removeprefix("cairn-")
        wanted = f"cairn://{role}/{o['metadata']['name']}"
        if [made.get(name, {}).get("uris") for name in secrets] != [[wanted]]:
            yield f"{o['metadata']['name']}: its certificate lacks the role {wanted}, or has others"
        of_pods.update(secrets)
    for spec in (spec for secret, spec in made.items() if secret not in of_pods):
        roles = {re.match(r"cairn://(\w+)/", uri)[1] for uri in spec.get("uris", [])}
        if not roles <= {"user", "admin"} or (not spec.get("isCA") and "server auth" in spec["usages"]):
            yield f"certificate {spec['commonName']}: no pod has it, and it is one of a daemon"
    for o in of_kind(objects, "ServiceMonitor"):
        tls = o["spec"]["endpoints"][0]["tlsConfig"]
        for secret in (tls["ca"]["secret"]["name"], tls["cert"]["secret"]["name"], tls["keySecret"]["name"]):
            if secret not in made or "uris" in made[secret]:
                yield f"ServiceMonitor {o['metadata']['name']}: {secret} is no certificate without a role"


def check_certificates(objects):
    """Each address that is dialled is a name of the certificate that answers there."""
    for o in of_kind(objects, "Certificate"):
        if "server auth" not in o["spec"].get("usages", []):
            continue
        names = o["spec"]["dnsNames"]
        part = o["metadata"]["name"].removeprefix("cairn-")
        wanted = {"ps": "*.cairn-ps.cairn.svc"}.get(part, f"cairn-{part}")
        monitors = [m for m in of_kind(objects, "ServiceMonitor") if m["metadata"]["name"] == o["metadata"]["name"]]
        for name in (wanted, *(m["spec"]["endpoints"][0]["tlsConfig"]["serverName"] for m in monitors)):
            if name not in names:
                yield f"certificate {o['metadata']['name']}: lacks the name {name}"


def check_image(objects, version):
    for o in objects:
        for image in re.findall(r"'image': '([^']*)'", str(o)):
            if image != f"cairn:{version}":
                yield f"{o['metadata']['name']}: image {image}, and this is version {version}"


def check_namespace(objects):
    for o in objects:
        enforced = o["metadata"].get("labels", {}).get("pod-security.kubernetes.io/enforce")
        if o["kind"] == "Namespace" and enforced != "restricted":
            yield "the namespace does not enforce the restricted standard"
        if o["kind"] != "Namespace" and o["metadata"].get("namespace") != "cairn":
            yield f"{o['kind']} {o['metadata']['name']}: in no namespace"


def problems_of(binaries, name, objects, version):
    yield from check_objects(binaries, name, objects)
    checks = (check_namespace, check_certificates, check_roles)
    for found in (check_image(objects, version), *(check(objects) for check in checks)):
        yield from (f"{name}: {line}" for line in found)
    if name == "production":
        yield from check_policies(objects)


# ---- Kubeflow ----


def jobs_of_runtime(runtime):
    """Its templates as the Jobs that the Trainer makes of them, which Kubernetes' schemas know."""
    for each in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        metadata = {"name": f"{runtime['metadata']['name']}-{each['name']}", **each["template"]["metadata"]}
        yield {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": each["template"]["spec"]}


def check_runtime(runtime, train_job, version):
    step = "trainer.kubeflow.org/trainjob-ancestor-step"
    if train_job["spec"]["runtimeRef"] != {"name": runtime["metadata"]["name"]}:
        yield "the TrainJob is of another runtime"
    for job in jobs_of_runtime(runtime):
        pod = job["spec"]["template"]
        if job["metadata"].get("labels", {}).get(step) == "trainer" and "node" not in [
            container["name"] for container in pod["spec"]["containers"]
        ]:
            yield "the step trainer has no container named node, whose image and command a TrainJob gives"
        yield from check_restricted(job["metadata"]["name"], pod["spec"])
        if pod["metadata"]["labels"] != PODS["program"][0]:
            yield f"labels {pod['metadata']['labels']}: the network policies let pods in with {PODS['program'][0]}"
        for container in pod["spec"]["containers"]:
            variables = {each["name"]: each["value"] for each in container["env"]}
            if variables.get("CAIRN_COORDINATOR") != "cairn-coordinator.cairn.svc:7070":
                yield f"CAIRN_COORDINATOR={variables.get('CAIRN_COORDINATOR')}"
            if variables.get("CAIRN_TLS_DIR") not in [mount["mountPath"] for mount in container["volumeMounts"]]:
                yield f"CAIRN_TLS_DIR={variables.get('CAIRN_TLS_DIR')}: nothing is mounted there"
            if not container["image"].endswith(f":{version}"):
                yield f"image {container['image']}, and this is version {version}"


RUNTIME_FAULTS = [
    ("spec/backOffLimit", 3, "the schema knows no such field"),
    ("spec/template/spec/containers/0/name", "trainer", "no container named node"),
    ("spec/template/spec/securityContext/runAsNonRoot", False, "may run as root"),
    ("spec/template/metadata/labels", {"cairn-client": "true"}, "the network policies let pods in"),
    ("spec/template/spec/containers/0/env/1/value", "/tls", "nothing is mounted there"),
]


def kubeflow_problems(kubernetes, source, version):
    folder = os.path.join(source, "deploy/kubernetes/kubeflow")
    (runtime,) = kubernetes.kustomize(folder)
    with open(os.path.join(folder, "train-job.yaml"), encoding="utf-8") as f:
        train_job = yaml.safe_load(f)
    found = kubernetes.check(list(jobs_of_runtime(runtime)))[0] + list(check_runtime(runtime, train_job, version))
    for path, value, said in RUNTIME_FAULTS:
        where = f"spec/template/spec/replicatedJobs/0/template/{path}"
        (planted,) = plant([runtime], (runtime["kind"], runtime["metadata"]["name"], where, value))
        lines = kubernetes.check(list(jobs_of_runtime(planted)))[0] + list(check_runtime(planted, train_job, version))
        if not any(said in line for line in lines):
            found.append(f"planted {path}: wanted {said!r}, found {lines}")
    return [f"kubeflow: {line}" for line in found]


# ---- faults ----


def find(objects, kind, name):
    return next(o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name)


def plant(objects, fault):
    """A copy in which the field at the path is another."""
    kind, name, path, value = fault
    planted = copy.deepcopy(objects)
    at = find(planted, kind, name)
    *steps, last = [int(s) if s.isdigit() else s for s in path.split("/")]
    for step in steps:
        at = at[step]
    at[last] = value
    return planted


WORKER = ("Deployment", "cairn-worker")
PS = ("StatefulSet", "cairn-ps")
FAULTS = [
    ((*WORKER, "spec/template/spec/containers/0/readinesProbe", {}), "the schema knows no such field"),
    ((*WORKER, "spec/minReadySeconds", "soon"), "/spec/minReadySeconds"),
    ((*WORKER, "spec/replicas", 2), "the autoscaler owns them"),
    ((*WORKER, "spec/template/spec/volumes/2/secret/secretName", "tls"), "there is no secret tls"),
    ((*WORKER, "spec/template/spec/containers/0/startupProbe/httpGet/scheme", "HTTP"), "startupProbe is HTTP"),
    ((*WORKER, "spec/template/spec/containers/0/image", "cairn:0"), "image cairn:0"),
    (("HorizontalPodAutoscaler", "cairn-worker", "spec/scaleTargetRef/name", "worker"), "which is not there"),
    (("PodDisruptionBudget", "cairn-ps", "spec/selector/matchLabels", {"a": "b"}), "selects no pods"),
    (("ServiceMonitor", "cairn-ps", "spec/selector/matchLabels", {"a": "b"}), "selects no services"),
    (("ServiceMonitor", "cairn-ps", "spec/endpoints/0/tlsConfig/serverName", "ps"), "lacks the name ps"),
    (("ServiceMonitor", "cairn-ps", "spec/endpoint", []), "the schema knows no such field"),
    (("Certificate", "cairn-ps", "spec/dnsNames", ["cairn-ps"]), "lacks the name *.cairn-ps.cairn.svc"),
    (("Certificate", "cairn-ps", "spec/issuer", {}), "the schema knows no such field"),
    ((*PS, "spec/template/spec/containers/0/env/4/name", "TLS_DIR"), "--listen 0.0.0.0:7071 without CAIRN_TLS_DIR"),
    ((*WORKER, "spec/template/spec/containers/0/env/3/name", "TLS_DIR"), "--http 0.0.0.0:7080 without CAIRN_TLS_DIR"),
    ((*WORKER, "spec/template/spec/containers/0/command/5", "--root=/srv"), "--root /srv: nothing is mounted there"),
    ((*PS, "spec/template/spec/volumes/0/secret/secretName", "cairn-worker-tls"), "lacks the role cairn://ps/cairn-ps"),
    (("Certificate", "cairn-ps", "spec/uris", []), "lacks the role cairn://ps/cairn-ps"),
    (("Certificate", "cairn-worker", "spec/uris", ["cairn://worker/w"]), "lacks the role cairn://worker/cairn-worker"),
    (("Certificate", "cairn-admin", "spec/uris", ["cairn://ps/*"]), "it is one of a daemon"),
    (("Certificate", "cairn-prometheus", "spec/uris", ["cairn://admin/p"]), "is no certificate without a role"),
    (("NetworkPolicy", "cairn-ps", "spec/ingress", []), "worker to ps:7071 is refused"),
    (("NetworkPolicy", "cairn-deny", "spec/policyTypes", ["Ingress"]), "coordinator to dns:53 is allowed"),
    (
        ("NetworkPolicy", "cairn-metrics", "spec/ingress/0/from", [{"podSelector": {}}]),
        "stranger to ps:7080 is allowed",
    ),
    (("Namespace", "cairn", "metadata/labels", {}), "does not enforce the restricted standard"),
]


def check_faults(kubernetes, binaries, objects, version):
    planted = [plant(objects, fault) for fault, _ in FAULTS]
    by_schema = kubernetes.check(*planted)
    for (fault, said), faulty, found in zip(FAULTS, planted, by_schema):
        found += problems_of(binaries, "production", faulty, version)
        if not any(said in line for line in found):
            yield f"planted {fault}: wanted {said!r}, found {found}"


# ---- main ----


def shown_objects(source):
    with open(os.path.join(source, "docs/operating/kubernetes.md"), encoding="utf-8") as f:
        return [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", f.read(), re.M | re.S)]


def render(kubernetes, source, work):
    """{overlay: its objects}. The overlay tls has the certificates that its first lines say."""
    shutil.copytree(os.path.join(source, "deploy"), os.path.join(work, "deploy"), dirs_exist_ok=True)
    overlays = os.path.join(work, "deploy/kubernetes/overlays")
    with open(os.path.join(overlays, "tls/kustomization.yaml"), encoding="utf-8") as f:
        text = f.read().replace("\\\n# ", "")
    shown = re.search(r"make_certs\.sh certs (.*)", text)[1].replace("'", "").split()
    if shown != list(CERTIFICATES):
        raise RuntimeError(f"overlay tls makes certificates for {shown}, the test for {CERTIFICATES}")
    certs = [os.path.join(work, "deploy/make_certs.sh"), os.path.join(overlays, "tls/certs"), *CERTIFICATES]
    subprocess.run(certs, check=True, stdout=subprocess.DEVNULL)
    return {name: kubernetes.kustomize(os.path.join(overlays, name)) for name in OVERLAYS}


def main():
    source, binaries = sys.argv[1:3]
    kubernetes = tools.find()
    with open(os.path.join(source, "CMakeLists.txt"), encoding="utf-8") as f:
        version = re.search(r"^project\(cairn VERSION ([0-9.]+)", f.read(), re.M)[1]
    problems = [f"docs/operating/kubernetes.md: {line}" for line in kubernetes.check(shown_objects(source))[0]]
    with tempfile.TemporaryDirectory() as work:
        rendered = render(kubernetes, source, work)
    by_schema = kubernetes.check(*rendered.values())
    for (name, objects), found in zip(rendered.items(), by_schema):
        problems += (f"{name}: {line}" for line in found)
        problems += problems_of(binaries, name, objects, version)
        print(f"{name}: {len(objects)} objects", flush=True)
    problems += check_faults(kubernetes, binaries, rendered["production"], version)
    problems += kubeflow_problems(kubernetes, source, version)
    print("\n".join(problems))
    print(f"{len(FAULTS) + len(RUNTIME_FAULTS)} faults planted, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
