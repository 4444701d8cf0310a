#!/usr/bin/python3
"""What central storage saves and costs: peak memory of a worker on models of large dense layers, compared with
multi_worker_mirrored.

    python3 tests/bench/central_storage_bench.py

With multi_worker_mirrored and variables of size V, a worker holds the values, a second buffer that receives the next
ones, and a gradient for each replica. With central_storage it holds the layer being computed and the next one, and the
gradients in flight.
"""

import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../integration"))
from strategies_test import peak_memory  # noqa: E402


def main():
    print(
        f"{'model':28} {'variables':>10} {'strategy':24} {'replicas':>8} "
        f"{'peak above idle':>16} {'of variables':>12} {'seconds':>8}"
    )
    for layers, units in ((6, 2048), (12, 2048), (3, 4096)):
        for replicas in (1, 2):
            peaks = {}
            for strategy in ("MULTI_WORKER_MIRRORED", "CENTRAL_STORAGE"):
                begin = time.monotonic()
                before, peak, variables, _ = peak_memory(strategy, layers, units, 5, replicas)
                peaks[strategy] = peak - before
                print(
                    f"{f'{layers} x dense({units})':28} {variables / 2**20:6.0f} MiB "
                    f"{strategy.lower():24} {replicas:8} "
                    f"{(peak - before) / 2**20:12.0f} MiB {(peak - before) / variables:12.2f} "
                    f"{time.monotonic() - begin:8.1f}",
                    flush=True,
                )
            saved = peaks["MULTI_WORKER_MIRRORED"] - peaks["CENTRAL_STORAGE"]
            print(f"{'':28} saved {saved / 2**20:.0f} MiB, {saved / variables:.2f} of the variables", flush=True)


if __name__ == "__main__":
    main()
