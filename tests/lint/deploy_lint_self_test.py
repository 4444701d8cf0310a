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
        "deploy/docker-compose.yml",
        'environment: {CAIRN_INSECURE: "1"}',
        "environment: {}",
        "--listen 0.0.0.0:7071 without CAIRN_TLS_DIR or CAIRN_INSECURE",
    ),
    (
        "deploy/docker-compose.yml",
        '--name, worker-1, --slots, "${CAIRN_SLOTS:-1}", --root, "data=/data:ro"',
        '--name, worker-1, --slots, "${CAIRN_SLOTS:-1}", --root, "data=/data"',
        "--root data=/data: its jobs cannot write there; say :ro",
    ),
    ("deploy/docker-compose.yml", "runs=/runs", "runs=/run", "--root runs=/run: nothing is mounted there"),
    ("deploy/kubernetes/base/worker.yaml", "            - --root=data=/data\n", "", "worker: no --root"),
    ("deploy/kubernetes/base/ps.yaml", "--host-label=", "--host=", "cairn-ps knows no flag --host"),
    ("deploy/kubernetes/base/ps.yaml", "--name=$(POD_NAME)", "--name=$(POD)", "$POD is not in its env"),
    (
        "deploy/kubernetes/base/ps.yaml",
        "$(POD_NAME).cairn-ps.",
        "$(POD_NAME).ps.",
        "--advertise $(POD_NAME).ps.$(NAMESPACE).svc:7071: there is no such service",
    ),
    ("deploy/kubernetes/base/worker.yaml", "health --node", "health --pod", "cairn health knows no flag --pod"),
    (
        "deploy/kubernetes/base/ps.yaml",
        "path: /readyz",
        "path: /healthz",
        "its readiness probe does not ask whether it is ready",
    ),
    (
        "deploy/kubernetes/base/ps.yaml",
        "{name: grpc, containerPort: 7071}",
        "{name: grpc, containerPort: 7072}",
        "that port is not among its ports",
    ),
    (
        "deploy/kubernetes/base/coordinator.yaml",
        "path: /readyz, port: http",
        "path: /ready, port: http",
        "a probe asks for /ready on port 7080",
    ),
    (
        "deploy/kubernetes/base/coordinator.yaml",
        "path: /healthz, port: http",
        "path: /healthz, port: grpc",
        "a probe asks for /healthz on port 7070",
    ),
    (
        "deploy/kubernetes/base/coordinator.yaml",
        "--http=0.0.0.0:7080",
        "--http=0.0.0.0:7082",
        "--http 0.0.0.0:7082: that port is not among its ports",
    ),
    (
        "deploy/kubernetes/base/ps.yaml",
        "livenessProbe: {httpGet: {path: /healthz",
        "livenessProbe: {httpGet: {path: /readyz",
        "livenessProbe asks whether it is ready",
    ),
    (
        "deploy/kubernetes/base/ps.yaml",
        "{name: variables, mountPath",
        "{name: values, mountPath",
        "volume values is not declared",
    ),
    (
        "deploy/kubernetes/base/ps.yaml",
        "  selector: {app.kubernetes.io/name: cairn, app.kubernetes.io/component: ps}",
        "  selector: {app.kubernetes.io/name: ps}",
        "service cairn-ps selects no pods",
    ),
    ("deploy/kubernetes/base/worker.yaml", "claimName: cairn-data", "claimName: data", "there is no claim data"),
    (
        "deploy/kubernetes/base/worker.yaml",
        'value: "cairn-coordinator:7070"',
        'value: "coordinator:7070"',
        "CAIRN_COORDINATOR=coordinator: there is no such service",
    ),
    (
        "deploy/kubernetes/base/worker.yaml",
        "exec cairn-drain",
        "exec cairn-stop",
        "cairn-stop is not one of Cairn's programs",
    ),
    (
        "deploy/kubernetes/base/worker.yaml",
        '"$POD_NAME" 60\'',
        '"$POD_NAME" 80\'',
        "terminationGracePeriodSeconds leaves no 15 s",
    ),
    ("deploy/kubernetes/base/ps.yaml", "preStop:", "postStart:", "preStop does not drain it"),
    ("deploy/kubernetes/base/ps.yaml", "runAsNonRoot: true", "runAsNonRoot: false", "its pods may run as root"),
    (
        "deploy/kubernetes/base/ps.yaml",
        "seccompProfile: {type: RuntimeDefault}",
        "seccompProfile: {type: Unconfined}",
        "has no seccompProfile",
    ),
    (
        "deploy/kubernetes/base/worker.yaml",
        "readOnlyRootFilesystem: true",
        "readOnlyRootFilesystem: false",
        "worker: may write to its image",
    ),
    ("deploy/kubernetes/base/worker.yaml", "{drop: [ALL]}", "{drop: [NET_RAW]}", "worker: keeps capabilities"),
    (
        "deploy/kubernetes/base/worker.yaml",
        "allowPrivilegeEscalation: false",
        "allowPrivilegeEscalation: true",
        "worker: may gain privileges",
    ),
    (
        "deploy/kubernetes/base/worker.yaml",
        "{name: tmp, emptyDir: {sizeLimit: 1Gi}}",
        "{name: tmp, hostPath: {path: /tmp}}",
        "volume tmp: hostPath is not restricted",
    ),
    ("deploy/systemd/cairn-ps.service", "--data-dir", "--data", "cairn-ps knows no flag --data"),
    (
        "deploy/systemd/cairn-worker.service",
        "WorkingDirectory=/var/lib/cairn/worker\n",
        "",
        "without roots its jobs would read what lies below its WorkingDirectory",
    ),
    (
        "deploy/systemd/README.md",
        'listen = "0.0.0.0:7071"\n    tls-dir = "/etc/cairn/tls"\n',
        'listen = "0.0.0.0:7071"\n',
        "ps.toml: --listen 0.0.0.0:7071 without CAIRN_TLS_DIR or CAIRN_INSECURE",
    ),
    ("deploy/systemd/README.md", "    slots = 8", "    slot = 8", "worker.toml: cairn-worker knows no flag --slot"),
    (
        "deploy/systemd/README.md",
        "ReadWritePaths=/srv/runs",
        "ReadWritePaths=/srv/data",
        "--root runs=/srv/runs: its jobs cannot write there",
    ),
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
