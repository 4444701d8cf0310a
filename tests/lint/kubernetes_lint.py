"""Whether Kubernetes objects fit each other and Cairn's programs: flags, services, ports, probes, volumes, and what the
Pod Security Standard "restricted" asks for, with a read-only root. Used for deploy/kubernetes/base as it is
(deploy_lint.py) and for what kustomize and Helm make of it (tests/deploy)."""

import re
import shlex

from command_lint import check_command, check_listen, check_roots, value_after

HTTP_PROBES = ("/healthz", "/readyz")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
COORDINATOR = "CAIRN_COORDINATOR"
# Of the image, beside the programs: how many arguments they take.
SCRIPTS = {"cairn-drain": 2}


def of_kind(objects, *kinds):
    return [o for o in objects if o["kind"] in kinds]


def named(objects, kind):
    return {o["metadata"]["name"] for o in of_kind(objects, kind)}


def pods(objects):
    """(the object, its pod's spec) of all that start pods."""
    return [(o, o["spec"]["template"]["spec"]) for o in of_kind(objects, "StatefulSet", "Deployment")]


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def commands(container):
    hooks = [container[kind] for kind in PROBES if kind in container]
    hooks += [hook for hook in container.get("lifecycle", {}).values()]
    for words in (container["command"], *(hook["exec"]["command"] for hook in hooks if "exec" in hook)):
        yield words


def in_shell(words):
    if words[:2] != ["sh", "-c"]:
        return words
    words = shlex.split(words[2])
    return words[1:] if words[0] == "exec" else words


# ---- Pod Security, restricted; and a read-only root ----


def check_restricted(who, spec):
    pod = spec.get("securityContext", {})
    if pod.get("runAsNonRoot") is not True or not pod.get("runAsUser"):
        yield f"{who}: its pods may run as root"
    if pod.get("seccompProfile") != {"type": "RuntimeDefault"}:
        yield f"{who}: has no seccompProfile RuntimeDefault"
    if spec.get("automountServiceAccountToken") is not False:
        yield f"{who}: its pods get a token of the API server, which they do not use"
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(name):
            yield f"{who}: {name}"
    for volume in spec.get("volumes", []):
        kind = next(key for key in volume if key != "name")
        if kind not in ("configMap", "emptyDir", "persistentVolumeClaim", "projected", "secret", "ephemeral"):
            yield f"{who}: volume {volume['name']}: {kind} is not restricted"
    for container in containers(spec):
        each, security = f"{who}: {container['name']}", container.get("securityContext", {})
        if security.get("allowPrivilegeEscalation") is not False or security.get("privileged"):
            yield f"{each}: may gain privileges"
        if security.get("capabilities") != {"drop": ["ALL"]}:
            yield f"{each}: keeps capabilities"
        if security.get("readOnlyRootFilesystem") is not True:
            yield f"{each}: may write to its image"
        if "memory" not in container.get("resources", {}).get("limits", {}):
            yield f"{each}: has no limit of memory"


# ---- containers ----


def check_probes(who, container, tls):
    port_names = {port["name"]: str(port["containerPort"]) for port in container.get("ports", [])}
    http = value_after(container["command"], "--http").split(":")[-1]
    for kind in PROBES:
        get = container.get(kind, {}).get("httpGet")
        if kind not in container:
            yield f"{who}: has no {kind}"
        elif get is not None:
            port = port_names.get(get["port"], str(get["port"]))
            if port != http or get["path"] not in HTTP_PROBES:
                there = f"{' and '.join(HTTP_PROBES)} on the port of --http"
                yield f"{who}: a probe asks for {get['path']} on port {port}; there are {there}"
            if get["path"] == "/readyz" and kind != "readinessProbe":
                yield f"{who}: {kind} asks whether it is ready: it would be started again instead of waited for"
            if get.get("scheme", "HTTP") != ("HTTPS" if tls else "HTTP"):
                yield f"{who}: {kind} is {get.get('scheme', 'HTTP')}, and CAIRN_TLS_DIR is {'' if tls else 'not '}set"
    ready = container.get("readinessProbe", {})
    words = in_shell(ready.get("exec", {}).get("command", []))
    if ready.get("httpGet", {}).get("path") != "/readyz" and not {"--ready", "--node"} & set(words):
        yield f"{who}: its readiness probe does not ask whether it is ready (/readyz, cairn health --ready or --node)"


def check_container(binaries, who, container, services, volumes, hooks=True):
    variables = {variable["name"]: variable.get("value") for variable in container.get("env", [])}
    coordinator = (variables.get(COORDINATOR) or "").split(":")[0]
    if container["command"][0] != "cairn-coordinator" and coordinator not in services:
        yield f"{who}: {COORDINATOR}={coordinator}: there is no such service"
    for words in commands(container):
        shell, words = words[:2] == ["sh", "-c"], in_shell(words)
        if words is not container["command"] and not shell and any("$(" in word for word in words):
            yield f"{who}: {shlex.join(words)}: $() is expanded in command and args only; use sh -c"
        for variable in re.findall(r"\$[({]?(\w+)", " ".join(words)):
            if variable not in variables:
                yield f"{who}: ${variable} is not in its env"
        if words[0] in SCRIPTS:
            if len([word for word in words[1:] if word != "--undo"]) != SCRIPTS[words[0]]:
                yield f"{who}: {shlex.join(words)}: takes {SCRIPTS[words[0]]} arguments"
            continue
        yield from (f"{who}: {shlex.join(words)}: {problem}" for problem in check_command(binaries, words, services))
    ports = {str(port["containerPort"]) for port in container.get("ports", [])}
    for flag in ("--listen", "--advertise", "--http"):
        address = value_after(container["command"], flag)
        if ":" in address and address.split(":")[-1] not in ports:
            yield f"{who}: {flag} {address}: that port is not among its ports"
        if flag == "--advertise" and address and not set(address.split(":")[0].split(".")) & services:
            yield f"{who}: {flag} {address}: there is no such service"
    mounts = container.get("volumeMounts", [])
    yield from check_roots(who, container["command"], {m["mountPath"]: m.get("readOnly", False) for m in mounts})
    for mount in mounts:
        if mount["name"] not in volumes:
            yield f"{who}: volume {mount['name']} is not declared"
    tls = variables.get("CAIRN_TLS_DIR")
    if tls and tls not in [mount["mountPath"] for mount in mounts]:
        yield f"{who}: CAIRN_TLS_DIR={tls}: nothing is mounted there"
    if hooks:
        yield from check_probes(who, container, tls)


def check_drain(who, spec):
    """What preStop may take is within the time that the pod has to end."""
    for container in spec["containers"]:
        words = in_shell(container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", []))
        if container["command"][0] == "cairn-coordinator":
            continue
        if not words or words[0] != "cairn-drain" or not words[-1].isdigit():
            yield f"{who}: preStop does not drain it (cairn-drain)"
        elif int(words[-1]) + 15 > spec["terminationGracePeriodSeconds"]:
            yield f"{who}: preStop may take {words[-1]} s, and terminationGracePeriodSeconds leaves no 15 s after it"


# ---- objects that name each other ----


def selects(selector, labels):
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for each in selector.get("matchExpressions", []):
        if each["operator"] != "In" or labels.get(each["key"]) not in each["values"]:
            return False
    return True


def check_selectors(path, objects):
    labels = [o["spec"]["template"]["metadata"]["labels"] for o, _ in pods(objects)]
    for o in of_kind(objects, "Service"):
        if not any(selects({"matchLabels": o["spec"]["selector"]}, each) for each in labels):
            yield f"{path}: service {o['metadata']['name']} selects no pods"
        for port in o["spec"]["ports"]:
            if not any(
                port["port"] in [p["containerPort"] for c in spec["containers"] for p in c.get("ports", [])]
                for pod, spec in pods(objects)
                if selects({"matchLabels": o["spec"]["selector"]}, pod["spec"]["template"]["metadata"]["labels"])
            ):
                yield f"{path}: service {o['metadata']['name']}: its pods have no port {port['port']}"
    for o in of_kind(objects, "PodDisruptionBudget", "NetworkPolicy"):
        selector = o["spec"].get("selector", o["spec"].get("podSelector"))
        if not any(selects(selector, each) for each in labels):
            yield f"{path}: {o['kind']} {o['metadata']['name']} selects no pods"
    services = [o["metadata"]["labels"] for o in of_kind(objects, "Service")]
    for o in of_kind(objects, "ServiceMonitor"):
        if not any(selects(o["spec"]["selector"], each) for each in services):
            yield f"{path}: ServiceMonitor {o['metadata']['name']} selects no services"
    for o in of_kind(objects, "HorizontalPodAutoscaler"):
        target = o["spec"]["scaleTargetRef"]
        found = [w for w in of_kind(objects, target["kind"]) if w["metadata"]["name"] == target["name"]]
        if not found:
            yield f"{path}: the HorizontalPodAutoscaler scales {target['name']}, which is not there"
        elif "replicas" in found[0]["spec"]:
            yield f"{path}: {target['name']}: replicas would be set back at every apply; the autoscaler owns them"


def check_objects(binaries, path, objects, whole=True):
    """whole: with what an overlay adds to the base, TLS or that there is none."""
    services, claims = named(objects, "Service"), named(objects, "PersistentVolumeClaim")
    secrets = named(objects, "Secret") | {o["spec"]["secretName"] for o in of_kind(objects, "Certificate")}
    for o, pod in pods(objects):
        who, spec = f"{path}: {o['metadata']['name']}", o["spec"]
        if spec["selector"]["matchLabels"] != spec["template"]["metadata"]["labels"]:
            yield f"{who}: its selector is not its pods' labels"
        if o["kind"] == "StatefulSet" and spec["serviceName"] not in services:
            yield f"{who}: serviceName {spec['serviceName']}: there is no such service"
        volumes = {v["metadata"]["name"] for v in spec.get("volumeClaimTemplates", [])}
        for volume in pod.get("volumes", []):
            volumes.add(volume["name"])
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and claim not in claims:
                yield f"{who}: there is no claim {claim}"
            secret = volume.get("secret", {}).get("secretName")
            if secret and secret not in secrets:
                yield f"{who}: there is no secret {secret}"
        for container in containers(pod):
            hooks = container in pod["containers"]
            yield from check_container(binaries, who, container, services, volumes, hooks)
            if whole:
                yield from check_listen(who, container["command"], [each["name"] for each in container["env"]])
        yield from check_restricted(who, pod)
        yield from check_drain(who, pod)
    yield from check_selectors(path, objects)
