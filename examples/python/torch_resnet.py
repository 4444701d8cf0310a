"""ResNet-18 in PyTorch with augmentation, on drawn pictures or on an image folder, by cairn.torch.Run.

    torch_resnet.py [--data FOLDER] [--side N] [--width N] [--examples N] [--epochs N] [--replicas N]

FOLDER has a folder for each class, as torchvision's ImageFolder, and needs torchvision. Without it pictures of coloured
discs and squares are drawn. The augmentation is torchvision's where that is installed, else the same by PyTorch itself;
either way a picture's crop and flip repeat wherever its step is computed, since their random numbers are the step's.
"""

import argparse

import torch

import cairn
import cairn.torch

try:
    import torchvision
except ImportError:
    torchvision = None

nn = torch.nn
CLASSES = ("disc", "square", "ring", "cross")


def crop_and_flip(picture, padding):
    """A random crop of a picture [3, side, side] that is padded with zeros, and a flip of every other one."""
    side = picture.shape[-1]
    padded = nn.functional.pad(picture, (padding,) * 4)
    top, left = torch.randint(0, 2 * padding + 1, (2,)).tolist()
    picture = padded[:, top : top + side, left : left + side]
    return picture.flip(-1) if torch.rand(1).item() < 0.5 else picture


def augmentation(side):
    padding = max(1, side // 8)
    if torchvision is None:
        return lambda picture: crop_and_flip(picture, padding)
    transforms = torchvision.transforms
    return transforms.Compose([transforms.RandomCrop(side, padding), transforms.RandomHorizontalFlip()])


class Shapes(torch.utils.data.Dataset):
    """Map-style: picture i is drawn from i alone."""

    def __init__(self, count, side, first=0, transform=None):
        self.count, self.side, self.first, self.transform = count, side, first, transform

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(self.first + index)
        label = int(torch.randint(0, len(CLASSES), (1,), generator=generator))
        x, y, size = (torch.rand(3, generator=generator) * 0.3 + torch.tensor([0.35, 0.35, 0.15])).tolist()
        at = torch.linspace(0, 1, self.side)
        across, down = (at[None, :] - x).abs() / size, (at[:, None] - y).abs() / size
        far = (across**2 + down**2).sqrt()
        inside = {
            "disc": far < 1,
            "square": torch.maximum(across, down) < 0.85,
            "ring": (far < 1) & (far > 0.6),
            "cross": (torch.minimum(across, down) < 0.3) & (torch.maximum(across, down) < 1),
        }[CLASSES[label]]
        colour = torch.rand(3, 1, 1, generator=generator) + 0.5
        picture = colour * inside + 0.2 * torch.randn(3, self.side, self.side, generator=generator)
        return (picture if self.transform is None else self.transform(picture)), label


class Block(nn.Module):
    """He et al. 2016: two convolutions of 3x3 beside the identity, or beside one of 1x1."""

    def __init__(self, planes_in, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(planes_in, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or planes_in != planes:
            self.downsample = nn.Sequential(nn.Conv2d(planes_in, planes, 1, stride, bias=False), nn.BatchNorm2d(planes))

    def forward(self, x):
        out = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(out + (x if self.downsample is None else self.downsample(x)))


def resnet18(classes, width=64):
    """For small pictures: a first convolution of 3x3, and no pooling after it."""
    layers = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    planes_in = width
    for stage in range(4):
        planes = width * 2**stage
        layers += [Block(planes_in, planes, 1 if stage == 0 else 2), Block(planes, planes, 1)]
        planes_in = planes
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(planes_in, classes))


def datasets(flags):
    """Training and validation examples, and the number of classes."""
    if flags.data is None:
        train = Shapes(flags.examples, flags.side, transform=augmentation(flags.side))
        return train, Shapes(max(64, flags.examples // 8), flags.side, first=10**6), len(CLASSES)
    if torchvision is None:
        raise SystemExit("--data: needs torchvision, which is not installed")
    transforms = torchvision.transforms
    plain = [transforms.Resize(flags.side), transforms.CenterCrop(flags.side), transforms.ToTensor()]
    train = torchvision.datasets.ImageFolder(
        f"{flags.data}/train", transforms.Compose([*plain, augmentation(flags.side)])
    )
    test = torchvision.datasets.ImageFolder(f"{flags.data}/validation", transforms.Compose(plain))
    return train, test, len(train.classes)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--data")
    parser.add_argument("--side", type=int, default=32)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--examples", type=int, default=2048)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--replicas", type=int, default=2)
    flags = parser.parse_args()
    torch.manual_seed(0)
    train, validation, classes = datasets(flags)
    model = resnet18(classes, flags.width)
    run = cairn.torch.Run(
        "resnet18",
        model,
        nn.functional.cross_entropy,
        train,
        validation=validation,
        figures={"accuracy": cairn.torch.accuracy},
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True, weight_decay=5e-4),
        batch_size=flags.batch_size,
        replicas=flags.replicas,
        epochs=flags.epochs,
    )
    job = run.train()
    print("val_accuracy:", job.history["val_accuracy"][-1])
    return job


if __name__ == "__main__":
    main()
