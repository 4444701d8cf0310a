"""Checks deploy/ without a container engine: that everything the Dockerfiles copy and run exists and reaches the build
(.dockerignore), that packages are Debian's, and that each command of docker-compose.yml, of kubernetes/base and of
systemd/, including healthchecks, uses flags that its program has and names services that exist. What listens beyond
loopback has TLS or says that it has none, and workers have roots.

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
import tomllib

import yaml

import kubernetes_lint
from command_lint import check_command, check_listen, check_roots, value_after, values_after

INSTRUCTIONS = {"ARG", "FROM", "COPY", "RUN", "ENV", "USER", "WORKDIR", "CMD"}
BASE = ("coordinator.yaml", "ps.yaml", "worker.yaml", "data.yaml")


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
        volumes = [volume.split(":") for volume in service.get("volumes", [])]
        yield from check_roots(who, command, {parts[1]: parts[2:] == ["ro"] for parts in volumes})
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


# ---- systemd ----


def setting(text, name):
    return re.findall(rf"^ *{name}=([^\s#]*)", text, re.M)


def check_unit(root, binaries, path):
    starts = re.findall(r"^ExecStart=(cairn-.*)$", read(root, path), re.M)
    if len(starts) != 1:
        yield f"{path}: has no ExecStart of a program by its name (systemd looks in /usr/local/bin, /usr/bin)"
    for start in starts:
        yield from (f"{path}: {start}: {problem}" for problem in check_command(binaries, shlex.split(start), ()))
    state = [os.path.join("/var/lib", folder) for folder in setting(read(root, path), "StateDirectory")]
    if "cairn-worker" in path and setting(read(root, path), "WorkingDirectory") != state:
        yield f"{path}: without roots its jobs would read what lies below its WorkingDirectory; make it {state}"


def check_unit_files(root, binaries, path):
    """The files of flags that the page shows: a daemon takes them, and jobs may write where its unit lets it."""
    text = read(root, path)
    files = re.findall(r"^    # /etc/cairn/(\w+)\.toml\n((?:    .*\n)*)", text, re.M)
    if len(files) != 3:
        yield f"{path}: shows {len(files)} of the three files of flags"
    for name, lines in files:
        values = tomllib.loads(lines)
        command = [f"cairn-{name}"]
        for key, value in values.items():
            command += [f"--{key}={each}" for each in (value if isinstance(value, list) else [value])]
        who, host = f"{path}: {name}.toml", values.get("coordinator", "").split(":")[0]
        yield from (f"{who}: {problem}" for problem in check_command(binaries, command, {host}))
        yield from check_listen(who, command, {})
        folders = {each.rpartition("=")[2] for each in values_after(command, "--root")}
        writable = setting(text, "ReadWritePaths")
        yield from check_roots(who, command, {f.removesuffix(":ro"): f not in writable for f in folders})


def check_tree(root, binaries):
    problems = []
    for path in sorted(glob.glob(os.path.join(root, "deploy/Dockerfile*"))):
        problems += check_dockerfile(root, os.path.relpath(path, root))
    problems += check_packages(root)
    problems += check_compose(root, binaries, "deploy/docker-compose.yml")
    base = [os.path.join(root, "deploy/kubernetes/base", name) for name in BASE]
    objects = [o for path in base for o in yaml.safe_load_all(read(root, path))]
    problems += kubernetes_lint.check_objects(binaries, "deploy/kubernetes/base", objects, whole=False)
    for path in sorted(glob.glob(os.path.join(root, "deploy/systemd/*.service"))):
        problems += check_unit(root, binaries, os.path.relpath(path, root))
    problems += check_unit_files(root, binaries, "deploy/systemd/README.md")
    return problems


def main():
    problems = check_tree(sys.argv[1], sys.argv[2])
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
