"""Goal: deploy_lint.py finds each kind of fault that is planted in a copy of deploy/, and none in the original. A check
that cannot fail is a defect.

    deploy_lint_self_test.py ROOT BIN
"""

import os
import shutil
import sys
import tempfile

from deploy_lint import check_tree, debian_packages

# File, text in it, its replacement, the expected message.
FAULTS = [
    (
        "deploy/Dockerfile",
        "COPY deploy/install_deps.sh /src",
        "COPY deploy/install.sh /src",
        "COPY deploy/install.sh: there is no such file",
    ),
    (
        "deploy/Dockerfile",
        "RUN /src/deploy/install_deps.sh",
        "RUN /src/install_deps.sh",
        "RUN /src/install_deps.sh: it was not copied there",
    ),
    ("deploy/Dockerfile", "--preset release -D", "--preset fast -D", "has no preset fast"),
    ("deploy/Dockerfile", "WORKDIR /src", "WORKFOLDER /src", "WORKFOLDER is not an instruction"),
    (
        "deploy/Dockerfile.gpu",
        "build/cairn-*-linux",
        "build/bundle-*-linux",
        "COPY build/bundle-*-linux-x86_64.tar.gz: there is no such file",
    ),
    (".dockerignore", "!worker\n", "", "worker does not reach the build"),
    (".dockerignore", "!build/cairn-*-linux-x86_64.tar.gz\n", "", "does not reach the build"),
    (".dockerignore", "!deploy/install_deps.sh\n", "", "COPY deploy/install_deps.sh: .dockerignore keeps it"),
    (
        "CMakeLists.txt",
        "add_subdirectory(proto)",
        "add_subdirectory(proto)\nadd_subdirectory(more)",
        "more does not reach the build",
    ),
    ("deploy/install_deps.sh", "librocksdb-dev", "librocks-dev", "Debian has no package librocks-dev"),
    ("deploy/docker-compose.yml", "--name, ps-1", "--nam, ps-1", "cairn-ps knows no flag --nam"),
    (
        "deploy/docker-compose.yml",
        '[cairn-worker, --coordinator, "coordinator:7070", --name, worker-1',
        "[cairn-work",
        "cairn-work is not one of Cairn's programs",
    ),
    (
        "deploy/docker-compose.yml",
        "health, --node, worker-1",
        "health, --nodes, worker-1",
        "cairn health knows no flag --nodes",
    ),
    (
        "deploy/docker-compose.yml",
        "health, --node, worker-1",
        "healthy, --node, worker-1",
        "`cairn healthy` is not a command",
    ),
    (
        "deploy/docker-compose.yml",
        "health, --node, worker-1",
        "health, --node, worker-0",
        "its healthcheck asks for another node",
    ),
    ("deploy/docker-compose.yml", "ps-1:7071", "ps-2:7071", "--advertise ps-2:7071 is not where it listens"),
    (
        "deploy/docker-compose.yml",
        'depends_on: [coordinator]\n    volumes: ["ps-1:',
        'depends_on: [leader]\n    volumes: ["ps-1:',
        "depends_on leader",
    ),
    ("deploy/docker-compose.yml", '["ps-1:/var', '["ps-3:/var', "volume ps-3:/var/lib/cairn is not declared"),
    (
        "deploy/docker-compose.yml",
        '"coordinator:7070", --name, worker-0, --slots',
        '"master:7070", --name, worker-0, --slots',
        "there is no such service",
    ),
    (
        "deploy/kubernetes/cairn.yaml",
        "--host-label, $(NODE_NAME), --data-dir",
        "--host, $(NODE_NAME), --data-dir",
        "cairn-ps knows no flag --host",
    ),
    (
        "deploy/kubernetes/cairn.yaml",
        "--name, $(POD_NAME), --host-label",
        "--name, $(POD), --host-label",
        "$POD is not in its env",
    ),
    (
        "deploy/kubernetes/cairn.yaml",
        "$(POD_NAME).cairn-ps:7071",
        "$(POD_NAME).ps:7071",
        "--advertise $(POD_NAME).ps:7071: there is no such service",
    ),
    (
        "deploy/docker-compose.yml",
        'environment: {CAIRN_INSECURE: "1"}',
        "environment: {}",
        "--listen 0.0.0.0:7071 without CAIRN_TLS_DIR or CAIRN_INSECURE",
    ),
    (
        "deploy/kubernetes/cairn.yaml",
        "env: [{name: CAIRN_TLS_DIR, value: /tls}]",
        "env: []",
        "--listen 0.0.0.0:7070 without CAIRN_TLS_DIR or CAIRN_INSECURE",
    ),
    ("deploy/kubernetes/cairn.yaml", "health --node", "health --pod", "cairn health knows no flag --pod"),
    (
        "deploy/kubernetes/cairn.yaml",
        "health, --ready, ",
        "health, ",
        "its readiness probe does not ask whether its copies are in sync",
    ),
    (
        "deploy/kubernetes/cairn.yaml",
        "ports: [{containerPort: 7071}]",
        "ports: [{containerPort: 7072}]",
        "that port is not among its ports",
    ),
    (
        "deploy/kubernetes/cairn.yaml",
        "path: /readyz, port: 7080",
        "path: /ready, port: 7080",
        "a probe asks for /ready on port 7080",
    ),
    (
        "deploy/kubernetes/cairn.yaml",
        "path: /healthz, port: 7080",
        "path: /healthz, port: 7081",
        "a probe asks for /healthz on port 7081",
    ),
    (
        "deploy/kubernetes/cairn.yaml",
        '--http, "0.0.0.0:7080"',
        '--http, "0.0.0.0:7082"',
        "--http 0.0.0.0:7082: that port is not among its ports",
    ),
    (
        "deploy/kubernetes/cairn.yaml",
        "{name: variables, mountPath",
        "{name: values, mountPath",
        "volume values is not declared",
    ),
    (
        "deploy/kubernetes/cairn.yaml",
        "selector: {app: cairn-ps}",
        "selector: {app: ps}",
        "service cairn-ps selects no pods",
    ),
    ("deploy/kubernetes/cairn.yaml", "claimName: cairn-data", "claimName: data", "there is no claim data"),
    ("deploy/systemd/cairn-ps.service", "--data-dir", "--data", "cairn-ps knows no flag --data"),
]


def main():
    root, binaries = sys.argv[1:3]
    failures = []
    with tempfile.TemporaryDirectory() as tree:
        shutil.copytree(os.path.join(root, "deploy"), os.path.join(tree, "deploy"))
        for name in (".dockerignore", "CMakeLists.txt", "CMakePresets.json"):
            shutil.copy(os.path.join(root, name), tree)
        if found := check_tree(tree, binaries):
            failures.append(f"without a fault: {found}")
        for path, old, new, said in FAULTS:
            if "Debian has no package" in said and not debian_packages():
                continue
            with open(os.path.join(tree, path), encoding="utf-8") as f:
                whole = f.read()
            if old not in whole:
                failures.append(f"{path} no longer holds {old!r}: plant another fault")
                continue
            with open(os.path.join(tree, path), "w", encoding="utf-8") as f:
                f.write(whole.replace(old, new, 1))
            found = check_tree(tree, binaries)
            if not any(said in problem for problem in found):
                failures.append(f"{path} with {new!r}: wanted {said!r}, found {found}")
            with open(os.path.join(tree, path), "w", encoding="utf-8") as f:
                f.write(whole)
    for failure in failures:
        print(failure)
    print(f"{len(FAULTS)} faults planted, {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
