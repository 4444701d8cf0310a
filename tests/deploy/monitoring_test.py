"""Goal: Debian's Prometheus scrapes a real cluster as deploy/monitoring/prometheus.yaml says. Every rule is healthy and
each expression of the rules and of the dashboard is answered, with figures where there are some. Every metric that they
name is one that daemons expose. Nothing alerts in a healthy cluster, and a node that is killed does. The rules of the
Prometheus operator are the same rules.

    monitoring_test.py        77: there is no prometheus; with CAIRN_BIN and CAIRN_SOURCE
"""

import json
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request

import yaml

SOURCE = os.environ["CAIRN_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests/integration"))
from cluster import Cluster, check, free_port  # noqa: E402
from jobs import make_glyphs, small_job  # noqa: E402

MONITORING = os.path.join(SOURCE, "deploy/monitoring")
METRIC = re.compile(r"\b(?:cairn|process)_\w+")
# What has no figures in a healthy cluster with one synchronous job.
MAY_BE_EMPTY = re.compile(r"staleness|==|> 0|> 0.9|expiry")  # the cluster has no TLS


def read(name):
    with open(os.path.join(MONITORING, name), encoding="utf-8") as f:
        return f.read()


def rules():
    return [rule for group in yaml.safe_load(read("rules.yaml"))["groups"] for rule in group["rules"]]


def panels():
    """(title, expression) of the dashboard, for all jobs."""
    for panel in json.loads(read("dashboard.json"))["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$name", ".*")


def check_names(expressions):
    with open(os.path.join(SOURCE, "docs/reference/metrics.md"), encoding="utf-8") as f:
        exposed = set(re.findall(r"^\| `(\w+)`", f.read(), re.M))
    recorded = {rule["record"] for rule in rules() if "record" in rule}
    for where, expression in expressions:
        unknown = set(METRIC.findall(expression)) - exposed - recorded
        check(not unknown, f"{where}: {expression}: no daemon exposes {', '.join(unknown)}")


def check_operator_rules():
    path = os.path.join(SOURCE, "deploy/kubernetes/overlays/production/rules.yaml")
    with open(path, encoding="utf-8") as f:
        same = yaml.safe_load(f)["spec"] == yaml.safe_load(read("rules.yaml"))
    check(same, f"{path} has other rules; deploy/monitoring/write_rule.py writes it")


def check_runbook():
    """Every alert says which page helps, and the heading is there."""
    for rule in rules():
        if "alert" not in rule:
            continue
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        with open(os.path.join(SOURCE, page), encoding="utf-8") as f:
            headings = re.findall(r"^## (.*)$", f.read(), re.M)
        anchors = [re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings]
        check(not anchor or anchor in anchors, f"{rule['alert']}: {page} has no heading #{anchor}")


class Prometheus:
    """Reads the files of deploy/monitoring; only the targets and the intervals are the test's."""

    def __init__(self, folder, targets):
        self.address = f"127.0.0.1:{free_port()}"
        config = yaml.safe_load(read("prometheus.yaml"))
        config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        config["rule_files"] = [os.path.join(MONITORING, each) for each in config["rule_files"]]
        config["scrape_configs"][0]["static_configs"] = [{"targets": targets}]
        path = os.path.join(folder, "prometheus.yaml")
        with open(path, "w", encoding="utf-8") as f:
            yaml.safe_dump(config, f)
        subprocess.run(["promtool", "check", "config", path], check=True, stdout=subprocess.DEVNULL)
        self.log = open(os.path.join(folder, "prometheus.log"), "wb")
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={path}",
                f"--web.listen-address={self.address}",
                f"--storage.tsdb.path={folder}/prometheus",
            ],
            stderr=self.log,
        )

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.process.terminate()
        self.process.wait()
        self.log.close()
        if kind is not None:
            with open(self.log.name, encoding="utf-8", errors="replace") as f:
                print(f.read()[-3000:])

    def get(self, path, **query):
        url = f"http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=30) as answer:
            return json.load(answer)["data"]

    def answers(self):
        try:
            return self.get("query", query="1")
        except OSError:
            check(self.process.poll() is None, "prometheus has ended")
            return None

    def query(self, expression):
        return self.get("query", query=expression)["result"]

    def up(self):
        return {target["labels"]["instance"]: target["health"] for target in self.get("targets")["activeTargets"]}

    def rules(self):
        return [rule for group in self.get("rules")["groups"] for rule in group["rules"]]

    def alerts(self):
        return {alert["labels"]["alertname"]: alert["state"] for alert in self.get("alerts")["alerts"]}


def check_cluster():
    ports = {role: free_port() for role in ("coordinator", "ps", "worker")}
    flags = {f"{role}_flags": ("--http", f"127.0.0.1:{port}") for role, port in ports.items() if role == "coordinator"}
    with Cluster(ps=1, workers=1, slots=4, **flags) as c:
        c.add_ps("ps-1", "--http", f"127.0.0.1:{ports['ps']}")
        c.add_worker("worker-1", "--http", f"127.0.0.1:{ports['worker']}")
        c.wait_for_nodes(4)
        settings = {"checkpoints.dir": f"{c.dir}/checkpoints", "checkpoints.every_steps": 20}
        job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs=5000), settings)
        c.until(lambda: c.job(job).get("checkpoints"), "a checkpoint")
        with Prometheus(c.dir, [f"127.0.0.1:{port}" for port in ports.values()]) as prometheus:
            c.until(prometheus.answers, "prometheus answers")
            c.until(lambda: set(prometheus.up().values()) == {"up"}, "three targets are scraped")
            c.until(lambda: all(rule["health"] == "ok" for rule in prometheus.rules()), "all rules are evaluated")
            c.until(lambda: prometheus.query("cairn_worker_slots_wanted"), "the figure for the autoscaler")
            slots = prometheus.query("cairn_worker_slots_wanted")[0]["value"][1]
            check(slots == "4", f"4 replicas run and nothing waits, and {slots} slots are wanted")
            asked = [(rule.get("alert") or rule["record"], rule["expr"]) for rule in rules()] + list(panels())
            for where, expression in asked:
                may_be_empty = MAY_BE_EMPTY.search(expression)
                c.until(
                    lambda e=expression, m=may_be_empty: prometheus.query(e) or m, f"{where}: {expression} has figures"
                )
            check(not prometheus.alerts(), f"in a healthy cluster: {prometheus.alerts()}")
            c.kill("worker-0")
            c.until(lambda: "CairnNodeDown" in prometheus.alerts(), "CairnNodeDown is pending")
            c.kill("coordinator")
            c.until(lambda: "CairnNoLeader" in prometheus.alerts(), "CairnNoLeader is pending")
            print(f"{len(asked)} expressions evaluated, {len(prometheus.rules())} rules healthy", flush=True)


def main():
    check_names([(rule.get("alert") or rule["record"], rule["expr"]) for rule in rules()] + list(panels()))
    check_operator_rules()
    check_runbook()
    if shutil.which("prometheus") is None:
        print("skipped: there is no prometheus on this machine (Debian: apt-get install prometheus)", flush=True)
        sys.exit(77)
    check_cluster()


if __name__ == "__main__":
    main()
