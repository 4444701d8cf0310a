"""The example jobs reach the accuracy that their READMEs promise, on the real data sets, with 2 ps and 2 workers.

Skipped without those data sets (CAIRN_DATA, or ../shared/data).
"""

import os
import sys

from cluster import SOURCE, Cluster, check, data_dir

ASYNC = {"strategy": "PARAMETER_SERVER"}
CASES = (  # example, data, settings, minimum test accuracy
    ("digits_mlp", "digits", {}, 0.95),
    ("beans", "beans", {}, 0.75),
    ("fashion_mnist", "fashion-mnist", {}, 0.90),
    ("fashion_mnist", "fashion-mnist", ASYNC, 0.89),
)


def main():
    data = data_dir()
    if data is None:
        print("SKIPPED: no data sets (set CAIRN_DATA)")
        sys.exit(77)
    failed = []
    with Cluster(ps=2, workers=2) as c:
        for example, folder, settings, least in CASES:
            job = c.submit(
                os.path.join(SOURCE, "examples", example, "job.textproto"),
                {"data.path": os.path.join(data, folder), **settings},
            )
            status = c.wait(job, timeout=3600)
            accuracy = c.evaluate(job)["accuracy"]
            seconds = sum(e["seconds"] for e in status["epochs"])
            kind = "asynchronous" if settings else "synchronous"
            print(
                f"{example:14s} {kind:12s} {len(status['epochs'])} epochs in {seconds:5.1f} s: test accuracy "
                f"{accuracy:.4f}, wanted {least}",
                flush=True,
            )
            if accuracy < least:
                failed.append(example)
    check(not failed, f"not accurate enough: {failed}")


if __name__ == "__main__":
    main()
