"""The further strategies: central storage has the digest of multi_worker_mirrored, even if a worker and a ps are
killed; groups of replicas that push as one are counted exactly once; staleness is measured and obeys its bound;
validations within epochs do not depend on the workers; an evaluator follows the checkpoints."""

import os

from cluster import Cluster, attempts, check
from jobs import make_glyphs, small_job, undisturbed


def figures(status):
    return [(e["train"]["loss"], e["validation"]["loss"]) for e in status["epochs"]]


def central_storage():
    results = {}
    with Cluster(ps=2, workers=2, slots=2) as c:
        data = make_glyphs(c.dir)
        for name, settings in {
            "multi_worker_mirrored": {},
            "mirrored": {"strategy": "MIRRORED"},
            "central_storage": {"strategy": "CENTRAL_STORAGE"},
            "central_storage, 4 KiB partitions": {"strategy": "CENTRAL_STORAGE", "partition_bytes": 4096},
        }.items():
            status = c.wait(c.submit(small_job(c.dir, data), settings))
            results[name] = (status["digest"], figures(status))
    print(results, flush=True)
    check(len({digest for digest, _ in results.values()}) == 1, f"digests differ: {results}")
    check(len({str(f) for _, f in results.values()}) == 1, f"figures differ: {results}")
    with Cluster(ps=2, workers=2) as c:
        data = make_glyphs(c.dir)
        for settings in ({"optimizer.global_clipnorm": 0.5}, {"optimizer.clipnorm": 0.1, "accumulate_steps": 2}):
            both = [
                c.wait(c.submit(small_job(c.dir, data), {**settings, "strategy": strategy, "partition_bytes": 4096}))[
                    "digest"
                ]
                for strategy in ("MULTI_WORKER_MIRRORED", "CENTRAL_STORAGE")
            ]
            check(both[0] == both[1] and both[0] not in str(results), f"{settings}: {both}")

    def with_kills(settings, epochs):
        with Cluster(ps=2, workers=2) as c:
            central = {"strategy": "CENTRAL_STORAGE", "partition_bytes": 4096, "backups": 1}
            job = c.submit(small_job(c.dir, make_glyphs(c.dir), epochs), {**central, **settings})
            c.wait_for_step(job, 20)
            c.kill("worker-0")
            c.add_worker("worker-2")
            c.wait_for_step(job, 60)
            c.while_running(
                job,
                lambda s: all(b.get("in_sync") for p in s["partitions"] for b in p["backups"]),
                "backups are in sync",
            )
            c.kill("ps-0")
            c.wait_for_step(job, 90)
            c.restart("ps-0")
            killed = c.wait(job)["digest"]
            plain = undisturbed(epochs, **settings)
            check(killed == plain, f"{settings}: with kills {killed}, multi_worker_mirrored {plain}")

    for settings in ({}, {"optimizer.global_clipnorm": 0.5}):
        attempts(lambda times: with_kills(settings, 8 * times))


BIG_DENSE = """
name: "big"
model {
  layers { input { shape: [28, 28, 1] } }
  layers { rescaling { scale: 0.003921569 } }
  layers { flatten { } }
%(dense)s
  layers { dense { units: 10 activation: SOFTMAX } }
}
data { path: "%(data)s" }
loss { kind: SPARSE_CATEGORICAL_CROSSENTROPY }
optimizer { sgd { } }
batch_size: 16
steps_per_epoch: %(steps)d
"""


def peak_memory(strategy, layers, units, steps, replicas=1):
    """For a worker that computes all replicas of a model of large dense layers: (bytes before the job, peak bytes,
    bytes of variables, digest)."""
    with Cluster(ps=1, workers=1) as c:
        data = make_glyphs(c.dir, count=400, test_count=10)
        path = f"{c.dir}/big.textproto"
        with open(path, "w") as f:
            f.write(
                BIG_DENSE
                % {
                    "data": data,
                    "steps": steps,
                    "dense": f"  layers {{ dense {{ units: {units} activation: RELU }} }}\n" * layers,
                }
            )

        def status(field):
            with open(f"/proc/{c.processes['worker-0'].pid}/status") as f:
                return next(int(line.split()[1]) * 1024 for line in f if line.startswith(field))

        before = status("VmRSS")
        job = c.wait(c.submit(path, {"strategy": strategy, "replicas": replicas, "durability": "SNAPSHOT"}))
        return before, status("VmHWM"), int(job["parameters"]) * 4, job["digest"]


def memory():
    before, mirrored, variables, digest = peak_memory("MULTI_WORKER_MIRRORED", 6, 2048, 5)
    idle, central, _, same = peak_memory("CENTRAL_STORAGE", 6, 2048, 5)
    print(
        f"variables {variables / 2**20:.0f} MiB; peak above an idle worker: "
        f"multi_worker_mirrored {(mirrored - before) / 2**20:.0f} MiB, "
        f"central_storage {(central - idle) / 2**20:.0f} MiB",
        flush=True,
    )
    check(digest == same, f"digests: {digest}, {same}")
    check(central - idle + variables <= mirrored - before, "central storage does not save the memory of the variables")


def parameter_server():
    def run(settings, disturb=False, epochs=6):
        with Cluster(ps=2, workers=2, slots=2) as c:
            data = make_glyphs(c.dir)
            job = c.submit(
                small_job(c.dir, data, epochs), {"strategy": "PARAMETER_SERVER", "partition_bytes": 4096, **settings}
            )
            if disturb:
                c.wait_for_step(job, 30)
                for r in range(0, 4, 2):
                    placed = c.job(job)["replicas"]
                    check(placed[r]["worker"] == placed[r + 1]["worker"], f"the group is split: {placed}")
                c.kill("worker-0")
            status = c.wait(job)
            if not disturb:
                check(
                    all(int(e["train"]["examples"]) == 1800 for e in status["epochs"]),
                    f"each example once an epoch: {status['epochs']}",
                )
            result = c.evaluate(job)
            units = 4 // settings.get("local_sync", 1)
            check(
                int(result["version"]) == epochs * 30 * units,
                f"updates applied: {result['version']}, pushed: {epochs * 30 * units}",
            )
            check(result["accuracy"] >= 0.8, f"{settings}: {result}")
            stale = [(e.get("staleness_mean", 0), int(e.get("staleness_max", 0))) for e in status["epochs"]]
            print(settings, disturb, result["accuracy"], stale, flush=True)
            shown = "(at most " in c.cairn("job", job).stdout
            check(
                shown == any(most > 0 for _, most in stale), f"`cairn job` shows the staleness of its epochs: {shown}"
            )
            return units, stale

    units, stale = run({})
    # Replicas that were computing count every update as missed, except for their own.
    check(any(mean > 0 for mean, _ in stale) and all(0 <= mean <= most for mean, most in stale), f"staleness: {stale}")
    for bound in (1, 2):
        units, stale = run({"staleness_bound": bound})
        # A replica reads only if no other is more than `bound` steps behind. So no replica gets more than bound + 1
        # steps ahead until its push arrives, and one more until the push is answered.
        most = (units - 1) * (2 * bound + 2)
        check(all(m <= most for _, m in stale), f"bound {bound}: {stale}, more than {most}")
    run({"local_sync": 2})
    run({"local_sync": 4})
    attempts(lambda times: run({"local_sync": 2, "backups": 0}, disturb=True, epochs=6 * times))


def steps_of(checkpoints):
    return sorted(int(d[5:]) for d in os.listdir(checkpoints) if d.startswith("step-"))


def resumed():
    """Resumes from checkpoints of both kinds: central storage ends with the same bits, groups with each update applied
    once."""
    with Cluster(ps=2, workers=2, slots=2) as c:
        data = make_glyphs(c.dir)
        job_file = small_job(c.dir, data)
        rule = {"checkpoints.every_steps": 20, "checkpoints.keep_max": 10, "partition_bytes": 4096}
        central = {"strategy": "CENTRAL_STORAGE", **rule}
        whole = c.wait(c.submit(job_file, {**central, "checkpoints.dir": f"{c.dir}/central"}))
        after = c.wait(
            c.submit(
                job_file, {**central, "checkpoints.dir": f"{c.dir}/central2", "resume_from": f"{c.dir}/central/step-20"}
            )
        )
        check(
            int(after["restored_step"]) == 20 and after["digest"] == whole["digest"],
            f"{after['digest']}, {whole['digest']}",
        )
        # The second one is of step 40, or of a later one if writing the first took that long.
        later = steps_of(f"{c.dir}/central")[1]
        mirrored = c.wait(c.submit(job_file, {"partition_bytes": 4096, "resume_from": f"{c.dir}/central/step-{later}"}))
        check(mirrored["digest"] == whole["digest"], "a checkpoint of central_storage is one of multi_worker_mirrored")

        groups = {"strategy": "PARAMETER_SERVER", "local_sync": 2, **rule}
        c.wait(c.submit(job_file, {**groups, "checkpoints.dir": f"{c.dir}/groups"}))
        half = steps_of(f"{c.dir}/groups")[0]
        job = c.submit(
            job_file, {**groups, "checkpoints.dir": f"{c.dir}/groups2", "resume_from": f"{c.dir}/groups/step-{half}"}
        )
        check(0 < int(c.wait(job)["restored_step"]) < 60, half)
        result = c.evaluate(job)
        check(int(result["version"]) == 60 * 2 and result["accuracy"] >= 0.7, f"two groups, each step once: {result}")


def validation_by_steps():
    seen = []
    for workers in (1, 2):
        with Cluster(ps=1, workers=workers) as c:
            data = make_glyphs(c.dir)
            status = c.wait(c.submit(small_job(c.dir, data), {"validation_freq_steps": 7}))
            steps = [int(v["step"]) for v in status["validations"]]
            check(steps == list(range(7, 61, 7)), steps)
            check(all(int(v["sums"]["examples"]) == 200 for v in status["validations"]), status["validations"])
            seen.append([(v["sums"]["loss"], v["sums"]["accuracy"]) for v in status["validations"]])
    check(seen[0] == seen[1], f"1 worker: {seen[0]}\n2 workers: {seen[1]}")


def evaluator():
    with Cluster(ps=1, workers=1) as c:
        data = make_glyphs(c.dir)
        job_file = small_job(c.dir, data, epochs=3)
        settings = {
            "checkpoints.dir": f"{c.dir}/run",
            "checkpoints.every_epochs": 1,
            "checkpoints.keep_max": 10,
            "validation_by": "BY_EVALUATOR",
        }
        job = c.submit(job_file, settings)
        status = c.wait(job)
        check(not status.get("validations"), "nobody is there to evaluate")
        c.commands["evaluator-0"] = [
            "cairn-worker",
            "--role",
            "evaluator",
            "--coordinator",
            c.address,
            "--name",
            "evaluator-0",
        ]
        c.restart("evaluator-0")
        written = steps_of(f"{c.dir}/run")  # 30, 90, and 60 or a later one if writing the first took that long
        check(written[0] == 30 and written[-1] == 90, written)
        whole = c.until(
            lambda: (s := c.job(job)) and len(s.get("validations", [])) == len(written) and s,
            "the checkpoints are evaluated",
        )
        check([int(v["step"]) for v in whole["validations"]] == written, whole["validations"])
        last = whole["validations"][-1]
        said = c.evaluate(job, "validation")
        check(last["sums"]["loss"] == said["loss"] and last["checkpoint"] == f"{c.dir}/run/step-90", f"{last} {said}")
        check(
            all(int(e["validation"].get("examples", 0)) == 0 for e in whole["epochs"]), "the replicas evaluate nothing"
        )
        roles = {n["name"]: (n["role"], int(n.get("slots_used", 0))) for n in c.nodes()}
        check(roles["evaluator-0"] == ("EVALUATOR", 0), roles)
        # During the training.
        second = c.submit(job_file, {**settings, "checkpoints.dir": f"{c.dir}/run2"})
        c.wait(second)
        written = steps_of(f"{c.dir}/run2")
        c.until(
            lambda: len(c.job(second).get("validations", [])) == len(written),
            "the checkpoints of the second job are evaluated",
        )
        first = {
            v["step"]: {**v, "checkpoint": v["checkpoint"].replace("/run/", "/run2/")} for v in whole["validations"]
        }
        both = [v for v in c.job(second)["validations"] if v["step"] in first]
        check(
            len(both) >= 2 and both == [first[v["step"]] for v in both],
            f"the same weights, the same figures: {both}, {first}",
        )
        done = c.cairn("submit", job_file, "--set", "validation_by=BY_EVALUATOR", ok=False)
        check(
            done.returncode == 2
            and done.stderr == "cairn: validation_by: BY_EVALUATOR evaluates checkpoints, but the job writes none; "
            "set checkpoints.dir\n",
            done.stderr,
        )


def main():
    for name, part in (
        ("central_storage", central_storage),
        ("memory", memory),
        ("parameter_server", parameter_server),
        ("resumed", resumed),
        ("validation_by_steps", validation_by_steps),
        ("evaluator", evaluator),
    ):
        if os.environ.get("CAIRN_TEST_PART", name) == name:
            print(f"---- {name} ----", flush=True)
            part()


if __name__ == "__main__":
    main()
