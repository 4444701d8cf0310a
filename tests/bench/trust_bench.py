"""What TLS, tokens, roots and S3 cost, as ratios in one run on one machine.

    trust_bench.py BIN [--rounds N] [tls|roots|s3|data]...        default: all; BIN: build/release/bin

  tls    step time of the small CNN, two workers on TCP: without TLS; with mutual TLS, one certificate that has every
         role; with TLS where each daemon's certificate has its role alone and the user has a token and no certificate
         aim: roles and a token <= 1.03 of mutual TLS
  roots  a folder of 2,000 pictures is opened, and all are read: by paths that nobody checks, and below a root
         aim: <= 1.02
  s3     steps of the small CNN, one worker, without checkpoints, with checkpoints in a folder, and with ones on S3
         aim: no step is delayed by more than 10 %
  data   the small CNN on pictures of a folder, and on the same ones on S3 that are in the cache
         aim: >= 0.95 of the folder's images/s

The sides of a ratio take turns, `rounds` times, and change their order each time; each round is printed, and the ratio
is that of the medians. The roles are checked in every cluster with TLS: what the check itself costs shows against a
build that has none. The S3 server is s3rver from npm behind the tests' proxy (s3_server.py), both on this machine,
which they take computing time from: their share of a core is printed. Without npm the script ends with 77 there; s3
needs python3-grpcio too (Debian's, for /usr/bin/python3), and protoc.
"""

import argparse
import contextlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("../chaos", "../integration", "."):
    sys.path.insert(0, os.path.join(HERE, folder))
if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
    os.environ["CAIRN_BIN"] = os.path.abspath(sys.argv[1])

import s3_checkpoints_test  # noqa: E402
import s3_test  # noqa: E402
from cluster import BIN, SOURCE, Cluster, check  # noqa: E402
from jobs import make_glyphs  # noqa: E402
from s3_server import run_with_server  # noqa: E402
from training_bench import BATCH, CNN, JOB  # noqa: E402

WORKERS = 2
TLS_STEPS, TLS_EPOCHS = 50, 5  # steps of an epoch
CHECKPOINTS = 6  # of a job
DATA_EXAMPLES, DATA_EPOCHS = 9600, 3
PICTURES, PICTURE_SHAPE = 2000, "32,32,3"
TICKS = os.sysconf("SC_CLK_TCK")


def in_turn(rounds, names):
    """(round, name): each name once a round."""
    for number in range(rounds):
        for name in names if number % 2 == 0 else reversed(names):
            yield number, name


def show(what, unit, samples, digits=2):
    """samples: {name: values by round}; ratios to the first name."""
    base = statistics.median(next(iter(samples.values())))
    print(f"{what}, {unit}:", flush=True)
    for name, values in samples.items():
        median = statistics.median(values)
        each = " ".join(f"{value:.{digits}f}" for value in values)
        print(f"  {name:34s} {median:10.{digits}f}   ratio {median / base:6.3f}   rounds: {each}", flush=True)


def write_job(c, data, examples, steps, workers):
    """A job of at least so many steps; the path of its file."""
    path = os.path.join(c.dir, "job.textproto")
    epochs = -(-steps * BATCH * workers // examples)
    with open(path, "w") as f:
        f.write(JOB % (CNN, data, "sgd { momentum: 0.9 }", BATCH * workers, epochs, workers))
    return path


# ---- TLS ----


def use(environment):
    """For the `cairn` and the daemons that are started from now on."""
    for name in ("CAIRN_TLS_DIR", "CAIRN_TOKEN", "CAIRN_TOKEN_FILE"):
        os.environ.pop(name, None)
    os.environ.update(environment)


def make_certs(directory):
    roles = ["coordinator+ps=*+worker=*+admin:node", "coordinator:coordinator", "ps=*:ps", "worker=*:worker"]
    command = [f"{SOURCE}/deploy/make_certs.sh", directory, *roles, "admin:root"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    os.mkdir(f"{directory}/user")
    shutil.copy(f"{directory}/ca.crt", f"{directory}/user")


def cluster_of(kind, certs):
    """A cluster, and the environment in which it is started; its ps take connections by TCP alone."""
    flags = {"ps": 2, "workers": WORKERS, "ps_flags": ["--unix-socket", "none"]}
    if kind == "none":
        return Cluster(**flags), {}
    if kind == "mutual":
        return Cluster(**flags), {"CAIRN_TLS_DIR": f"{certs}/node"}
    c = Cluster(**flags, coordinator_flags=["--accept-tokens"])
    for name in ("coordinator", "ps-0", "ps-1", *(f"worker-{i}" for i in range(WORKERS))):
        c.prefix[name] = ["env", f"CAIRN_TLS_DIR={certs}/{name.split('-')[0]}"]
    return c, {"CAIRN_TLS_DIR": f"{certs}/root"}


def step_ms(c, path):
    """Of a job, the median of its epochs but the first, which compiles and fills caches."""
    job = c.submit(path)
    epochs = c.wait(job)["epochs"][1:]
    c.cairn("delete", job)
    return 1000 * statistics.median(e["seconds"] for e in epochs) / TLS_STEPS


def tls(rounds):
    kinds = {"none": "without TLS", "mutual": "mutual TLS", "token": "TLS, a role each, a token"}
    samples = {text: [] for text in kinds.values()}
    examples = TLS_STEPS * BATCH * WORKERS
    with tempfile.TemporaryDirectory(prefix="cairn-certs-") as directory, contextlib.ExitStack() as stack:
        certs = f"{directory}/certs"
        make_certs(certs)
        data = make_glyphs(directory, examples, 100)
        clusters = {}
        for kind in kinds:
            c, environment = cluster_of(kind, certs)
            use(environment)
            clusters[kind] = stack.enter_context(c), environment
        c, as_admin = clusters["token"]
        use(as_admin)
        token = c.cairn("token", "create", "somebody", "--name", "bench").stdout.strip()
        clusters["token"] = c, {"CAIRN_TLS_DIR": f"{certs}/user", "CAIRN_TOKEN": token}
        for _, kind in in_turn(rounds, list(kinds)):
            c, environment = clusters[kind]
            use(environment)
            samples[kinds[kind]].append(step_ms(c, write_job(c, data, examples, TLS_EPOCHS * TLS_STEPS, WORKERS)))
        use({})
    show("a step of the small CNN, 2 workers and 2 ps", "ms", samples)
    mutual, token = (statistics.median(samples[kinds[kind]]) for kind in ("mutual", "token"))
    print(f"  a role each and a token beside mutual TLS: {token / mutual:.3f}   aim <= 1.03", flush=True)


# ---- roots ----


def roots(rounds):
    program = os.path.join(BIN, "bench_data")
    names = ["as it is", "below a root"]
    opened, read = ({name: [] for name in names} for _ in range(2))
    with tempfile.TemporaryDirectory(prefix="cairn-pictures-") as directory:
        subprocess.run([program, "make-folder", f"{directory}/pictures", str(PICTURES)], check=True)
        commands = {
            "as it is": [program, "open", f"{directory}/pictures", PICTURE_SHAPE],
            "below a root": [program, "open", "data:/pictures", PICTURE_SHAPE, f"data={directory}"],
        }
        for number, name in in_turn(10 * rounds + 1, names):
            done = subprocess.run(commands[name], check=True, capture_output=True, text=True).stdout
            found = re.search(r"opened: (\S+) s.*?(\d+) examples.*read: (\S+) s", done, re.S)
            check(found and int(found[2]) == PICTURES, f"{commands[name]}: {done}")
            if number > 0:  # the first round fills the system's cache
                opened[name].append(1000 * float(found[1]))
                read[name].append(1000 * float(found[3]))
    show(f"{PICTURES} pictures are opened (aim <= 1.02)", "ms", opened)
    show("and all are read", "ms", read, digits=1)


# ---- checkpoints on S3 ----


def cpu_seconds(server):
    """Of the S3 server, and of the proxy, which is in this process."""
    with open(f"/proc/{server.process.pid}/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    own = os.times()
    return (int(fields[11]) + int(fields[12])) / TICKS, own.user + own.system


def times_beside(c, path, checkpoints, steps, arrivals):
    """(ms of each step from some early one on, that one, the step of the last checkpoint) of a job."""
    job = c.submit(path, checkpoints)
    c.wait_for_step(job, 1)
    status = c.job(job)
    first = int(status["step"]) + 50  # those before are made while the connection opens
    seen = arrivals(status, first, steps)
    written = c.job(job).get("checkpoints", [])
    c.cairn("cancel", job)
    check(not checkpoints or written, "no checkpoint was written")
    times = {v: 1000 * (seen[v] - seen[v - 1]) for v in range(first + 1, steps + 1)}
    return times, first, int(written[-1]["step"]) if written else 0


def s3(rounds):
    run_with_server(lambda server, _: beside_checkpoints(rounds, server))


def beside_checkpoints(rounds, server):
    from checkpoint_step_bench import EVERY, WINDOW, around, arrivals  # needs python3-grpcio and protoc

    steps, examples = (CHECKPOINTS + 2) * EVERY, 4000
    dirs = {"no checkpoints": None, "in a folder": "runs:/", "on S3": "out:/"}
    medians = {name: [] for name in dirs}
    delays = {name: [[] for _ in range(WINDOW)] for name in dirs}  # by step after the cut, % of the median step
    print(f"a checkpoint every {EVERY} steps, {steps} steps:", flush=True)
    with Cluster(ps=2, workers=0) as c:
        for folder in ("local", "runs"):
            os.makedirs(f"{c.dir}/{folder}")
        os.rename(make_glyphs(c.dir, examples, 100), f"{c.dir}/local/glyphs")
        # One worker: the S3 server and the proxy, which are elsewhere in a real cluster, have the other processor.
        c.add_worker("worker-0", *s3_checkpoints_test.roots_of(c))
        c.wait_for_nodes(3)
        path = write_job(c, "local:/glyphs", examples, steps + 10 * EVERY, 1)
        for number, name in in_turn(rounds, list(dirs)):
            settings = {"checkpoints.every_steps": EVERY, "checkpoints.keep_max": 2}
            settings = {**settings, "checkpoints.dir": f"{dirs[name]}bench-{number}"} if dirs[name] else {}
            cpu, begin = cpu_seconds(server), time.monotonic()
            times, first, written = times_beside(c, path, settings, steps, arrivals)
            seconds = time.monotonic() - begin
            shares = ", ".join(f"{(b - a) / seconds:.2f}" for a, b in zip(cpu, cpu_seconds(server)))
            at, others, excess = around(times, first, steps)
            median = statistics.median(others)
            medians[name].append(median)
            for i in range(WINDOW):
                delays[name][i] += [100 * excess(v + i + 1) / median for v in at]
            longest = max(times[v + i] for v in at for i in range(1, WINDOW + 1))
            print(
                f"  round {number + 1}, {name:14s} {median:7.2f} ms a step, the longest after a cut "
                f"{longest:7.2f}, else {max(others):7.2f}; the last "
                f"checkpoint: step {written}; of a core the server and this process took {shares}",
                flush=True,
            )
    show("a step that no checkpoint can delay", "ms", medians)
    for name, by_step in delays.items():
        means = [statistics.mean(values) for values in by_step]
        print(
            f"  {name:14s} the {WINDOW} steps after a cut are longer by {statistics.mean(means):+5.1f} % in the mean; "
            f"the {means.index(max(means)) + 1}. of them, the most delayed, by {max(means):+5.1f} %   aim <= 10 %",
            flush=True,
        )


# ---- training from S3 ----


def data(rounds):
    run_with_server(lambda server, _: from_cache(rounds, server))


def from_cache(rounds, server):
    roots_by_name = {"a folder": "local", "S3, in the cache": "data"}
    rates, seconds = ({name: [] for name in roots_by_name} for _ in range(2))
    steps = DATA_EPOCHS * DATA_EXAMPLES // BATCH
    with Cluster(ps=1, workers=0) as c:
        for folder in ("local", "runs"):
            os.makedirs(f"{c.dir}/{folder}")
        os.rename(make_glyphs(c.dir, DATA_EXAMPLES, 100), f"{c.dir}/local/glyphs")
        server.put_folder("sets/glyphs", f"{c.dir}/local/glyphs")
        c.add_worker("worker-0", *s3_test.roots_of(c))
        c.wait_for_nodes(2)

        def train(root):
            begin = time.monotonic()
            epochs = c.wait(c.submit(write_job(c, f"{root}:/glyphs", DATA_EXAMPLES, steps, 1)))["epochs"]
            took = time.monotonic() - begin
            return (len(epochs) - 1) * DATA_EXAMPLES / sum(e["seconds"] for e in epochs[1:]), took

        print(f"fetched: the first job from S3 takes {train('data')[1]:.2f} s from its submission", flush=True)
        for _, name in in_turn(rounds, list(roots_by_name)):
            rate, took = train(roots_by_name[name])
            rates[name].append(rate)
            seconds[name].append(took)
    show("the small CNN, 1 worker (aim >= 0.95)", "images/s", rates, digits=0)
    show("from submission to the end", "s", seconds)


def main():
    parts = {"tls": tls, "roots": roots, "s3": s3, "data": data}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", help="the folder of the programs")
    parser.add_argument("parts", nargs="*", default=[], help=", ".join(parts))
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_intermixed_args()
    unknown = [part for part in options.parts if part not in parts]
    if unknown:
        parser.error(f"{unknown[0]}: there are {', '.join(parts)}")
    if os.path.abspath(options.bin) != os.path.abspath(BIN):  # read before the imports, which look for programs there
        parser.error(f"{options.bin}: BIN must come first; the programs would be those of {os.path.abspath(BIN)}")
    for name, part in parts.items():
        if not options.parts or name in options.parts:
            part(options.rounds)


if __name__ == "__main__":
    main()
