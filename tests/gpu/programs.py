"""Runs the programs of the checks. Their output is kept in $OUT/checks.log, none runs beyond the time limit, and a test
program that crashes or makes the device unusable for its process does not affect the results of its other tests."""

import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.environ["CAIRN_BIN"] if "CAIRN_BIN" in os.environ else os.path.join(HERE, "../../build/release/bin")
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import TestFailure, check  # noqa: E402

NO_GPU = "no GPU"
DRY = os.environ.get("CAIRN_DRY") == "1"

# For the output of one program in checks.log.
KEPT_BYTES = 1 << 20
RESTARTS_MAX = 6
FAILURES_SHOWN = 5
# After one of these errors a process cannot use the device any more.
STICKY = re.compile(
    r"cudaError(IllegalAddress|LaunchFailure|MisalignedAddress|IllegalInstruction|InvalidAddressSpace"
    r"|InvalidPc|LaunchTimeout|HardwareStackError"
    r"|Assert|ECCUncorrectable|Unknown)\b|CUDA error (7\d\d|214|999)\b|cuda\w+\(.*\n +Which is: (7\d\d|214|999)\n"
)
# Environment variables that make the programs and NVIDIA's libraries log.
TALKATIVE = {
    "CAIRN_LOG_LEVEL": "debug",
    "CUDNN_LOGLEVEL_DBG": "2",
    "CUDNN_LOGDEST_DBG": "stdout",
    "CUBLASLT_LOG_LEVEL": "2",
}


class Skip(Exception):
    pass


class OutOfTime(Exception):
    """The time ended in the middle of a check. passed: how many of its tests had passed."""

    def __init__(self, passed):
        super().__init__(f"{passed} tests passed, none failed until the time was over")
        self.passed = passed


class Deadline:
    """The time at which everything must be finished."""

    def __init__(self):
        self.end = None

    def set(self, minutes):
        self.end = time.monotonic() + 60 * minutes

    def within(self, seconds):
        """The given number of seconds, or the remaining time if that is less."""
        return seconds if self.end is None else max(1, min(seconds, self.end - time.monotonic()))

    def over(self):
        return self.end is not None and time.monotonic() >= self.end


DEADLINE = Deadline()


def program(name):
    path = os.path.join(BIN, name)
    if not os.path.exists(path):
        raise Skip(f"{name} was not built")
    return path


def gpu_name():
    if shutil.which("nvidia-smi") is None:
        return NO_GPU
    done = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    )
    return done.stdout.splitlines()[0] if done.returncode == 0 and done.stdout else NO_GPU


def without_gpu(reason):
    """A program that finds no device counts as skipped only if there is none."""
    return Skip(reason) if gpu_name() == NO_GPU else TestFailure(f"there is a GPU, but: {reason}")


def keep(text):
    """Stores the output of a program in $OUT."""
    if os.environ.get("OUT"):
        with open(os.path.join(os.environ["OUT"], "checks.log"), "a") as log:
            log.write(
                text if len(text) < KEPT_BYTES else text[: KEPT_BYTES // 2] + "\n[...]\n" + text[-KEPT_BYTES // 2 :]
            )


def output_of(argv, timeout, environment=None):
    """Returns (the whole output, exit code). None: the time ended. Negative: ended by that signal."""
    begin = time.monotonic()
    try:
        done = subprocess.run(
            argv,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=DEADLINE.within(timeout),
            env={**os.environ, **(environment or {})},
        )
        text, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as late:
        text, code = late.stdout or "", None
        if isinstance(text, bytes):  # `text` does not ensure a string here
            text = text.decode(errors="replace")
    keep(f"==== {' '.join(argv)[:300]}: exit {code} after {time.monotonic() - begin:.1f} s\n{text}\n")
    return text, code


def run(argv, timeout=1800, environment=None):
    """Returns the output of a program that must succeed; exit code 77 means skipped."""
    text, code = output_of(argv, timeout, environment)
    if code == 77:
        raise without_gpu(text.strip().splitlines()[-1] if text.strip() else "no reason given")
    if code is None and DEADLINE.over():
        raise OutOfTime(0)
    if code != 0:
        print(text[-8000:])
        raise TestFailure(
            f"{os.path.basename(argv[0])}: "
            f"{'did not end within its time' if code is None else f'exit {code}'}: {last_line(text)}"
        )
    return text


def last_line(text):
    return (text.strip().splitlines() or ["it printed nothing"])[-1][:200]


# ---- test programs ----


def names_of(argv, wanted):
    """The names of a program's tests that match the filter."""
    names, suite = [], ""
    for line in run([*argv, "--gtest_list_tests", f"--gtest_filter={wanted}"]).splitlines():
        if re.match(r"\S+\.(\s|$)", line):
            suite = line.split()[0]
        elif line.startswith("  "):
            names.append(suite + line.split()[0])
    return names


class Outcome:
    """The outcome of a program's tests."""

    def __init__(self):
        self.passed, self.failed, self.skipped, self.text, self.late = set(), [], "", "", False

    def add(self, other):
        self.passed |= other.passed
        self.failed += other.failed
        self.skipped = self.skipped or other.skipped
        self.text += other.text
        self.late = self.late or other.late


def run_tests(argv, names, environment=None):
    """Runs tests. After one that crashed its process or made the device unusable for it, the others run in a new
    process."""
    outcome, left = Outcome(), list(names)
    for _ in range(RESTARTS_MAX):
        text, code = output_of([*argv, "--gtest_filter=" + ":".join(left)], 1800, environment)
        ended = {
            state: re.findall(rf"^\[{state}\] ([\w./]+).*\(\d+ ms\)$", text, re.M)
            for state in ("       OK ", "  FAILED  ", "  SKIPPED ")
        }
        failed = ended["  FAILED  "]
        outcome.passed |= set(ended["       OK "])
        outcome.text += text
        if ended["  SKIPPED "]:
            outcome.skipped = next(
                (after for line, after in zip(text.splitlines(), text.splitlines()[1:]) if line.endswith(": Skipped")),
                "skipped",
            )
        begun = re.findall(r"^\[ RUN      \] (\S+)", text, re.M)
        under_way = [name for name in begun[-1:] if not any(name in names for names in ended.values())]
        if code is None:
            outcome.late, outcome.failed = True, outcome.failed + failed
            break
        if code in (0, 1, 9) and not under_way:  # 9: exit code of compute-sanitizer
            if not failed or not STICKY.search(text):
                outcome.failed += failed or (["no test"] if code != 0 else [])
                break
            outcome.failed.append(failed[0])  # the others may have failed because of it
            left = [name for name in left if name not in outcome.passed and name != failed[0]]
        else:
            outcome.failed += failed + (under_way or [f"exit {code}"])
            left = [name for name in left if name not in begun] if under_way else []
        if not left:
            break
    return outcome


def explain(argv, outcome, environment=None):
    """Prints the output of the first failed tests, and of each run alone, with the libraries' logs."""
    for name in outcome.failed[:FAILURES_SHOWN]:
        begin = outcome.text.find(f"[ RUN      ] {name}\n")
        block = outcome.text[begin : outcome.text.find("\n[ RUN", begin + 1)] if begin >= 0 else outcome.text[-2000:]
        print(block[:3000])
    for name in outcome.failed[:2]:
        if DEADLINE.over() or " " in name:
            return
        text, code = output_of([*argv, f"--gtest_filter={name}"], 60, {**(environment or {}), **TALKATIVE})
        print(
            f"---- {name} alone: exit {code}\n{text[:3000]}{'[...]' if len(text) > 6000 else ''}\n"
            f"{text[-3000:] if len(text) > 3000 else ''}"
        )


def gtest(argv, wanted="*", shards=1, environment=None):
    """Checks that all tests that match the filter pass, in this many processes."""
    names = names_of(argv, wanted)
    check(names, f"{os.path.basename(argv[-1])} has no tests {wanted}")
    outcome = Outcome()
    with concurrent.futures.ThreadPoolExecutor(shards) as pool:
        for part in pool.map(lambda i: run_tests(argv, names[i::shards], environment), range(min(shards, len(names)))):
            outcome.add(part)
    if outcome.failed:
        explain(argv, outcome, environment)
        raise TestFailure(
            f"{len(outcome.failed)} of {len(names)} tests failed, {len(outcome.passed)} passed: "
            f"{', '.join(outcome.failed[:4])}"
        )
    if outcome.late:
        check(DEADLINE.over(), f"{os.path.basename(argv[-1])} did not end within its time")
        raise OutOfTime(len(outcome.passed))
    if not outcome.passed:
        raise without_gpu(outcome.skipped or "no test ran")
    return f"{len(outcome.passed)} tests"
