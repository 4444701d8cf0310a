#!/usr/bin/env python3
"""Goal: deploy/fetch_dataset.sh fetches, checks and unpacks from a local server; is quick when everything exists;
resumes a broken download; rejects wrong checksums; says what to do without a network. Nothing outside this machine is
contacted."""

import functools
import gzip
import hashlib
import http.server
import io
import os
import pathlib
import subprocess
import tarfile
import tempfile
import threading
import unittest
import zipfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "deploy" / "fetch_dataset.sh"
MNIST = [
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
]


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the files of a folder, with `Range: bytes=N-` if enabled; records the requests."""

    def do_GET(self):
        self.server.asked.append((self.path, self.headers.get("Range")))
        wanted = self.headers.get("Range")
        path = pathlib.Path(self.translate_path(self.path))
        if not (self.server.ranges and wanted and path.is_file()):
            return super().do_GET()
        data = path.read_bytes()
        begin = int(wanted.removeprefix("bytes=").rstrip("-"))
        if begin >= len(data):
            return self.send_error(416)
        self.send_response(206)
        self.send_header("Content-Length", str(len(data) - begin))
        self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        self.wfile.write(data[begin:])

    def log_message(self, *args):
        pass


def zip_of(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as z:
        for name, data in files.items():
            z.writestr(name, data)
    return out.getvalue()


def tar_of(files):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as t:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            t.addfile(info, io.BytesIO(data))
    return out.getvalue()


class FetchDataset(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="cairn_fetch_")
        self.root = pathlib.Path(self.folder.name)
        self.served = self.root / "served"
        self.served.mkdir()
        self.target = self.root / "a folder" / "data"
        self.server = http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Handler, directory=str(self.served))
        )
        self.server.asked = []
        self.server.ranges = True
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def tearDown(self):
        self.stop_server()
        self.folder.cleanup()

    def stop_server(self):
        if self.server is not None:
            self.server.shutdown()
            self.server.server_close()
            self.thread.join()
            self.server = None

    def serve(self, name, files):
        """Puts files on the server and their checksums into the checksum file."""
        (self.served / name).mkdir()
        lines = []
        for file, data in files.items():
            (self.served / name / file).write_bytes(data)
            lines.append(f"{hashlib.sha256(data).hexdigest()}  {name}/{file}\n")
        (self.root / "sums").write_text("".join(lines))

    def serve_mnist(self):
        self.serve("mnist", {f: gzip.compress(f.encode() * 100) for f in MNIST})

    def run_script(self, *args, path=None):
        env = dict(os.environ, CAIRN_DATASET_SUMS=str(self.root / "sums"))
        for proxy in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
            env.pop(proxy, None)
        env["CAIRN_DATASET_MIRROR"] = getattr(self, "mirror", None) or f"http://127.0.0.1:{self.server.server_port}"
        if path:
            env["PATH"] = path
        return subprocess.run([str(SCRIPT), *map(str, args)], env=env, capture_output=True, text=True, timeout=120)

    def names(self):
        return sorted(p.name for p in self.target.iterdir())

    def test_fetches_and_is_quick_the_second_time(self):
        self.serve_mnist()
        result = self.run_script("mnist", self.target)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.names(), sorted(MNIST))
        for file in MNIST:
            self.assertEqual((self.target / file).read_bytes(), (self.served / "mnist" / file).read_bytes())
        self.server.asked.clear()
        self.assertEqual(self.run_script("mnist", self.target).returncode, 0)
        self.assertEqual(self.server.asked, [])

    def test_wget_does_too(self):
        tools = self.root / "tools"
        tools.mkdir()
        for tool in ["wget", "bash", "env", "sha256sum", "cut", "cat", "awk", "mkdir", "mv", "rm", "tar"]:
            found = subprocess.run(["which", tool], capture_output=True, text=True).stdout.strip()
            if not found:
                self.skipTest(f"no {tool} on this machine")
            (tools / tool).symlink_to(found)
        self.serve_mnist()
        result = self.run_script("mnist", self.target, path=str(tools))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.names(), sorted(MNIST))
        (tools / "wget").unlink()
        result = self.run_script("mnist", self.target, path=str(tools))
        self.assertEqual(result.returncode, 4)
        self.assertIn("curl or wget", result.stderr)

    def test_unpacks_a_tar(self):
        files = {f"cifar-10-batches-bin/data_batch_{i}.bin": b"%d" % i for i in range(1, 6)}
        self.serve("cifar10", {"cifar-10-binary.tar.gz": tar_of(files)})
        result = self.run_script("cifar10", self.target)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual((self.target / "data_batch_4.bin").read_bytes(), b"4")
        self.assertFalse((self.target / "cifar-10-binary.tar.gz").exists())
        self.server.asked.clear()
        self.assertEqual(self.run_script("cifar10", self.target).returncode, 0)
        self.assertEqual(self.server.asked, [])

    def test_unpacks_zips(self):
        self.serve(
            "beans",
            {
                f"{s}.zip": zip_of({f"{s}/healthy/{s}.jpg": b"x", "__MACOSX/y": b"y"})
                for s in ("train", "validation", "test")
            },
        )
        result = self.run_script("beans", self.target)
        self.assertEqual(result.returncode, 0, result.stderr)
        for split in ("train", "validation", "test"):
            self.assertTrue((self.target / split / "healthy" / f"{split}.jpg").exists())
        visible = [n for n in self.names() if not n.startswith(".")]
        self.assertEqual(visible, ["test", "train", "validation"])

    def test_a_wrong_sum_is_refused_and_removed(self):
        self.serve_mnist()
        (self.served / "mnist" / MNIST[1]).write_bytes(b"something else")
        result = self.run_script("mnist", self.target)
        self.assertEqual(result.returncode, 3)
        self.assertIn("wrong checksum", result.stderr)
        self.assertIn(MNIST[1], result.stderr)
        self.assertEqual(self.names(), [MNIST[0]])

    def test_the_pinned_sums_hold_without_a_file_of_sums(self):
        self.serve_mnist()
        (self.root / "sums").write_text("")
        result = self.run_script("mnist", self.target)
        self.assertEqual(result.returncode, 3)
        self.assertIn("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", result.stderr)

    def test_goes_on_with_a_broken_download(self):
        self.serve_mnist()
        whole = (self.served / "mnist" / MNIST[0]).read_bytes()
        self.target.mkdir(parents=True)
        (self.target / (MNIST[0] + ".part")).write_bytes(whole[:40])
        result = self.run_script("mnist", self.target)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn((f"/mnist/{MNIST[0]}", "bytes=40-"), self.server.asked)
        self.assertEqual((self.target / MNIST[0]).read_bytes(), whole)

    def test_starts_again_where_the_beginning_was_wrong(self):
        self.serve_mnist()
        self.target.mkdir(parents=True)
        for ranges in (True, False):
            self.server.ranges = ranges
            (self.target / (MNIST[0] + ".part")).write_bytes(b"of an older file")
            result = self.run_script("mnist", self.target)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertEqual((self.target / MNIST[0]).read_bytes(), (self.served / "mnist" / MNIST[0]).read_bytes())
            (self.target / MNIST[0]).unlink()

    def test_says_what_to_do_without_a_network(self):
        self.serve_mnist()
        self.mirror = f"http://127.0.0.1:{self.server.server_port}"
        self.stop_server()
        result = self.run_script("mnist", self.target)
        self.assertEqual(result.returncode, 1)
        for part in (
            "could not be fetched",
            "by hand",
            f"{self.mirror}/mnist/{MNIST[3]}",
            str(self.target / MNIST[3]),
            "run this command again",
        ):
            self.assertIn(part, result.stderr)
        # Follows the advice.
        for file in MNIST:
            (self.target / file).write_bytes((self.served / "mnist" / file).read_bytes())
        self.assertEqual(self.run_script("mnist", self.target).returncode, 0)

    def test_a_file_of_the_users_with_a_wrong_sum_is_left_alone(self):
        self.serve_mnist()
        self.target.mkdir(parents=True)
        (self.target / MNIST[0]).write_bytes(b"mine")
        result = self.run_script("mnist", self.target)
        self.assertEqual(result.returncode, 3)
        self.assertIn("remove it", result.stderr)
        self.assertEqual((self.target / MNIST[0]).read_bytes(), b"mine")

    def test_a_missing_file_is_an_error(self):
        self.serve_mnist()
        (self.served / "mnist" / MNIST[0]).unlink()
        result = self.run_script("mnist", self.target)
        self.assertEqual(result.returncode, 1)
        self.assertIn(MNIST[0], result.stderr)

    def test_usage(self):
        (self.root / "sums").write_text("")
        for args in ([], ["mnist"], ["imagenet", self.target], ["mnist", ""], ["mnist", self.target, "more"]):
            result = self.run_script(*args)
            self.assertEqual(result.returncode, 2, args)
            self.assertIn("usage:", result.stderr)
            self.assertIn("fashion-mnist", result.stderr)
        (self.root / "file").write_text("")
        result = self.run_script("mnist", self.root / "file")
        self.assertEqual(result.returncode, 4)
        self.assertIn("cannot be written", result.stderr)


if __name__ == "__main__":
    unittest.main()
