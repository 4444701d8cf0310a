"""An S3 server for tests: s3rver from npm, and a proxy before it that checks signatures and breaks replies.

    server = S3Server.find(directory)         # (server, "") or (None, the reason why there is none)
    server.put("sets/a.csv", b"x,y\n")         # in BUCKET
    proxy = FaultProxy(server.port)
    proxy.fault("503", "a.csv", times=2)       # the next two replies about such a URL
    os.environ.update(environment(proxy.port))

    fault       the reply
    503         is an error SlowDown in its place
    cut         ends in its middle
    short       lacks its second half, with a Content-Length to match
    slow        comes in small pieces
    etag        has another ETag
"""

import datetime
import hashlib
import hmac
import http.client
import http.server
import os
import re
import subprocess
import threading
import time
import urllib.parse

from cluster import SOURCE, check
from npm_packages import install

PACKAGE = "s3rver@3.7.1"
BUCKET = "bucket"
KEY, SECRET = "S3RVER", "S3RVER"  # its only account
AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>\w+)/(?P<scope>[\w/-]+),\s*SignedHeaders=(?P<names>[\w;-]+),"
    r"\s*Signature=(?P<signature>[0-9a-f]{64})"
)
START = """
const S3rver = require(process.argv[1] + "/node_modules/s3rver");
new S3rver({ address: "127.0.0.1", port: 0, silent: true, vhostBuckets: false, directory: process.argv[2],
             configureBuckets: [{ name: process.argv[3] }] })
  .run((error, address) => { if (error) throw error; console.log(address.port); });
"""


def environment(port):
    return {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null/none",
        "AWS_CONFIG_FILE": "/dev/null/none",
    }


def signature(method, path, query, headers, scope):
    """SigV4 of these headers, names in lower case; path and query as they are sent."""
    names = sorted(headers)
    lines = "".join(f"{name}:{headers[name].strip()}\n" for name in names)
    query = "&".join(sorted(query.split("&"), key=lambda one: one.split("=", 1))) if query else ""
    digest = headers["x-amz-content-sha256"]
    canonical = f"{method}\n{path}\n{query}\n{lines}\n{';'.join(names)}\n{digest}"
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{SECRET}".encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def signed(method, host, path, body):
    """Headers with a signature for a URL without a query, of characters that need no escape."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    headers = {"host": host, "x-amz-content-sha256": hashlib.sha256(body).hexdigest(), "x-amz-date": now}
    made = signature(method, path, "", headers, scope)
    names = ";".join(sorted(headers))
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={KEY}/{scope}, SignedHeaders={names}, Signature={made}"
    return headers


def is_signed(method, url, headers):
    """Whether a request has the signature of KEY and SECRET: s3rver itself computes none of this version."""
    found = AUTHORIZATION.fullmatch(headers.get("authorization", ""))
    if not found or found["key"] != KEY or not {"host", "x-amz-date"} <= set(found["names"].split(";")):
        return False
    path, _, query = url.partition("?")
    taken = {name: headers[name] for name in found["names"].split(";")}
    return signature(method, path, query, taken, found["scope"]) == found["signature"]


class S3Server:
    @staticmethod
    def find(directory):
        folder = os.environ.get("CAIRN_S3RVER", os.path.join(SOURCE, ".cache", "s3rver"))
        why = install(PACKAGE, folder)
        return (None, why) if why else (S3Server(folder, directory), "")

    def __init__(self, folder, directory):
        os.makedirs(directory, exist_ok=True)
        self.process = subprocess.Popen(
            ["node", "-e", START, folder, directory, BUCKET],
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
        )
        line = self.process.stdout.readline()
        if not line.strip().isdigit():
            self.close()
            check(False, f"{PACKAGE} does not start: {line}")
        self.port = int(line)

    def put(self, key, data):
        host, path = f"127.0.0.1:{self.port}", urllib.parse.quote(f"/{BUCKET}/{key}", safe="/~")
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("PUT", path, data, signed("PUT", host, path, data))
        reply = connection.getresponse()
        text = reply.read()
        connection.close()
        check(reply.status == 200, f"PUT {path}: {reply.status} {text[:300]}")

    def put_folder(self, prefix, folder):
        for at, _, names in os.walk(folder):
            for name in sorted(names):
                path = os.path.join(at, name)
                with open(path, "rb") as file:
                    self.put(f"{prefix}/{os.path.relpath(path, folder)}", file.read())

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class FaultProxy:
    def __init__(self, target):
        self.target = target
        self.mutex = threading.Lock()
        self.faults = []  # [kind, text in the URL, how many are left]
        self.asked = []  # "GET /bucket/key?query"
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                proxy.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def fault(self, kind, text, times=1):
        with self.mutex:
            self.faults.append([kind, text, times])

    def heal(self):
        with self.mutex:
            self.faults.clear()

    def unused(self):
        with self.mutex:
            return [fault for fault in self.faults if fault[2] > 0]

    def forget(self):
        with self.mutex:
            self.asked.clear()

    def asked_for(self, text):
        with self.mutex:
            return sum(text in one for one in self.asked)

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    # ---- in the server's threads ----

    def next_fault(self, request):
        with self.mutex:
            self.asked.append(f"{request.command} {request.path}")
            for fault in self.faults:
                if fault[2] > 0 and fault[1] in request.path:
                    fault[2] -= 1
                    return fault[0]
        return None

    def answer(self, request):
        kind = self.next_fault(request)
        if kind == "503":
            return self.send(request, 503, {}, b"<Error><Code>SlowDown</Code><Message>a test</Message></Error>")
        if not is_signed(request.command, request.path, {k.lower(): v for k, v in request.headers.items()}):
            return self.send(request, 403, {}, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=60)
        connection.request(request.command, request.path, headers=dict(request.headers.items()))
        reply = connection.getresponse()
        body = reply.read()
        headers = {k: v for k, v in reply.getheaders() if k.lower() not in ("connection", "transfer-encoding", "date")}
        connection.close()
        if kind == "etag":
            headers = {k: '"another"' if k.lower() == "etag" else v for k, v in headers.items()}
        if kind == "short":
            body = body[: len(body) // 2]
            headers = {k: v for k, v in headers.items() if k.lower() != "content-length"}
        return self.send(request, reply.status, headers, body, kind)

    @staticmethod
    def send(request, status, headers, body, kind=None):
        request.send_response(status)
        for name, value in headers.items():
            request.send_header(name, value)
        if "content-length" not in {name.lower() for name in headers}:
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command == "HEAD":
            return
        try:
            if kind == "slow":
                step = max(1, len(body) // 20)
                for at in range(0, len(body), step):
                    request.wfile.write(body[at : at + step])
                    request.wfile.flush()
                    time.sleep(0.01)  # what makes it slow
                return
            request.wfile.write(body[: len(body) // 2] if kind == "cut" else body)
        except OSError:
            pass  # who asked has gone
        if kind == "cut":
            request.close_connection = True
