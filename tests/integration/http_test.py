"""Goal: the coordinator's pages (--http) on a real cluster. /metrics is accepted by a strict parser of Prometheus'
format and follows the training; /api equals the output of the command line; probes work; hundreds of silent and slow
connections delay neither a scrape nor the training, and the digest is that of the run without them; a standby redirects
readers to the leader; `cairn up --http` works; a bad address ends the coordinator with one sentence. If there is a
Chromium on this machine, the page itself is tested: it shows jobs and nodes, and does not turn a host named <img ...>
into an element."""

import html
import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import urllib.error
import urllib.request

from cluster import BIN, Cluster, check
from dashboard_test import post
from jobs import make_glyphs, small_job, undisturbed

LABEL = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\"n])*"'
SAMPLE = re.compile(
    r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{%s(?:,%s)*\})? (NaN|[+-]Inf|[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)"
    % (LABEL, LABEL)
)
EPOCHS = 4
EVIL = "<img src=x onerror=alert(1)>"


def parse_metrics(text):
    """Returns {name{labels}: value}. Strict: help and type precede the values of a family, each family and each series
    occurs once, and the text ends with a line feed."""
    check(text.endswith("\n"), "the last line has no end")
    values, families, family = {}, set(), None
    for line in text[:-1].split("\n"):
        if help_of := re.fullmatch(r"# HELP (\S+) \S.*", line):
            family = help_of.group(1)
            check(family not in families, f"{family} stands in two places")
            families.add(family)
            kind = None
        elif type_of := re.fullmatch(r"# TYPE (\S+) (gauge|counter)", line):
            check(type_of.group(1) == family and kind is None, f"no help before {line!r}")
            kind = type_of.group(2)
            check((kind == "counter") == family.endswith("_total"), f"{line!r}: counters, and only they, end in _total")
        else:
            sample = SAMPLE.fullmatch(line)
            check(sample and sample.group(1) == family and kind, f"no value of {family}: {line!r}")
            series = sample.group(1) + (sample.group(2) or "")
            check(series not in values, f"twice: {series}")
            values[series] = float(sample.group(3))
    return values


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


def get(base, path, method="GET", timeout=30, host=None):
    """Returns (status, headers, body); does not follow redirects. host: the Host header, in place of the address."""
    try:
        with urllib.request.build_opener(NoRedirect).open(
            urllib.request.Request(base + path, method=method, headers={"Host": host} if host else {}), timeout=timeout
        ) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


def body(base, path):
    status, _, text = get(base, path)
    check(status == 200, f"{path}: {status} {text}")
    return text


def pages_of(c, name="coordinator"):
    return c.wait_for_log(name, r"pages, metrics and probes on (http://\S+)").group(1)


class Hoard:
    """Connections that send nothing or little, or send requests and never read."""

    def __init__(self, base, count):
        host, port = base.removeprefix("http://").split(":")
        self.sockets = []
        for i in range(count):
            s = socket.create_connection((host, int(port)), timeout=30)
            self.sockets.append(s)
            s.sendall([b"", b"GET /metrics HTTP/1.1\r\nX: ", b"GET /dashboard.js HTTP/1.1\r\n\r\n"][i % 3])

    def drip(self):
        for s in self.sockets:
            try:
                s.send(b"x", socket.MSG_DONTWAIT)
            except OSError:
                pass  # the server closed it, as it should

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in self.sockets:
            s.close()


def check_names():
    """Every daemon answers to its own names alone (DNS rebinding); probes and calls by address are answered."""
    http = ["--http", "127.0.0.1:0"]
    flags = {"coordinator_flags": [*http, "--http-name", "front.example"], "ps_flags": http, "worker_flags": http}
    with Cluster(ps=1, workers=1, **flags) as c:
        for name, pattern in (
            ("coordinator", r"pages, metrics and probes on (http://\S+)"),
            ("ps-0", r"metrics and health on (http://\S+)"),
            ("worker-0", r"metrics and health on (http://\S+)"),
        ):
            base = c.wait_for_log(name, pattern).group(1)
            for host, status in (("evil.example", 421), ("localhost:1", 200), ("10.42.0.7:7080", 200)):
                got, _, text = get(base, "/metrics", host=host)
                check(got == status, f"{name} by {host}: {got}, {text}")
                check(status == 200 or "--http-name evil.example" in text, f"{name} by {host}: {text}")
            check(get(base, "/healthz", host="evil.example")[0] == 200, f"{name}: a probe")
            front = get(base, "/metrics", host="front.example")[0]
            check(front == (200 if name == "coordinator" else 421), f"{name} by --http-name: {front}")
    print("names of daemons", flush=True)


def check_pages(c, base):
    status, headers, _ = get(base, "/")
    check(
        status == 200
        and headers["Content-Type"].startswith("text/html")
        and "script-src 'self'" in headers["Content-Security-Policy"],
        "the page",
    )
    check("Access-Control-Allow-Origin" not in headers, "other sites may read it")
    check(get(base, "/", method="PUT")[0] == 405, "PUT is taken")
    check(get(base, "/", method="POST")[0] == 403, "POST is taken from who may be another site's page")
    check(get(base, "/api/v1/jobs/99")[0] == 404, "a job that is not there")
    for path in (
        "/healthz",
        "/readyz",
        "/dashboard.css",
        "/elements.js",
        "/actions.js",
        "/chart.js",
        "/compare.js",
        "/log.js",
        "/submit.js",
        "/dashboard.js",
        "/api/v1/rights",
        "/api/v1/leader",
    ):
        body(base, path)

    def fields(nodes):
        return [(n["name"], sorted(n)) for n in nodes]

    c.until(
        lambda: fields(json.loads(body(base, "/api/v1/nodes"))["nodes"]) == fields(c.nodes()),
        "the nodes are what `cairn nodes --json` prints",
    )


def check_training(directory):
    with Cluster(
        ps=2,
        workers=2,
        coordinator_flags=["--http", "127.0.0.1:0"],
        ps_flags=["--http", "0"],
        worker_flags=["--http", "0", "--host-label", EVIL],
    ) as c:
        base = pages_of(c)
        check_pages(c, base)
        for name in ("ps-1", "worker-1"):
            own = c.wait_for_log(name, r"metrics and health on (http://127\.0\.0\.1:\d+)").group(1)
            check(
                parse_metrics(body(own, "/metrics"))["cairn_healthy"] == 1 and body(own, "/healthz") == "ok\n",
                f"the pages of {name}",
            )
            c.until(lambda: get(own, "/readyz")[0] == 200 or name != "ps-1", "a ps without jobs is ready")
        job = c.submit(small_job(directory, make_glyphs(directory), EPOCHS), {"backups": 1})
        c.wait_for_step(job, 5)
        with Hoard(base, 300) as hoard:
            for _ in range(5):
                hoard.drip()
                metrics = parse_metrics(body(base, "/metrics"))
            step = f'cairn_job_step{{job="{job}",name="small"}}'
            check(metrics["cairn_coordinator_up"] == 1 and metrics["cairn_coordinator_leader"] == 1, f"{metrics}")
            check(
                metrics['cairn_jobs{state="running"}']
                + metrics['cairn_jobs{state="finalizing"}']
                + metrics['cairn_jobs{state="succeeded"}']
                == 1,
                f"{metrics}",
            )
            check(
                step in metrics or json.loads(body(base, f"/api/v1/jobs/{job}"))["state"] == "SUCCEEDED",
                f"no {step} in {metrics}",
            )
            check(metrics["process_cpu_seconds_total"] > 0, "no CPU time")
            status = c.wait(job)
        check(
            status["digest"] == undisturbed(EPOCHS),
            f"digest {status['digest']}, without a dashboard {undisturbed(EPOCHS)}",
        )
        check(json.loads(body(base, f"/api/v1/jobs/{job}")) == status, "the job is not what `cairn job --json` prints")
        check(json.loads(body(base, "/api/v1/jobs/small")) == status, "by its name")
        check(
            json.loads(body(base, "/api/v1/jobs")) == json.loads(c.cairn("jobs", as_json=True).stdout),
            "the jobs are not what `cairn jobs --json` prints",
        )
        overview = json.loads(body(base, "/api/v1/overview?jobs=ended"))
        check(overview["jobs"][0]["state"] == "SUCCEEDED" and len(overview["nodes"]) == 4, f"{overview}")
        check_in_browser(base, job)
    print("pages, metrics and a hoard of connections: same digest", flush=True)


def check_in_browser(base, job):
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no chromium on this machine: the page was not opened", flush=True)
        return
    for view, wanted in (
        ("", ("succeeded", "worker-1", "ps-0", html.escape(EVIL, quote=False), "Events", " joined (")),
        (f"#/job/{job}", ("Curves", "val_accuracy", "Partitions by ps", "Epochs")),
    ):
        with tempfile.TemporaryDirectory() as profile:
            done = subprocess.run(
                [
                    chromium,
                    "--headless=new",
                    "--no-sandbox",
                    "--disable-gpu",
                    f"--user-data-dir={profile}",
                    "--virtual-time-budget=3000",
                    "--dump-dom",
                    f"{base}/{view}",
                ],
                capture_output=True,
                text=True,
                timeout=120,
            )
        for text in wanted:
            check(
                text in done.stdout,
                f"the page {view} does not show {text!r}:\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}",
            )
        check("<img" not in done.stdout, f"the page {view} makes an element of a host's name")
    print("the page in a browser", flush=True)


def check_standby():
    if shutil.which("etcd") is None:
        print("no etcd on this machine: standbys were not looked at", flush=True)
        return
    with Cluster(ps=1, workers=1, coordinators=2, etcd=True, coordinator_flags=["--http", "127.0.0.1:0"]) as c:
        leader = c.wait_for_leader()
        standby = next(name for name in c.coordinators if name != leader)
        at, behind = pages_of(c, leader), pages_of(c, standby)

        def sent_on():
            status, headers, _ = get(behind, "/api/v1/nodes?x=1")
            return status == 307 and headers["Location"]

        check(c.until(sent_on, "the standby knows the leader's pages") == f"{at}/api/v1/nodes?x=1", "sent elsewhere")
        check(parse_metrics(body(behind, "/metrics"))["cairn_coordinator_leader"] == 0, "a standby that says it leads")
        check("stands by" in body(behind, "/readyz"), "a standby that knows the leader is ready")
        c.kill(leader)
        c.wait_for_leader(other_than=leader)
        c.until(lambda: get(behind, "/api/v1/nodes")[0] == 200, "the new leader answers itself")
        check(parse_metrics(body(behind, "/metrics"))["cairn_coordinator_leader"] == 1, "the new leader says it leads")
    print("a standby", flush=True)


def check_up(directory):
    up = subprocess.Popen(
        [
            os.path.join(BIN, "cairn"),
            "up",
            "--ps",
            "1",
            "--workers",
            "1",
            "--port",
            "0",
            "--http",
            "0",
            "--http-read-only",
            "--dir",
            f"{directory}/up",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        pages = next(
            filter(None, (re.fullmatch(r"dashboard: (http://127\.0\.0\.1:\d+)\n", line) for line in up.stdout)), None
        )
        check(pages, "`cairn up --http` does not name its dashboard")
        check(len(json.loads(body(pages.group(1), "/api/v1/nodes"))["nodes"]) == 2, "its nodes")
        status, answer = post(pages.group(1), "/api/v1/nodes/worker-0/drain", {})
        check(status == 403 and "--http-read-only" in answer["error"], f"a change by its pages: {status}, {answer}")
    finally:
        up.terminate()
        up.wait(timeout=60)


def check_wrong_address(directory):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for http, code, says in (
            (address, 1, f'--http: cannot listen on "{address}": it is in use, or not on this host; choose another'),
            ("somewhere", 2, '--http: address "somewhere": "host:port" is expected'),
        ):
            done = subprocess.run(
                [
                    os.path.join(BIN, "cairn-coordinator"),
                    "--listen",
                    "127.0.0.1:0",
                    "--data-dir",
                    f"{directory}/c",
                    "--http",
                    http,
                ],
                capture_output=True,
                text=True,
                timeout=60,
            )
            check(
                done.returncode == code and says in done.stderr, f"--http {http}: exit {done.returncode}: {done.stderr}"
            )


def main():
    with tempfile.TemporaryDirectory() as directory:
        check_wrong_address(directory)
        check_up(directory)
        check_training(directory)
    check_names()
    check_standby()


if __name__ == "__main__":
    main()
