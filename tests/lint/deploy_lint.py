"""Checks deploy/ without a container engine: that everything the Dockerfiles copy and run exists and reaches the build
(.dockerignore), that packages are Debian's, and that each command of docker-compose.yml, of kubernetes/ and of
systemd/, including healthchecks, uses flags that its program has and names services that exist.

    deploy_lint.py ROOT BIN     BIN: the folder of the programs
        prints problems, one per line; exit code 1 if there are any
"""

import fnmatch
import functools
import glob
import json
import os
import re
import shlex
import subprocess
import sys

import yaml

INSTRUCTIONS = {"ARG", "FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "CMD"}
HTTP_PROBES = ("/healthz", "/readyz")
PROGRAMS = ("cairn", "cairn-coordinator", "cairn-ps", "cairn-worker")


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as f:
        return f.read()


def reaches_build(root, path):
    """By .dockerignore: the last line that matches the path, or a folder that contains it, decides."""
    parts = path.split("/")
    above = ["/".join(parts[:n]) for n in range(1, len(parts) + 1)]
    included = True
    for line in read(root, ".dockerignore").split():
        if any(fnmatch.fnmatch(p, line.lstrip("!")) for p in above):
            included = line.startswith("!")
    return included


# ---- Dockerfiles ----


def instructions(text):
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, rest = line.strip().partition(" ")
            yield name, rest


def bundle_name(root):
    version = re.search(r"^project\(cairn VERSION ([0-9.]+)", read(root, "CMakeLists.txt"), re.M).group(1)
    name = re.search(r"^name=(.*)$", read(root, "deploy/bundle.sh"), re.M).group(1)
    return "build/" + name.replace("$version", version) + ".tar.gz"


def check_copied(root, source):
    if source == ".":
        for folder in re.findall(r"^add_subdirectory\(([\w/]+)\)", read(root, "CMakeLists.txt"), re.M) + ["cmake"]:
            if not reaches_build(root, folder):
                yield f"{folder} does not reach the build; add it to .dockerignore"
    elif fnmatch.fnmatch(bundle_name(root), source):
        if not reaches_build(root, bundle_name(root)):
            yield f"{bundle_name(root)} does not reach the build; add it to .dockerignore"
    elif not glob.glob(os.path.join(root, source)):
        yield f"COPY {source}: there is no such file"
    elif not reaches_build(root, source):
        yield f"COPY {source}: .dockerignore keeps it from the build"


def check_dockerfile(root, path):
    arguments, copied = {}, {}
    presets = {p["name"] for p in json.loads(read(root, "CMakePresets.json"))["configurePresets"]}
    for name, rest in instructions(read(root, path)):
        if name not in INSTRUCTIONS:
            yield f"{path}: {name} is not an instruction that we use"
        for argument, value in arguments.items():
            rest = rest.replace("${%s}" % argument, value)
        if name == "ARG" and "=" in rest:
            arguments.update([rest.split("=", 1)])
        if name == "COPY" and not rest.startswith("--from="):
            *sources, to = rest.split()
            for source in sources:
                copied[os.path.join(to, os.path.basename(source)) if to.endswith("/") else to] = source
                yield from (f"{path}: {problem}" for problem in check_copied(root, source))
        if name == "RUN":
            for preset in re.findall(r"--preset (\w+)", rest):
                if preset not in presets:
                    yield f"{path}: CMakePresets.json has no preset {preset}"
            for script in re.findall(r"(/[\w./]+\.sh)\b", rest):
                if script not in copied:
                    yield f"{path}: RUN {script}: it was not copied there"
                elif not os.access(os.path.join(root, copied[script]), os.X_OK):
                    yield f"{path}: RUN {script}: {copied[script]} cannot be executed"


# ---- packages ----


@functools.cache
def debian_packages():
    """The packages in this machine's index; empty if it has none."""
    if not glob.glob("/var/lib/apt/lists/*_Packages*"):
        return frozenset()
    return frozenset(
        subprocess.run(["apt-cache", "pkgnames"], capture_output=True, text=True, check=True).stdout.split()
    )


def check_packages(root):
    lists = ("build", "test", "bench", "runtime")
    packages = subprocess.run(
        [os.path.join(root, "deploy/install_deps.sh"), "--print", *lists], capture_output=True, text=True, check=True
    ).stdout.split()
    if not debian_packages():
        print("packages not checked: this machine has no index of Debian's packages")
        return
    for package in sorted(set(packages) - debian_packages()):
        yield f"deploy/install_deps.sh: Debian has no package {package}"


# ---- docker-compose.yml ----


@functools.cache
def flags_of(binaries, *command):
    """The flags of the program, or of a command of `cairn`: {name: whether it takes a value}."""
    out = subprocess.run([os.path.join(binaries, command[0]), *command[1:], "--help"], capture_output=True, text=True)
    check_ran(out)
    return {flag: bool(value) for flag, value in re.findall(r"^\s+(?:-\w,)?(--[\w-]+)( [A-Z]+)?", out.stdout, re.M)}


@functools.cache
def commands_of_cairn(binaries):
    out = subprocess.run([os.path.join(binaries, "cairn"), "--help"], capture_output=True, text=True)
    check_ran(out)
    return re.findall(r"^  (\w+) ", out.stdout.partition("Subcommands:")[2], re.M)


def check_ran(done):
    if done.returncode != 0:
        sys.exit(f"{done.args}: exit {done.returncode}: {done.stderr}")


def check_command(binaries, command, services):
    if command[0] not in PROGRAMS:
        yield f"{command[0]} is not one of Cairn's programs"
        return
    words, given, flags = iter(command[1:]), [], flags_of(binaries, command[0])
    for word in words:
        if not word.startswith("-"):
            if command[0] == "cairn" and not given:
                if word not in commands_of_cairn(binaries):
                    yield f"`cairn {word}` is not a command"
                    return
                given = [word]
                flags = flags_of(binaries, "cairn", word)
            continue
        if word not in flags:
            yield f"{' '.join([command[0], *given])} knows no flag {word}"
        elif flags[word]:
            value = next(words, None)
            if value is None:
                yield f"{word}: its value is missing"
            elif word == "--coordinator" and value.split(":")[0] not in services:
                yield f"{word} {value}: there is no such service"


def value_after(command, flag):
    return command[command.index(flag) + 1] if flag in command else ""


def check_listen(who, command, environment):
    listen = value_after(command, "--listen")
    if listen and not listen.startswith("127.") and not {"CAIRN_TLS_DIR", "CAIRN_INSECURE"} & set(environment):
        yield f"{who}: --listen {listen} without CAIRN_TLS_DIR or CAIRN_INSECURE: it does not start"


def check_compose(root, binaries, path):
    text = re.sub(r"\$\{(\w+):-([^}]*)\}", r"\2", read(root, path))  # with the variables' default values
    compose = yaml.safe_load(text)
    services = compose["services"]
    for name, service in services.items():
        who, command, health = f"{path}: {name}", service["command"], service["healthcheck"]["test"]
        for words in (command, health[1:]):
            yield from (
                f"{who}: {shlex.join(words)}: {problem}" for problem in check_command(binaries, words, services)
            )
        yield from check_listen(who, command, service.get("environment", {}))
        for other in service.get("depends_on", []):
            if other not in services:
                yield f"{who}: depends_on {other}, which is not a service"
        for volume in service.get("volumes", []):
            if not volume.startswith((".", "/")) and volume.split(":")[0] not in compose["volumes"]:
                yield f"{who}: volume {volume} is not declared"
        advertised = value_after(command, "--advertise")
        if advertised and advertised != f"{name}:{value_after(command, '--listen').split(':')[1]}":
            yield f"{who}: --advertise {advertised} is not where it listens"
        if "--node" in health and value_after(health, "--node") != value_after(command, "--name"):
            yield f"{who}: its healthcheck asks for another node"


# ---- kubernetes ----


def check_container(binaries, who, container, services, volumes):
    variables = {variable["name"] for variable in container.get("env", [])}
    probes = [container[kind] for kind in ("readinessProbe", "livenessProbe") if kind in container]
    http = value_after(container["command"], "--http").split(":")[-1]
    for get in (probe["httpGet"] for probe in probes if "httpGet" in probe):
        if str(get["port"]) != http or get["path"] not in HTTP_PROBES:
            there = f"{' and '.join(HTTP_PROBES)} on the port of --http"
            yield f"{who}: a probe asks for {get['path']} on port {get['port']}; there are {there}"
    if container["command"][0] == "cairn-ps" and "--ready" not in container["readinessProbe"].get("exec", {}).get(
        "command", []
    ):
        yield f"{who}: its readiness probe does not ask whether its copies are in sync (cairn health --ready)"
    for words in (container["command"], *(probe["exec"]["command"] for probe in probes if "exec" in probe)):
        if words[:2] == ["sh", "-c"]:
            words = shlex.split(words[2])
        for variable in re.findall(r"\$[({]?(\w+)", " ".join(words)):
            if variable not in variables:
                yield f"{who}: ${variable} is not in its env"
        yield from (f"{who}: {shlex.join(words)}: {problem}" for problem in check_command(binaries, words, services))
    ports = {str(port["containerPort"]) for port in container.get("ports", [])}
    for flag in ("--listen", "--advertise", "--http"):
        address = value_after(container["command"], flag)
        if address and address.split(":")[-1] not in ports:
            yield f"{who}: {flag} {address}: that port is not among its ports"
        if flag == "--advertise" and address and address.split(":")[0].split(".")[-1] not in services:
            yield f"{who}: {flag} {address}: there is no such service"
    yield from check_listen(who, container["command"], variables)
    for mount in container.get("volumeMounts", []):
        if mount["name"] not in volumes:
            yield f"{who}: volume {mount['name']} is not declared"


def check_kubernetes(root, binaries, path):
    objects = list(yaml.safe_load_all(read(root, path)))
    services = {o["metadata"]["name"] for o in objects if o["kind"] == "Service"}
    claims = {o["metadata"]["name"] for o in objects if o["kind"] == "PersistentVolumeClaim"}
    labels = []
    for o in objects:
        if o["kind"] not in ("StatefulSet", "Deployment"):
            continue
        who, spec = f"{path}: {o['metadata']['name']}", o["spec"]
        template = spec["template"]
        labels.append(template["metadata"]["labels"])
        if spec["selector"]["matchLabels"] != labels[-1]:
            yield f"{who}: its selector is not its pods' labels"
        if o["kind"] == "StatefulSet" and spec["serviceName"] not in services:
            yield f"{who}: serviceName {spec['serviceName']}: there is no such service"
        volumes = {v["metadata"]["name"] for v in spec.get("volumeClaimTemplates", [])}
        for volume in template["spec"].get("volumes", []):
            volumes.add(volume["name"])
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            if claim and claim not in claims:
                yield f"{who}: there is no claim {claim}"
        for container in template["spec"]["containers"]:
            yield from check_container(binaries, who, container, services, volumes)
    for o in objects:
        if o["kind"] == "Service" and o["spec"]["selector"] not in labels:
            yield f"{path}: service {o['metadata']['name']} selects no pods"


# ---- systemd ----


def check_unit(root, binaries, path):
    starts = re.findall(r"^ExecStart=/usr/local/bin/(.*)$", read(root, path), re.M)
    if len(starts) != 1:
        yield f"{path}: has no ExecStart of a program in /usr/local/bin"
    for start in starts:
        yield from (f"{path}: {start}: {problem}" for problem in check_command(binaries, shlex.split(start), ()))


def check_tree(root, binaries):
    problems = []
    for path in sorted(glob.glob(os.path.join(root, "deploy/Dockerfile*"))):
        problems += check_dockerfile(root, os.path.relpath(path, root))
    problems += check_packages(root)
    problems += check_compose(root, binaries, "deploy/docker-compose.yml")
    problems += check_kubernetes(root, binaries, "deploy/kubernetes/cairn.yaml")
    for path in sorted(glob.glob(os.path.join(root, "deploy/systemd/*.service"))):
        problems += check_unit(root, binaries, os.path.relpath(path, root))
    return problems


def main():
    problems = check_tree(sys.argv[1], sys.argv[2])
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
