"""The PyTorch side of a comparison: a model on one GPU. Prints images/s (the median of several rounds) and the software
and device as one line of JSON; exit code 77 without torch or a GPU.

    torch_peer.py resnet50|cnn BATCH bfloat16|tf32|float32 STEPS

resnet50: channels_last, autocast for bfloat16, torch.compile, SGD with momentum in one kernel (fused), random pictures
on the GPU. cnn: the small CNN of docs/performance.md, one step captured in a CUDA graph, plain SGD.
"""

import json
import statistics
import sys
import time

try:
    import torch
    from torch import nn
except ImportError:
    print("no torch")
    sys.exit(77)


class Bottleneck(nn.Module):
    def __init__(self, channels_in, channels, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, channels, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(channels, 4 * channels, 1, bias=False),
            nn.BatchNorm2d(4 * channels),
        )
        self.shortcut = (
            nn.Identity()
            if stride == 1 and channels_in == 4 * channels
            else nn.Sequential(
                nn.Conv2d(channels_in, 4 * channels, 1, stride, bias=False), nn.BatchNorm2d(4 * channels)
            )
        )

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels_in = 64
    for channels, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(channels_in, channels, stride if block == 0 else 1))
            channels_in = 4 * channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3136, 10),
    )


def rounds(step, batch, steps):
    for _ in range(10):
        step()
    rates = []
    for _ in range(5):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
        rates.append(steps * batch / (time.perf_counter() - begin))
    return statistics.median(rates)


def resnet_rate(batch, precision, steps):
    model = resnet50().cuda().to(memory_format=torch.channels_last)
    compiled = torch.compile(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=True)
    loss = nn.CrossEntropyLoss()
    images = torch.randn(batch, 3, 224, 224, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bfloat16"):
            result = loss(compiled(images), labels)
        result.backward()
        optimizer.step()

    return rounds(step, batch, steps)


def cnn_rate(batch, steps):
    model, loss = small_cnn().cuda(), nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    images = torch.randn(batch, 1, 28, 28, device="cuda")
    labels = torch.randint(0, 10, (batch,), device="cuda")

    # Gradients are new tensors each time, so none is zeroed; inside the graph their addresses do not change.
    def step():
        optimizer.zero_grad(set_to_none=True)
        loss(model(images), labels).backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(5):
            step()
    torch.cuda.current_stream().wait_stream(side)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return rounds(graph.replay, batch, steps)


def main():
    kind, batch, precision, steps = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    if not torch.cuda.is_available():
        print("torch sees no GPU")
        sys.exit(77)
    torch.manual_seed(1)
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "float32"
    rate = resnet_rate(batch, precision, steps) if kind == "resnet50" else cnn_rate(batch, steps)
    print(
        json.dumps(
            {
                "images_per_second": rate,
                "torch": torch.__version__,
                "cudnn": torch.backends.cudnn.version(),
                "memory_bytes": torch.cuda.max_memory_allocated(),
                "device": torch.cuda.get_device_name(),
            }
        )
    )


if __name__ == "__main__":
    main()
