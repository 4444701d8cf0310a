"""Goal: the archive of deploy/bundle.sh runs without the machine on which it was built. It contains every library
except those of glibc and CUDA; the plugin finds its symbols in the programs; they start where there is only glibc (as
root: in their own root directory); a cluster of them trains to the digest of the build; and tests/gpu/run.sh runs from
it with an empty environment."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

import cluster  # noqa: E402
from cluster import BIN, SOURCE, Cluster, check  # noqa: E402
from jobs import make_glyphs, small_job  # noqa: E402

PROGRAMS = ("cairn", "cairn-coordinator", "cairn-ps", "cairn-replay", "cairn-worker")
GLIBC = re.compile(r"^(linux-vdso|ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|anl|nsl|mvec))\.so")
CUDA = re.compile(r"^lib(cuda|cudart|cudnn\w*|cublas|cublasLt|nccl|nvrtc[\w-]*|nvJitLink)\.so")


def unpack(directory):
    archive = os.path.join(directory, "cairn.tar.gz")
    done = subprocess.run(
        [os.path.join(SOURCE, "deploy/bundle.sh"), os.path.dirname(BIN), archive], capture_output=True, text=True
    )
    check(done.returncode == 0, f"bundle.sh: {done.stdout}{done.stderr}")
    print(done.stdout.strip().splitlines()[-1])
    with tarfile.open(archive) as tar:
        tar.extractall(directory)
    return next(os.path.join(directory, d) for d in os.listdir(directory) if d.startswith("cairn-"))


def foreign_libraries(bundle):
    """The libraries that a program would load from outside the bundle, except glibc's, and CUDA's for the plugin."""
    found = set()
    for folder in ("bin", "lib"):
        for name in sorted(os.listdir(os.path.join(bundle, folder))):
            # The program that loads the bundle's libraries determines where they are found: tell the loader, as the
            # program's RPATH would.
            environment = {"LD_LIBRARY_PATH": os.path.join(bundle, "lib")} if folder == "lib" else {}
            out = subprocess.run(
                ["/usr/bin/ldd", os.path.join(bundle, folder, name)], env=environment, capture_output=True, text=True
            ).stdout
            for line in out.splitlines():
                if line.strip() == "statically linked":
                    continue
                library = line.split()[0]
                base = os.path.basename(library)
                if (
                    GLIBC.match(base)
                    or CUDA.match(base)
                    or os.path.join(bundle, "lib") in os.path.realpath(line.split()[-2] if "=>" in line else library)
                ):
                    continue
                found.add(f"{folder}/{name}: {line.strip()}")
    return found


def symbols(path, which):
    out = subprocess.run(["/usr/bin/nm", "-D", which, path], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in out.splitlines()}


def unknown_to_programs(bundle):
    """The symbols of Cairn that the plugin needs from the program that loads it, and that are missing there. Empty if
    there is no plugin."""
    plugin = os.path.join(bundle, "lib/libcairn_cudnn.so")
    if not os.path.exists(plugin):
        return set()
    wanted = {s for s in symbols(plugin, "--undefined-only") if "cairn" in s}
    check(wanted, "the plugin takes nothing from the worker: is it linked with a copy of its messages?")
    loaders = [
        p for p in ("cairn-worker", "gpu_backend", "gpu_bench") if os.path.exists(os.path.join(bundle, "bin", p))
    ]
    return {f"{p}: {s}" for p in loaders for s in wanted - symbols(os.path.join(bundle, "bin", p), "--defined-only")}


def start_alone(bundle, directory):
    """Starts them in a root directory with only the bundle and glibc."""
    root = os.path.join(directory, "root")
    os.makedirs(f"{root}/lib/x86_64-linux-gnu")
    os.makedirs(f"{root}/lib64")
    shutil.copy("/lib64/ld-linux-x86-64.so.2", f"{root}/lib64/")
    for name in (
        "libc.so.6",
        "libm.so.6",
        "libdl.so.2",
        "librt.so.1",
        "libpthread.so.0",
        "libresolv.so.2",
        "libanl.so.1",
        "libutil.so.1",
    ):
        if os.path.exists(f"/lib/x86_64-linux-gnu/{name}"):
            shutil.copy(f"/lib/x86_64-linux-gnu/{name}", f"{root}/lib/x86_64-linux-gnu/")
    shutil.copytree(bundle, f"{root}/cairn")
    for program in PROGRAMS:
        # The program's location, which its RPATH is relative to, is normally read from /proc.
        done = subprocess.run(
            ["/usr/sbin/chroot", root, f"/cairn/bin/{program}", "--help"],
            env={"LD_ORIGIN_PATH": "/cairn/bin"},
            capture_output=True,
            text=True,
        )
        check(
            done.returncode == 0 and "--" in done.stdout,
            f"{program} alone with glibc: exit {done.returncode}: {done.stdout}{done.stderr}",
        )


def run_checks(bundle, directory):
    """Runs the checks with an empty environment in another directory, as a machine with a GPU would, using the plugin
    with the simulated GPU. Also checks the message of a worker without a GPU."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": directory}
    if not os.path.exists(os.path.join(bundle, "tests/host_gpu")):
        print("the build has no plugin for dry runs: tests/gpu/run.sh was not run")
        return
    done = subprocess.run(
        [os.path.join(bundle, "tests/gpu/run.sh"), "--dry-run", "fallback", "placement"],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
    )
    rows = re.findall(r"^\| (fallback|placement) \| passed ", done.stdout, re.M)
    check(done.returncode == 0 and len(rows) == 2, f"run.sh: exit {done.returncode}: {done.stdout}{done.stderr}")
    if os.path.exists(os.path.join(bundle, "lib/libcairn_cudnn.so")) and not os.path.exists("/dev/nvidia0"):
        worker = subprocess.run(
            [os.path.join(bundle, "bin/cairn-worker"), "--coordinator", "127.0.0.1:1", "--device", "gpu"],
            env=environment,
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
        )
        check(
            worker.returncode == 2 and "--device=gpu: libcairn_cudnn.so: " in worker.stderr,
            f"--device gpu: exit {worker.returncode}: {worker.stderr}",
        )
        print(worker.stderr.strip().splitlines()[-1])


def digest(folder):
    cluster.BIN = folder
    with Cluster(ps=1, workers=1, slots=2) as c:
        return c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir, 600, 60), epochs=1)))["digest"]


def main():
    directory = tempfile.mkdtemp(prefix="cairn-bundle-test-")
    try:
        bundle = unpack(directory)
        foreign = foreign_libraries(bundle)
        check(not foreign, "needed from outside the bundle:\n" + "\n".join(sorted(foreign)))
        unknown = unknown_to_programs(bundle)
        check(not unknown, "the plugin would not load:\n" + "\n".join(sorted(unknown)))
        if subprocess.run(["/usr/sbin/chroot", "/", "/bin/true"], capture_output=True).returncode == 0:
            start_alone(bundle, directory)
        else:
            print("no chroot here: not started alone with glibc")
        run_checks(bundle, directory)
        of_build, of_bundle = digest(BIN), digest(os.path.join(bundle, "bin"))
        check(of_build == of_bundle, f"digest {of_build} of the build, {of_bundle} of the bundle")
        print(f"the bundle trains to the build's digest {of_bundle}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
