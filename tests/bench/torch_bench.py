"""PyTorch models under cairn.torch.Run beside PyTorch alone, on this machine, turn by turn.

    torch_bench.py [speed] [kill] [--models mlp,wide_mlp,lenet,resnet18] [--rounds N] [--quick]

speed: examples/s of one process beside a plain loop, and of two beside DistributedDataParallel over gloo with the same
       batch of 64 in all; one compute thread a process, one ps. Each round measures all four, every other one in the
       reverse order. Medians, and the quotient of each round.
kill:  one of two processes gets kill -9 in the middle: how long the others make no step, and how many steps are made
       again; under Cairn, and under torchrun, which starts all anew. Each round has both.
--quick: few steps, to see that it works.

It prints one line a figure. Nothing is wanted of the figures: what they have to be, docs/performance.md says.
"""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../integration"))

from cluster import BIN, Cluster, check, free_port  # noqa: E402

MODULE = os.path.abspath(os.path.join(BIN, "../python"))
os.environ["PYTHONPATH"] = MODULE
SCRIPT = os.path.join(HERE, "vs_torch/steps.py")
STEPS = {"mlp": 1000, "wide_mlp": 300, "lenet": 200, "resnet18": 6}
KILL_STEPS = 3000
TIMEOUT_S = 900


def begin(*args):
    return subprocess.Popen([sys.executable, SCRIPT, *map(str, args)], stdout=subprocess.PIPE, text=True)


def rates_of(processes):
    """What they print, after they have ended."""
    outputs = [process.communicate(timeout=TIMEOUT_S)[0] for process in processes]
    check(all(process.returncode == 0 for process in processes), f"{outputs}")
    return [float(output) for output in outputs]


def torch_rate(kind, processes):
    if processes == 1:
        return rates_of([begin("plain", kind, STEPS[kind])])[0]
    port = free_port()
    return min(rates_of([begin("ddp", kind, STEPS[kind], rank, processes, port) for rank in range(processes)]))


def start_runs(c, name, kind, steps, processes, epochs):
    for i in range(processes):
        args = ["cairn", kind, steps, c.address, name, processes, epochs]
        c.commands[f"{name}-{i}"] = [sys.executable, SCRIPT, *map(str, args)]
        c.restart(f"{name}-{i}")


def job_of(c, name):
    """Of a Run that has submitted it."""

    def find():
        ended = c.processes[f"{name}-0"].poll()
        check(not ended, f"the first process of {name} ended with {ended}; its log is in {c.dir}")
        return f'"{name}"' in c.cairn("jobs", as_json=True).stdout and c.try_job(name)

    return c.until(find, name, 300)


def cairn_rate(c, name, kind, processes):
    """Of the epochs but the first, in which processes join."""
    start_runs(c, name, kind, STEPS[kind], processes, 3)
    job = str(job_of(c, name)["job_id"])
    status = c.wait(job, timeout=TIMEOUT_S)
    c.until(lambda: all(c.processes[f"{name}-{i}"].poll() is not None for i in range(processes)), "they end", 300)
    seconds = [epoch["seconds"] for epoch in status["epochs"][1:]]
    return STEPS[kind] * 64 / statistics.median(seconds)


def bench_speed(models, rounds):
    with Cluster(ps=1, workers=0) as c:
        for kind in models:
            rates = {}
            for number in range(rounds):
                turns = [
                    (processes, ours, rate)
                    for processes in (1, 2)
                    for ours, rate in (
                        (False, lambda n: torch_rate(kind, n)),
                        (True, lambda n: cairn_rate(c, f"{kind}-{n}-{number}", kind, n)),
                    )
                ]
                for processes, ours, rate in reversed(turns) if number % 2 else turns:
                    rates.setdefault((processes, ours), []).append(rate(processes))
            for processes in (1, 2):
                show_speed(kind, processes, rates[processes, True], rates[processes, False])


def show_speed(kind, processes, ours, theirs):
    quotients = ", ".join(f"{a / b:.2f}" for a, b in zip(ours, theirs))
    beside = "a plain loop" if processes == 1 else "DDP over gloo"
    print(
        f"{kind}, {processes} process(es): {statistics.median(ours):.0f} examples/s, {beside} "
        f"{statistics.median(theirs):.0f}; quotients {quotients}",
        flush=True,
    )


# ---- a kill ----


def longest_pause(times):
    return max((b - a for a, b in zip(times, times[1:])), default=0.0)


def kill_under_cairn():
    """(longest time without a step before the kill, after it), in seconds; no step is made again."""
    sys.path[:0] = [MODULE]
    import cairn

    with Cluster(ps=1, workers=0) as c:
        start_runs(c, "kill", "lenet", KILL_STEPS, 2, 1)
        job_of(c, "kill")
        with cairn.Client(c.address) as client:
            job = client.job("kill")
            seen, killed, at = [], None, -1
            while killed is None or time.monotonic() - killed < 8:
                status = job.status()
                computing = {replica.worker for replica in status.replicas} - {""}
                if status.step != at:
                    at = status.step
                    seen.append(time.monotonic())
                if killed is None and len(computing) == 2 and at > 100:
                    killed = time.monotonic()
                    c.kill("kill-1")
            job.cancel()
        before = [t for t in seen[5:] if t <= killed]
        return longest_pause(before), longest_pause([killed] + [t for t in seen if t > killed])


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [line.split() for line in file if line.endswith("\n")]


def steps_of_second_try(lines):
    tries = [i for i, words in enumerate(lines) if words[1] == "pid"]
    return lines[tries[1] + 1 :] if len(tries) > 1 else []


def kill_under_torchrun():
    """(seconds from the kill to the next step, steps that are made again)."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/steps"
        run = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--max_restarts=3", "--standalone"]
        # PyTorch 1.13 under Python 3.11 fails where output goes nowhere else.
        run += ["--redirects=1", "--tee=1", f"--log_dir={folder}/logs"]
        script = [SCRIPT, "elastic", "lenet", str(KILL_STEPS), path]
        process = subprocess.Popen(
            [*run, *script], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        try:
            end = time.monotonic() + 300

            def until(condition):
                while not (value := condition()):
                    check(process.poll() is None and time.monotonic() < end, "torchrun has ended, or makes no steps")
                    time.sleep(0.02)
                return value

            until(lambda: len(lines_of(f"{path}-1")) > 100)
            victim = int(lines_of(f"{path}-1")[0][2])
            made = int(lines_of(f"{path}-0")[-1][1])
            killed = time.time()
            os.kill(victim, signal.SIGKILL)
            again = until(lambda: steps_of_second_try(lines_of(f"{path}-0")))
            return float(again[0][0]) - killed, made + 1 - int(again[0][1])
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait(timeout=60)


def bench_kill(rounds):
    for _ in range(rounds):
        before, after = kill_under_cairn()
        print(
            f"Cairn: longest time without a step {before:.2f} s before the kill, {after:.2f} s after it; "
            "0 steps made again",
            flush=True,
        )
        seconds, steps = kill_under_torchrun()
        print(f"torchrun: {seconds:.2f} s from the kill to the next step; {steps} steps made again", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("parts", nargs="*", default=["speed", "kill"])
    parser.add_argument("--models", default=",".join(STEPS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    flags = parser.parse_args()
    for part in flags.parts:
        if part not in ("speed", "kill"):
            parser.error(f'"{part}" is not one of speed, kill')
    models = flags.models.split(",")
    for kind in models:
        if kind not in STEPS:
            parser.error(f'"{kind}" is not one of {", ".join(STEPS)}')
    if flags.rounds < 1:
        parser.error("--rounds: give 1 or more")
    if flags.quick:
        STEPS.update({kind: max(2, steps // 20) for kind, steps in STEPS.items()})
    if "speed" in flags.parts:
        bench_speed(models, flags.rounds)
    if "kill" in flags.parts:
        bench_kill(flags.rounds)


if __name__ == "__main__":
    main()
