"""mix_up and cut_mix in real clusters: the digest does not depend on partitions, ps and workers, with gradient
accumulation and other augmentation before them, nor on a resumed job; evaluation sees unmixed labels; what cannot be
mixed is refused.
"""

from cluster import Cluster, check
from gradients_test import matrix, resumed
from jobs import make_glyphs, small_job

MIX_UP = {"data.augmentation[..].mix_up.alpha": 0.4}
CUT_MIX = {"data.augmentation[..].cut_mix.factor": 1}
BOTH = {
    "data.augmentation[..].random_flip.mode": "HORIZONTAL",
    "data.augmentation[..].mix_up.alpha": 0.2,
    "data.augmentation[..].cut_mix.factor": 0.5,
    "accumulate_steps": 2,
}


def learns():
    with Cluster(ps=1, workers=1) as c:
        status = c.wait(c.submit(small_job(c.dir, make_glyphs(c.dir), 8), MIX_UP))
        last = status["epochs"][-1]
        train, validation = last["train"], last["validation"]
        check(validation["accuracy"] > 0.5, f"val_accuracy {validation}")
        check(train["loss"] > validation["loss"], f"mixed labels cost more: {train['loss']}, {validation['loss']}")


def refused():
    with Cluster(ps=1, workers=1) as c:
        job = small_job(c.dir, make_glyphs(c.dir))
        flags = ("--set", "data.augmentation[..].mix_up.alpha=0.2", "--set", "loss.kind=HINGE")
        text = c.cairn("submit", job, *flags, ok=False).stderr
        check("mix_up averages labels, which HINGE does not take" in text, text)


def main():
    digests = [matrix({}), matrix(MIX_UP), matrix(CUT_MIX), matrix(BOTH)]
    check(len(set(digests)) == len(digests), f"some do not matter: {digests}")
    resumed(BOTH)
    learns()
    refused()


if __name__ == "__main__":
    main()
