"""What must hold on a machine with a GPU; run.sh finds the libraries and calls this. One table at the end; exit 1 if a
row says FAILED.

    checks.py [--list] [--minutes N] [CHECK|correct|fast]...

correct, fast: what is computed, how fast; each fits into nine minutes of an H100 by estimate. What failed stands above
the table, which is printed whatever fails, also when this is told to stop (TERM) and after N minutes: of a check that
was under way then the row says how far it came, the others were not run. Checks come in the order of --list. Programs
come from $CAIRN_BIN. Comparisons are made in one sitting, one after the other.
$OUT: a folder for checks.log, all that programs printed, and table.md.
CAIRN_DRY=1 (run.sh --dry-run): the same on small sizes, for a machine without a GPU: it shows that the pieces fit, not
what they compute.
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

# In the order of what is learned by a minute.
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
    """state and text of a check's row."""
    try:
        return "passed", c()
    except Skip as why:
        return "skipped", str(why)
    except OutOfTime as why:
        return "not whole", str(why)
    except Exception as why:  # a row of the table, whatever it was
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
