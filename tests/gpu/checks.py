"""What must hold on a machine with a GPU; run.sh finds the libraries and calls this. Prints one table at the end; exit
code 1 if a row says FAILED.

    checks.py [--list] [--minutes N] [CHECK|correct|fast]...

correct, fast: what is computed, and how fast; each should fit into nine minutes on an H100. Failures are printed above
the table. The table is always printed, also after a TERM signal and after N minutes. The row of a check that was
interrupted says how far it came; later ones are marked as not run. Checks run in the order of --list. Programs are in
$CAIRN_BIN. The sides of a comparison run one after the other in the same session.
$OUT: a folder for checks.log, with the output of all programs, and table.md.
CAIRN_DRY=1 (run.sh --dry-run): the same with small sizes, for a machine without a GPU. It shows that the parts fit
together, not what they compute.
"""

import os
import signal
import sys
import time

from checks_correct import (
    accuracy,
    autotune,
    digests,
    fallback,
    fashion_mnist,
    float16,
    kernels,
    layers,
    placement,
    several_gpus,
    smoke,
    sums,
)
from checks_fast import resnet50_bfloat16, resnet50_float32, resnet50_tf32, roofline, sanitizer, small_cnn
from programs import DEADLINE, DRY, OutOfTime, Skip, gpu_name, keep

# The most informative checks per minute come first.
CORRECT = [
    smoke,
    kernels,
    fallback,
    digests,
    placement,
    sums,
    autotune,
    float16,
    several_gpus,
    accuracy,
    fashion_mnist,
    layers,
]
FAST = [small_cnn, resnet50_bfloat16, resnet50_tf32, roofline, sanitizer, resnet50_float32]
CHECKS = [*CORRECT, *FAST]


class Stopped(BaseException):
    pass


def stop(number, _):
    raise Stopped(f"signal {number}")


def outcome(c):
    """Returns the state and text of a check's row."""
    try:
        return "passed", c()
    except Skip as why:
        return "skipped", str(why)
    except OutOfTime as why:
        return "not whole", str(why)
    except Exception as why:  # an error of any type becomes a row of the table
        return "FAILED", f"{type(why).__name__}: {why}".replace("\n", " ")[:300]


def main():
    wanted = sys.argv[1:]
    if wanted == ["--list"]:
        for c in CHECKS:
            print(f"{c.__name__:20} {' '.join(c.__doc__.split())}")
        return 0
    if wanted[:1] == ["--minutes"]:
        try:
            DEADLINE.set(float(wanted[1]))
        except (IndexError, ValueError):
            print("--minutes: a number of minutes, then the checks", file=sys.stderr)
            return 2
        wanted = wanted[2:]
    for group, checks in (("correct", CORRECT), ("fast", [smoke, *FAST])):
        if group in wanted:
            wanted = [c for c in wanted if c != group] + [c.__name__ for c in checks]
    unknown = set(wanted) - {c.__name__ for c in CHECKS}
    if unknown:
        print(f"no such check: {', '.join(sorted(unknown))}; --list names them", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, stop)
    rows = []
    stopped = False
    for c in CHECKS:
        if wanted and c.__name__ not in wanted:
            continue
        begin = time.monotonic()
        keep(f"######## {c.__name__}\n")
        try:
            result = ("not run", "no time left") if stopped or DEADLINE.over() else outcome(c)
        except (Stopped, KeyboardInterrupt) as why:
            stopped, result = True, ("FAILED", f"stopped: {why}")
        rows.append((c.__name__, *result, time.monotonic() - begin))
        print(f"{c.__name__}: {result[0]}: {result[1]} ({rows[-1][3]:.0f} s)", flush=True)
    table = [
        f"{gpu_name()}, {time.strftime('%Y-%m-%d')}{', dry run' if DRY else ''}",
        "",
        "| check | | result | s |",
        "|---|---|---|---|",
    ]
    table += [f"| {name} | {state} | {text} | {seconds:.0f} |" for name, state, text, seconds in rows]
    print("\n" + "\n".join(table))
    if os.environ.get("OUT"):
        with open(os.path.join(os.environ["OUT"], "table.md"), "w") as f:
            f.write("\n".join(table) + "\n")
    return 1 if stopped or any(state == "FAILED" for _, state, _, _ in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
