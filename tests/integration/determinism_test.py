"""Promise 3: the digest of a synchronous job is the same for any number of workers and ps and any partition size.

It also shows that the digest can differ: another seed and another number of replicas give another digest.
"""

from cluster import Cluster, check
from jobs import make_glyphs, small_job


def run(ps, workers, settings=None):
    with Cluster(ps=ps, workers=workers) as c:
        data = make_glyphs(c.dir)
        job = c.submit(small_job(c.dir, data), settings)
        status = c.wait(job)
        check(len(status["digest"]) == 32, f"digest {status['digest']!r}")
        check(len(status["epochs"]) == 2, f"epochs: {status['epochs']}")
        for epoch in status["epochs"]:
            check(int(epoch["train"]["examples"]) == 1800, f"each example once an epoch: {epoch}")
            check(int(epoch["validation"]["examples"]) == 200, f"validation: {epoch}")
        return status["digest"]


def main():
    digests = {
        "1 ps, 1 worker": run(1, 1),
        "3 ps, 2 workers, 4 KiB partitions": run(3, 2, {"partition_bytes": 4096}),
        "1 ps, 4 workers, 1 KiB partitions": run(1, 4, {"partition_bytes": 1024}),
        "2 ps, 3 workers": run(2, 3),
        "mirrored": run(1, 2, {"strategy": "MIRRORED"}),
        "staleness bound 0": run(2, 2, {"strategy": "PARAMETER_SERVER", "staleness_bound": 0}),
    }
    print(digests)
    check(len(set(digests.values())) == 1, f"digests differ: {digests}")
    check(run(1, 2, {"seed": 8}) not in digests.values(), "the seed does not matter")
    check(run(1, 2, {"replicas": 3}) not in digests.values(), "the number of replicas does not matter")


if __name__ == "__main__":
    main()
