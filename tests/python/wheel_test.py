"""Goal: the wheel of deploy/wheel.py is a whole Cairn where nothing of its build can be seen.

- Twice made of one build it is the same bytes; METADATA, WHEEL, RECORD and the file's name say what is in it.
- pip refuses one that is cut short, has an altered byte, or (with the hash) is another one.
- It is installed without an index into a fresh environment. Its programs and its module take every library but glibc,
  libstdc++ and libgcc_s from it. There, as root with the source, the build and the libraries hidden: the commands, a
  local cluster, an example that was installed, predictions, a program of numpy. No process is left.
- Uninstalling leaves no file.
"""

import base64
import csv
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import BIN, SOURCE, check  # noqa: E402

BUILD = os.path.abspath(os.path.join(BIN, ".."))
NAME = re.compile(r"cairn-([0-9.]+)-cp311-cp311-manylinux_2_36_x86_64\.whl")
OF_TARGET = re.compile(
    r"^(linux-vdso|ld-linux-x86-64|libstdc\+\+|libgcc_s|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|mvec)"
    r"|lib(cuda|cudart|cudnn\w*|cublas|cublasLt|nccl|nvrtc[\w-]*|nvJitLink))\.so"
)
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
DIST_PACKAGES = "/usr/lib/python3/dist-packages"
PIP = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index"]

USE = """
import os, sys
import numpy
import cairn, cairn._cairn, cairn.worker

for module in (cairn, cairn._cairn):
    assert module.__file__.startswith(sys.prefix), module.__file__
print("version", cairn.__version__)

class Line:
    name, version = "line", "1"
    def open(self, job):
        return self
    def train(self, step):
        numpy.frombuffer(step.gradients, "f4")[0] = -len(step.indices)
        return 0.0

with cairn.Client() as client:
    job = client.submit(
        f"{sys.prefix}/share/doc/cairn/examples/glyphs/job.textproto", set={"data.path": "data/glyphs", "epochs": 1}
    )
    assert job.wait(timeout=300, progress=False) == "SUCCEEDED"
    assert job.history["loss"][0] > 0, job.history
    pictures = numpy.zeros((3, 28, 28, 1), dtype=numpy.uint8)
    print("predictions", job.predict(pictures).shape, job.predict(split="test").shape)
    with cairn.worker.Worker([Line()], client.address):
        line = client.submit('''name: "line"
            model { external { program: "line" version: "1" variables { name: "a" shape: 1 } } }
            data { external { examples: 8 } } optimizer { sgd { } learning_rate: 0.5 } batch_size: 4 epochs: 1''')
        line.wait(timeout=300, progress=False)
        line.export("line.safetensors")
    from cairn import safetensors
    print("line", safetensors.read("line.safetensors")["a"].tolist())
"""
USED = ["predictions (3, 10) (40, 10)", "line [1.0]"]


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    check(done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def maker():
    spec = importlib.util.spec_from_file_location("wheel", os.path.join(SOURCE, "deploy/wheel.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_twice(folder):
    """The wheel. The other one is made with another mask and clock's zone, and in another folder."""
    first = maker().make(BUILD, f"{folder}/a", level=1)
    os.environ["TZ"] = "Asia/Tokyo"
    mask = os.umask(0o077)
    second = maker().make(BUILD, f"{folder}/b", level=1)
    os.umask(mask)
    del os.environ["TZ"]
    with open(first, "rb") as one, open(second, "rb") as other:
        check(one.read() == other.read(), "two wheels of one build differ")
    os.unlink(second)
    print(f"{os.path.basename(first)}: {os.path.getsize(first) / 2**20:.0f} MiB", flush=True)
    return first


def check_records(path):
    version = NAME.fullmatch(os.path.basename(path)).group(1)
    check(run([f"{BIN}/cairn", "--version"]).strip() == f"cairn {version}", f"the wheel says {version}")
    with zipfile.ZipFile(path) as wheel:
        info = f"cairn-{version}.dist-info"
        text = {name: wheel.read(f"{info}/{name}").decode() for name in ("METADATA", "WHEEL", "RECORD")}
        check(f"\nName: cairn\nVersion: {version}\n" in text["METADATA"], text["METADATA"])
        check("\nTag: cp311-cp311-manylinux_2_36_x86_64\n" in text["WHEEL"], text["WHEEL"])
        recorded = {name: (digest, size) for name, digest, size in csv.reader(text["RECORD"].splitlines())}
        check(recorded.keys() == set(wheel.namelist()), "RECORD does not name what is there")
        for name, (digest, size) in recorded.items():
            if name == f"{info}/RECORD":
                check((digest, size) == ("", ""), "RECORD has a hash of itself")
                continue
            data = wheel.read(name)
            wanted = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            check((digest, size) == (f"sha256={wanted}", str(len(data))), f"RECORD, {name}: {digest} {size}")
    return version


def check_refused(python, path, folder):
    """Each is asked of pip; it says why."""
    with open(path, "rb") as file:
        whole = file.read()
    with zipfile.ZipFile(path) as wheel:
        place = wheel.getinfo("cairn/client.py").header_offset + 500
    altered = bytearray(whole)
    altered[place] ^= 0x40
    cases = {"cut short": whole[: len(whole) * 2 // 3], "altered": bytes(altered)}
    digest = hashlib.sha256(whole).hexdigest()
    for what, data in cases.items():
        target = os.path.join(folder, os.path.basename(path))
        with open(target, "wb") as file:
            file.write(data)
        done = subprocess.run([python, *PIP, "--no-deps", target], capture_output=True, text=True)
        wanted = "invalid" if what == "cut short" else "Bad CRC-32|invalid|Error -3"
        check(done.returncode != 0 and re.search(wanted, done.stderr), f"{what}: {done.returncode} {done.stderr}")
        with open(f"{folder}/wanted.txt", "w") as file:
            file.write(f"{target} --hash=sha256:{digest}\n")
        hashed = [python, *PIP, "--no-deps", "--require-hashes", "-r", f"{folder}/wanted.txt"]
        done = subprocess.run(hashed, capture_output=True, text=True)
        check(done.returncode != 0 and "DO NOT MATCH" in done.stderr, f"{what}: {done.returncode} {done.stderr}")
    subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "-y", "cairn"], capture_output=True)


def libraries_of(objects):
    """Pairs (name, file that the loader finds), of all objects."""
    out = subprocess.run(["/usr/bin/ldd", *objects], capture_output=True, text=True, env={}).stdout
    found = re.findall(r"^\s+(\S+) => (.*?)(?: \(0x\w+\))?$", out, re.M)
    return {(name, os.path.normpath(file)) for name, file in found}


def check_libraries(package):
    """The libraries in the wheel. Those of programs and module are all there."""
    module = next(name for name in os.listdir(package) if name.startswith("_cairn"))
    objects = [f"{package}/{module}", *(f"{package}/bin/{name}" for name in os.listdir(f"{package}/bin"))]
    check(len(objects) == 6, objects)
    found = libraries_of(objects)
    check(len(found) > 20, sorted(found))
    foreign = [f"{n} => {p}" for n, p in found if not OF_TARGET.match(n) and not p.startswith(f"{package}/lib/")]
    check(not foreign, f"taken from elsewhere: {sorted(foreign)[:5]}")
    brought = {n for n in os.listdir(f"{package}/lib") if OF_TARGET.match(n)}
    check(not brought, f"brought, though every target has them: {brought}")
    return set(os.listdir(f"{package}/lib"))


def hidden(brought):
    """Files of this machine that the wheel makes superfluous: not those that Debian's Python takes itself."""
    modules = []
    for folder in ("/usr/lib/python3.11/lib-dynload", *(f"{DIST_PACKAGES}/{n}" for n in ("grpc", "google", "numpy"))):
        for at, _, names in os.walk(folder):
            modules += [os.path.join(at, name) for name in names if ".so" in name]
    of_python = {name for name, _ in libraries_of(["/usr/bin/python3.11", *modules])}
    return [f"{LIBRARIES}/{n}" for n in sorted(brought - of_python) if os.path.exists(f"{LIBRARIES}/{n}")]


def outside(brought):
    """Begins a command that sees neither source nor build, nor what the wheel brings. [] where that cannot be."""
    probe = subprocess.run(["unshare", "--mount", "true"], capture_output=True)
    if os.getuid() != 0 or probe.returncode != 0:
        print("source, build and libraries are not hidden: only root can do that", flush=True)
        return []
    files = hidden(brought)
    check(any("libdnnl" in name for name in files), f"oneDNN is not among {files}")
    print(f"{len(files)} libraries of this machine are hidden", flush=True)
    hide = 'for f in "${@:3:$0}"; do mount --bind /dev/null "$f"; done'
    for number, folder in ((1, BUILD), (2, os.path.abspath(SOURCE))):
        hide += f'; [[ ! -d ${number} ]] || mount -t tmpfs none "${number}"'
    script = f'set -e; {hide}; shift "$(($0 + 2))"; exec "$@"'
    return ["unshare", "--mount", "bash", "-c", script, str(len(files)), BUILD, os.path.abspath(SOURCE), *files]


def processes_of(folder):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if folder in command and int(pid) != os.getpid():
            found.append(command)
    return found


def check_use(begin, venv, work, version):
    os.mkdir(work)
    with open(f"{work}/use.py", "w") as file:
        file.write(USE)
    clean = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": work, "TMPDIR": work}
    glyphs = ["cairn", "data", "make", "glyphs", "data/glyphs", "--count", "400", "--test-count", "40"]
    for name in ("cairn", "cairn-coordinator", "cairn-ps", "cairn-worker"):
        said = run([*begin, name, "--version"], env=clean, cwd=work)
        check(said == f"cairn {version}\n", f"{name} --version: {said}")
    run([*begin, *glyphs], env=clean, cwd=work)
    if begin:
        seen = run([*begin, "ls", os.path.abspath(SOURCE)], env=clean, cwd=work)
        check(seen == "", f"the source is seen: {seen}")
    said = run([*begin, "python3", "use.py"], env=clean, cwd=work).splitlines()
    check(said == [f"version {version}", *USED], f"it said {said}")
    left = processes_of(work) + processes_of(venv)
    check(not left, f"processes are left: {left}")
    check(not [n for n in os.listdir(work) if n.startswith("cairn-local")], os.listdir(work))


def main():
    if shutil.which("pip", path=os.path.dirname(sys.executable)) is None and importlib.util.find_spec("pip") is None:
        print("skipped: there is no pip (python3-pip)")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="cairn-wheel-test-") as folder:
        path = make_twice(folder)
        version = check_records(path)
        venv = f"{folder}/venv"
        run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", venv])
        python = f"{venv}/bin/python3"
        check_refused(python, path, folder)
        run([python, *PIP, path], cwd=folder)
        site = f"{venv}/lib/python3.11/site-packages"
        begin = outside(check_libraries(f"{site}/cairn"))
        check_use(begin, venv, f"{folder}/work", version)
        run([python, "-m", "pip", "uninstall", "--quiet", "-y", "cairn"], cwd=folder)
        left = [f for at, _, names in os.walk(venv) for f in (f"{at}/{n}" for n in names) if "cairn" in f[len(venv) :]]
        check(not left, f"uninstalled, but there is {left}")


if __name__ == "__main__":
    main()
    print("ok")
