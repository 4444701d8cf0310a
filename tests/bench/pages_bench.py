"""What open pages cost a coordinator that knows many jobs: its memory and CPU time while clients ask for what the
dashboard's first page shows, beside the same while nobody asks; and how long such an answer takes.

    pages_bench.py [--jobs N] [--clients N] [--seconds S]      default: 1,000 jobs, 10 clients once a second, 30 s

The clients have a connection for each request, as browsers have here. Aim: at most 1.2 times the memory.
"""

import argparse
import os
import statistics
import sys
import threading
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import check  # noqa: E402
from dashboard_test import cluster_of_ended_jobs  # noqa: E402

PAGE = "/api/v1/overview?jobs=all&name=&offset=0&limit=50&events=40&warnings=0"
EVERY_S = 1.0


def memory_mb(pid):
    with open(f"/proc/{pid}/status", encoding="utf-8") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("VmRSS:"))


def cpu_s(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watched(pid, seconds):
    """The largest memory in that time, in MB, and the CPU time as a share of one processor."""
    begin, used, largest = time.monotonic(), cpu_s(pid), 0
    while time.monotonic() < begin + seconds:
        largest = max(largest, memory_mb(pid))
        time.sleep(0.1)
    return largest, (cpu_s(pid) - used) / (time.monotonic() - begin)


def look(base, stop, times):
    while not stop.wait(EVERY_S):
        begin = time.monotonic()
        with urllib.request.urlopen(base + PAGE, timeout=60) as answer:
            answer.read()
        times.append(1000 * (time.monotonic() - begin))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=30)
    options = parser.parse_args()
    begin = time.monotonic()
    with cluster_of_ended_jobs(options.jobs) as (c, base):
        print(f"{options.jobs} jobs submitted and cancelled in {time.monotonic() - begin:.1f} s", flush=True)
        pid = c.processes["coordinator"].pid
        alone, idle = watched(pid, options.seconds)
        stop, times = threading.Event(), []
        clients = [threading.Thread(target=look, args=(base, stop, times)) for _ in range(options.clients)]
        for client in clients:
            client.start()
        shown, busy = watched(pid, options.seconds)
        stop.set()
        for client in clients:
            client.join()
    check(times, "no client got an answer")
    for who, memory, share in (("nobody looks", alone, idle), (f"{options.clients} clients look", shown, busy)):
        print(f"{who:16s} {memory:7.1f} MB ({memory / alone:.2f} x), {share:6.1%} of a processor")
    print(f"{len(times)} answers, {statistics.median(times):.1f} ms in the median, {max(times):.1f} ms at most")


if __name__ == "__main__":
    main()
