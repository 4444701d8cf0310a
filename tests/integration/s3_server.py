"""An S3 server for tests: s3rver from npm, and a proxy before it that checks signatures, does what s3rver lacks
(If-None-Match and If-Match of PUT, the list of uploads, their end) and breaks replies.

    server = S3Server.find(directory)         # (server, "") or (None, the reason why there is none)
    server.put("sets/a.csv", b"x,y\n")         # in BUCKET
    proxy = FaultProxy(server.port)
    proxy.fault("503", "a.csv", times=2)       # the next two replies to "GET /bucket/sets/a.csv" and the like
    os.environ.update(environment(proxy.port))

    fault       the reply
    503, 403    is an error SlowDown or AccessDenied in its place
    drop        does not come, and nothing is done
    hold        does not come while hold_on; then as drop
    cut         ends in its middle; one without a body does not come, though it was done
    short       lacks its second half, with a Content-Length to match
    slow        comes in small pieces
    etag        has another ETag
"""

import datetime
import hashlib
import hmac
import html
import http.client
import http.server
import os
import re
import shutil
import subprocess
import sys
import tempfile
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


def signed(method, host, path, body, query=""):
    """Headers with a signature for a URL, of characters that need no escape."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{now[:8]}/us-east-1/s3/aws4_request"
    headers = {"host": host, "x-amz-content-sha256": hashlib.sha256(body).hexdigest(), "x-amz-date": now}
    made = signature(method, path, query, headers, scope)
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

    def keys(self, prefix):
        """At most 1,000."""
        host, path = f"127.0.0.1:{self.port}", f"/{BUCKET}"
        query = f"list-type=2&prefix={urllib.parse.quote(prefix, safe='')}"
        connection = http.client.HTTPConnection(host, timeout=60)
        connection.request("GET", f"{path}?{query}", headers=signed("GET", host, path, b"", query))
        reply = connection.getresponse()
        text = reply.read().decode()
        connection.close()
        check(reply.status == 200, f"the keys of {prefix}: {reply.status} {text[:300]}")
        return [html.unescape(key) for key in re.findall("<Key>(.*?)</Key>", text)]

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
        self.uploads = {}  # id -> key, of those that were begun and not ended
        self.released = threading.Event()
        self.held = 0
        self.new_objects = threading.Lock()
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                proxy.answer(self)

            do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

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

    def hold_on(self):
        """Requests with the fault "hold" wait until let_go."""
        self.released.clear()

    def let_go(self):
        self.released.set()

    def pending(self, prefix):
        """The keys of uploads that were begun and not ended."""
        with self.mutex:
            return sorted(key for key in self.uploads.values() if key.startswith(prefix))

    def close(self):
        self.let_go()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    # ---- in the server's threads ----

    def next_fault(self, request):
        with self.mutex:
            self.asked.append(f"{request.command} {request.path}")
            for fault in self.faults:
                if fault[2] > 0 and fault[1] in f"{request.command} {request.path}":
                    fault[2] -= 1
                    return fault[0]
        return None

    def answer(self, request):
        body = request.rfile.read(int(request.headers.get("Content-Length") or 0))
        kind = self.next_fault(request)
        if kind == "hold":
            with self.mutex:
                self.held += 1
            self.released.wait()
        if kind in ("drop", "hold"):
            request.close_connection = True
            return None
        if kind in ("503", "403"):
            code = {"503": "SlowDown", "403": "AccessDenied"}[kind]
            return self.send(request, int(kind), {}, f"<Error><Code>{code}</Code></Error>".encode())
        headers = {k.lower(): v for k, v in request.headers.items()}
        if not is_signed(request.command, request.path, headers):
            return self.send(request, 403, {}, b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        if hashlib.sha256(body).hexdigest() != headers["x-amz-content-sha256"]:
            return self.send(request, 400, {}, b"<Error><Code>XAmzContentSHA256Mismatch</Code></Error>")
        status, headers, body = self.served(request, body)
        if kind == "cut" and not body:
            request.close_connection = True
            return None
        if kind == "etag":
            headers = {k: '"another"' if k.lower() == "etag" else v for k, v in headers.items()}
        if kind == "short":
            body = body[: len(body) // 2]
            headers = {k: v for k, v in headers.items() if k.lower() != "content-length"}
        return self.send(request, status, headers, body, kind)

    def served(self, request, body):
        """(status, headers, body) of the reply."""
        path, _, text = request.path.partition("?")
        query = dict(urllib.parse.parse_qsl(text, keep_blank_values=True))
        if request.command == "GET" and "uploads" in query:
            return 200, {}, self.list_of_uploads(query.get("prefix", ""))
        if "uploadId" in query:
            return self.upload(request, body, query["uploadId"])
        if request.command == "PUT" and request.headers.get("If-None-Match") == "*":
            with self.new_objects:
                if self.forward("HEAD", path, {}, b"")[0] == 200:
                    return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
                return self.forward("PUT", request.path, self.headers_of(request), body)
        if request.command == "PUT" and request.headers.get("If-Match"):
            return self.replace(request, path, body)
        status, headers, reply = self.forward(request.command, request.path, self.headers_of(request), body)
        if request.command == "POST" and "uploads" in query and status == 200:
            with self.mutex:
                found = re.search(rb"<UploadId>(.*?)</UploadId>", reply)
                self.uploads[found[1].decode()] = urllib.parse.unquote(path).split("/", 2)[2]
        return status, headers, reply

    def replace(self, request, path, body):
        """If-Match: in place of the object with this ETag."""
        with self.new_objects:
            status, headers, _ = self.forward("HEAD", path, {}, b"")
            if status != 200:
                return 404, {}, b"<Error><Code>NoSuchKey</Code></Error>"
            if {k.lower(): v for k, v in headers.items()}.get("etag") != request.headers["If-Match"]:
                return 412, {}, b"<Error><Code>PreconditionFailed</Code></Error>"
            return self.forward("PUT", request.path, self.headers_of(request), body)

    def upload(self, request, body, upload):
        with self.mutex:
            known = upload in self.uploads
            if request.command == "DELETE":
                self.uploads.pop(upload, None)
        if not known:
            return 404, {}, b"<Error><Code>NoSuchUpload</Code></Error>"
        if request.command == "DELETE":
            return 204, {}, b""
        status, headers, reply = self.forward(request.command, request.path, self.headers_of(request), body)
        if request.command == "POST" and status == 200:
            with self.mutex:
                self.uploads.pop(upload, None)
        return status, headers, reply

    def list_of_uploads(self, prefix):
        with self.mutex:
            found = [(key, upload) for upload, key in self.uploads.items() if key.startswith(prefix)]
        uploads = "".join(
            f"<Upload><Key>{urllib.parse.quote(key)}</Key><UploadId>{upload}</UploadId></Upload>"
            for key, upload in sorted(found)
        )
        return (
            "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated><EncodingType>url</EncodingType>"
            f"{uploads}</ListMultipartUploadsResult>"
        ).encode()

    @staticmethod
    def headers_of(request):
        return {k: v for k, v in request.headers.items() if k.lower() not in ("if-none-match", "if-match")}

    def forward(self, method, path, headers, body):
        if not headers:
            headers = signed(method, f"127.0.0.1:{self.target}", path, body)
        connection = http.client.HTTPConnection("127.0.0.1", self.target, timeout=60)
        connection.request(method, path, body or None, headers)
        reply = connection.getresponse()
        text = reply.read()
        left = ("connection", "transfer-encoding", "date")
        headers = {k: v for k, v in reply.getheaders() if k.lower() not in left}
        connection.close()
        return reply.status, headers, text

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


def run_with_server(run):
    """run(server, proxy) with a server and its keys in the environment; where there is none, the test is skipped."""
    work = tempfile.mkdtemp(prefix="cairn-s3-")
    server, why = S3Server.find(os.path.join(work, "store"))
    if server is None:
        print(f"skipped: {why}", flush=True)
        shutil.rmtree(work, ignore_errors=True)
        sys.exit(77)
    proxy = FaultProxy(server.port)
    os.environ.update(environment(proxy.port))
    try:
        run(server, proxy)
    finally:
        proxy.close()
        server.close()
        shutil.rmtree(work, ignore_errors=True)
