"""Forward and backward of layers and models by Cairn's oneDNN backend beside PyTorch, one thread, alternating rounds.

    layers.py PATH/TO/bench_step [NAME...] [--rounds N]

NAME: lstm, gru, simple_rnn (128 units on 64 steps of 128 features), separable (four blocks of a depthwise and a 1 x 1
convolution on 56 x 56 x 64), attention (layer normalization and attention of ViT-Tiny, 197 x 192), conv3d (two of 32
filters on 16 x 32 x 32 x 16), efficientnet_b0 (128 x 128), vit_tiny, resnet18, resnet50, mobilenet_v2 (224 x 224; by
torchvision). Pictures are measured under PyTorch in both layouts, and the faster one counts.
"""

import argparse
import os
import statistics
import subprocess
import tempfile
import time

# Before PyTorch is loaded: OpenBLAS, which computes its products of matrices, does not ask torch.set_num_threads.
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import torch  # noqa: E402

nn = torch.nn
DENSE = "layers { dense { units: 10 activation: SOFTMAX } }"


def shape_text(*sizes):
    return "layers { input { shape: [" + ", ".join(map(str, sizes)) + "] } } "


class LastStep(nn.Module):
    def __init__(self, cell):
        super().__init__()
        self.cell, self.head = cell, nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class Attention(nn.Module):
    """x + attention(normalization(x)), the mean over the tokens, a dense layer."""

    def __init__(self):
        super().__init__()
        self.norm, self.head = nn.LayerNorm(192, eps=1e-6), nn.Linear(192, 10)
        self.attention = nn.MultiheadAttention(192, 3, batch_first=True)

    def forward(self, x):
        y = self.norm(x)
        return self.head((x + self.attention(y, y, y, need_weights=False)[0]).mean(1))


def recurrent(layer, cell):
    return {
        "model": shape_text(64, 128) + "layers { " + layer + " { units: 128 } } " + DENSE,
        "torch": lambda: LastStep(cell(128, 128, batch_first=True)),
        "input": (32, 64, 128),
    }


def separable():
    block = (
        "layers { depthwise_conv2d { kernel_size: 3 padding: SAME use_bias: false } } "
        "layers { batch_normalization { } } layers { activation { activation: RELU } } "
        "layers { conv2d { filters: 64 kernel_size: 1 use_bias: false } } "
        "layers { batch_normalization { } } layers { activation { activation: RELU } } "
    )

    def torch_block():
        return [nn.Conv2d(64, 64, 3, padding=1, groups=64, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                nn.Conv2d(64, 64, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()]  # fmt: skip

    def make():
        blocks = [module for _ in range(4) for module in torch_block()]
        return nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))

    text = shape_text(56, 56, 64) + 4 * block + "layers { global_average_pooling2d { } } " + DENSE
    return {"model": text, "torch": make, "input": (8, 64, 56, 56)}


def attention():
    text = (
        shape_text(197, 192)
        + 'layers { name: "norm" layer_normalization { epsilon: 1e-6 } } '
        + 'layers { name: "attention" inputs: ["norm", "norm"] multi_head_attention { num_heads: 3 key_dim: 64 } } '
        + 'layers { inputs: ["input", "attention"] add { } } layers { global_average_pooling1d { } } '
    )
    return {"model": text.replace("layers { input", 'layers { name: "input" input', 1) + DENSE, "torch": Attention,
            "input": (8, 197, 192)}  # fmt: skip


def conv3d():
    layer = "layers { conv3d { filters: 32 kernel_size: 3 padding: SAME activation: RELU } } "

    def make():
        return nn.Sequential(nn.Conv3d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv3d(32, 32, 3, padding=1), nn.ReLU(),
                             nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(32, 10))  # fmt: skip

    text = shape_text(16, 32, 32, 16) + 2 * layer + "layers { global_average_pooling3d { } } " + DENSE
    return {"model": text, "torch": make, "input": (4, 16, 16, 32, 32)}


def whole(name, side, make=None):
    def by_torchvision():
        import torchvision

        return getattr(torchvision.models, name)()

    text = f'ready_made {{ name: "{name}" input_shape: [{side}, {side}, 3] classes: 1000 }}'
    return {"model": text, "torch": make or by_torchvision, "input": (8, 3, side, side), "classes": 1000, "count": 2}


def vit_tiny():
    import torchvision

    return torchvision.models.VisionTransformer(224, 16, 12, 3, 192, 768)


CASES = {
    "lstm": recurrent("lstm", nn.LSTM),
    "gru": recurrent("gru", nn.GRU),
    "simple_rnn": recurrent("simple_rnn", nn.RNN),
    "separable": separable(),
    "attention": attention(),
    "conv3d": conv3d(),
    "efficientnet_b0": whole("efficientnet_b0", 128),
    "vit_tiny": whole("vit_tiny", 224, vit_tiny),
    "resnet18": whole("resnet18", 224),
    "resnet50": whole("resnet50", 224),
    "mobilenet_v2": whole("mobilenet_v2", 224),
}


def torch_steps(case):
    """A function for each layout that makes a step."""
    formats = [torch.contiguous_format]
    if len(case["input"]) == 4:
        formats.append(torch.channels_last)
    elif len(case["input"]) == 5:
        formats.append(torch.channels_last_3d)

    def step_in(memory_format):
        model = case["torch"]().to(memory_format=memory_format).train()
        x = (torch.rand(*case["input"]) * 2 - 1).contiguous(memory_format=memory_format)
        labels = torch.randint(0, case.get("classes", 10), case["input"][:1])
        loss = nn.CrossEntropyLoss()

        def step():
            model.zero_grad()
            loss(model(x), labels).backward()

        return step

    return [step_in(memory_format) for memory_format in formats]


def torch_ms(step, count):
    begin = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - begin) * 1000 / count


def compare(program, name, rounds):
    case = CASES[name]
    count = case.get("count", 10)
    steps = torch_steps(case)
    for step in steps:
        step()
    ours, theirs = [], []
    with tempfile.NamedTemporaryFile("w", suffix=".textproto") as file:
        file.write(case["model"])
        file.flush()
        command = [program, file.name, "--batch", str(case["input"][0]), "--rounds", "1", "--count", str(count)]
        for _ in range(rounds):
            ours.append(float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()[0]))
            theirs.append(min(torch_ms(step, count) for step in steps))
    ratio = statistics.median(t / o for t, o in zip(theirs, ours))
    print(f"{name}: Cairn {min(ours):.2f} ms, PyTorch {min(theirs):.2f} ms; {ratio:.2f} x PyTorch (median of {rounds})",
          flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("names", nargs="*", choices=[[], *CASES], metavar="NAME")
    parser.add_argument("--rounds", type=int, default=5)
    flags = parser.parse_args()
    torch.set_num_threads(1)
    for name in flags.names or CASES:
        compare(flags.program, name, flags.rounds)


if __name__ == "__main__":
    main()
