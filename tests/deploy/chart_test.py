"""Goal: the Helm chart makes the objects of the overlays: with its own values those of dev, with values-production.yaml
those of production, without the namespace, which `helm install` is given.

    chart_test.py SOURCE        77: Helm or kubectl cannot be had (tools.py)
"""

import difflib
import json
import os
import sys

import tools


def shown(objects):
    """{kind name: text}; an empty list or object of one of them is none of the other."""
    found = {}
    for o in objects:
        if o["kind"] == "Namespace":
            continue
        o["metadata"].pop("namespace", None)
        found[f"{o['kind']} {o['metadata']['name']}"] = json.dumps(without_empty(o), indent=1, sort_keys=True)
    return found


def without_empty(value):
    if isinstance(value, dict):
        inner = {key: without_empty(each) for key, each in value.items()}
        return {key: each for key, each in inner.items() if each not in ([], None)}
    return [without_empty(each) for each in value] if isinstance(value, list) else value


def differences(kubernetes, source, overlay, *values):
    words = ("template", "cairn", os.path.join(source, "deploy/helm/cairn"), "--namespace", "cairn")
    by_helm = shown(kubernetes.helm(*words, *values))
    by_kustomize = shown(kubernetes.kustomize(os.path.join(source, "deploy/kubernetes/overlays", overlay)))
    print(f"{overlay}: {len(by_helm)} objects", flush=True)
    for name in sorted(by_helm.keys() | by_kustomize.keys()):
        lines = [side.get(name, "").splitlines() for side in (by_kustomize, by_helm)]
        yield from difflib.unified_diff(*lines, f"{overlay}: {name}", "chart", n=1, lineterm="")


def main():
    source = os.path.abspath(sys.argv[1])
    kubernetes = tools.find()
    production = ("--values", os.path.join(source, "deploy/helm/cairn/values-production.yaml"))
    wrong = [*differences(kubernetes, source, "dev"), *differences(kubernetes, source, "production", *production)]
    if not any("--slots=3" in line for line in differences(kubernetes, source, "dev", "--set", "worker.slots=3")):
        wrong.append("a chart with other values is said to be the same")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
