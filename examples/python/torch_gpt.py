"""A small GPT on the characters of text files, by cairn.torch.Run; it writes some text at its end.

    torch_gpt.py TEXT... [--width N] [--blocks N] [--context N] [--epochs N] [--replicas N] [--write N]
"""

import argparse
import math

import torch

import cairn
import cairn.torch

nn = torch.nn
HEADS = 4


class Characters(torch.utils.data.Dataset):
    """Map-style: `context` characters from a position on, and the same shifted by one."""

    def __init__(self, numbers, context):
        self.numbers, self.context = numbers, context

    def __len__(self):
        return (len(self.numbers) - 1) // self.context

    def __getitem__(self, index):
        begin = index * self.context
        part = self.numbers[begin : begin + self.context + 1]
        return part[:-1], part[1:]


class Block(nn.Module):
    """Radford et al. 2019: attention to what came before, then an MLP, each normalized before and added."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        rows, steps, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(rows, steps, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) / math.sqrt(width // HEADS)
        later = torch.ones(steps, steps, dtype=torch.bool, device=x.device).triu(1)
        seen = scores.masked_fill(later, -math.inf).softmax(-1) @ v
        x = x + self.out(seen.transpose(1, 2).reshape(rows, steps, width))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, characters, context, width, blocks):
        super().__init__()
        self.character = nn.Embedding(characters, width)
        self.position = nn.Parameter(torch.randn(context, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, characters, bias=False)

    def forward(self, numbers):
        """[rows, steps] of whole numbers -> [rows, steps, characters]."""
        x = self.character(numbers) + self.position[: numbers.shape[1]]
        return self.head(self.norm(self.blocks(x)))


def loss_fn(outputs, targets):
    return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten())


def decayed(model, rate):
    """AdamW that decays matrices alone."""
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() > 1]},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), weight_decay=0.1)


@torch.no_grad()
def write(model, numbers, count, context):
    model.eval()
    for _ in range(count):
        outputs = model(numbers[None, -context:])[0, -1]
        numbers = torch.cat([numbers, outputs.softmax(-1).multinomial(1)])
    return numbers


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=4)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--replicas", type=int, default=2)
    parser.add_argument("--write", type=int, default=200)
    flags = parser.parse_args()
    text = ""
    for path in flags.texts:
        with open(path, encoding="utf-8") as file:
            text += file.read()
    alphabet = sorted(set(text))
    number_of = {character: number for number, character in enumerate(alphabet)}
    numbers = torch.tensor([number_of[c] for c in text])
    cut = len(numbers) * 9 // 10
    torch.manual_seed(0)
    model = Gpt(len(alphabet), flags.context, flags.width, flags.blocks)
    run = cairn.torch.Run(
        "gpt",
        model,
        loss_fn,
        Characters(numbers[:cut], flags.context),
        validation=Characters(numbers[cut:], flags.context),
        optimizer=decayed(model, 1e-3),
        batch_size=flags.batch_size,
        replicas=flags.replicas,
        epochs=flags.epochs,
        set={"optimizer.global_clipnorm": 1.0},
    )
    job = run.train()
    print("val_loss, nats a character:", job.history["val_loss"][-1])
    print("".join(alphabet[i] for i in write(model, numbers[:1], flags.write, flags.context).tolist()))
    return job


if __name__ == "__main__":
    main()
