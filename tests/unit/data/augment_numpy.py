"""Goal: the augmentations are Keras', by its formulas (keras/src/layers/preprocessing/image_preprocessing) implemented
here a second time in numpy and float64, and are a pure function of (seed, pass, example). The random numbers are those
of Philox (Salmon et al. 2011), also implemented here. augment_driver augments; pictures are compared number by number.
"""

import os
import subprocess
import sys
import tempfile

import numpy

DRIVER = sys.argv[1]
SEED, PASS, COUNT = 1234567890123, 5, 24
AUGMENT = 6  # the stream
MASK = 0xFFFFFFFF


def philox(key, counter):
    k0, k1 = key
    c = list(counter)
    for i in range(10):
        if i > 0:
            k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
        low, high = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(high >> 32) ^ c[1] ^ k0, high & MASK, (low >> 32) ^ c[3] ^ k1, low & MASK]
    return c


def stream_key(seed, stream):
    return philox((seed & MASK, seed >> 32), (stream, 0, 0, 0))[:2]


class Draws:
    def __init__(self, example, step=0):
        self.key, self.counter, self.left = stream_key(SEED, AUGMENT), [example, PASS, step, 0], []

    def bits(self):
        if not self.left:
            self.left = philox(self.key, self.counter)
            self.counter[3] += 1
        return self.left.pop(0)

    def uniform(self, low=0.0, high=1.0):
        return low + (high - low) * (self.bits() >> 8) / 2**24

    def below(self, n):
        return self.bits() * n >> 32

    def happens(self, share=1.0):
        return self.uniform() < share

    def normal(self):
        u = 1 - (self.bits() >> 8) / 2**24
        return numpy.sqrt(-2 * numpy.log(u)) * numpy.cos(2 * numpy.pi * (self.bits() >> 8) / 2**24)


def cut(x):
    return numpy.clip(x, 0, 255)


def grey(x):
    return (x @ [0.2989, 0.5870, 0.1140])[..., None]


def to_hsv(x):
    """As colorsys, for whole planes."""
    r, g, b = x[..., 0], x[..., 1], x[..., 2]
    high, low = x.max(-1), x.min(-1)
    spread = high - low
    safe = numpy.where(spread > 0, spread, 1)
    hue = numpy.select([high == r, high == g], [(g - b) / safe, 2 + (b - r) / safe], 4 + (r - g) / safe) / 6 % 1
    saturation = numpy.where(high > 0, spread / numpy.where(high > 0, high, 1), 0)
    return numpy.where(spread > 0, hue, 0), saturation, high


def from_hsv(h, s, v):
    sector = h % 1 * 6
    weight = lambda x: numpy.clip(x, 0, 1)  # noqa: E731
    planes = (abs(sector - 3) - 1, 2 - abs(sector - 2), 2 - abs(sector - 4))
    return numpy.stack([v * (1 - s + s * weight(p)) for p in planes], -1)


def saturate(x, d, low, high):
    f = d.uniform(low, high)
    h, s, v = to_hsv(x)
    return from_hsv(h, numpy.clip(s * (f / (1 - f + 1e-7)), 0, 255), v)


def hue(x, d, low, high):
    side = -1 if d.uniform() > 0.5 else 1
    h, s, v = to_hsv(x / 255)
    h = h + side * d.uniform(low, high) / 2
    return 255 * numpy.clip(from_hsv(numpy.where(h > 1, h - 1, numpy.where(h < 0, h + 1, h)), s, v), 0, 1)


def degenerate(x, d, low, high):
    return cut(x + d.uniform(low, high) * (grey(x) - x))


def posterize(x, d, low, high):
    bits = low if low == high else low + d.below(high - low)
    return (x.astype(numpy.uint8) >> (8 - bits) << (8 - bits)).astype(float)


def convolved(x, kernel):
    """Beyond the borders are zeros."""
    h, w = kernel.shape[0] // 2, kernel.shape[1] // 2
    padded = numpy.pad(x, ((h, h), (w, w), (0, 0)))
    views = numpy.lib.stride_tricks.sliding_window_view(padded, kernel.shape, axis=(0, 1))
    return numpy.einsum("hwcij,ij->hwc", views, kernel)


def sharpen(x, d, low, high):
    kernel = numpy.full((3, 3), 1 / 13)
    kernel[1, 1] = 5 / 13
    return cut(x + (1 - 2 * d.uniform(low, high)) * (convolved(x, kernel) - x))


def blur(x, d, size=(3, 3), sigma=(0.0, 1.0), factor=1.0):
    happens = d.happens(factor)
    lines = []
    for n in size:
        places = (numpy.arange(n) - (n - 1) / 2) / (d.uniform(*sigma) + 1e-6)
        line = numpy.exp(-0.5 * places**2)
        lines.append(line / line.sum())
    return cut(convolved(x, numpy.outer(lines[1], lines[0]))) if happens else x


def erase(x, d, scale=(0.02, 0.33), fill=None, factor=1.0):
    wide, high = (numpy.sqrt(d.uniform(*scale)) for _ in range(2))
    spans = []
    for side, share in ((x.shape[1], wide), (x.shape[0], high)):
        begin = d.uniform() * (side - share * side)
        spans.append((begin, begin + share * side))
    if not d.happens(factor):
        return x
    x = x.copy()
    for row in range(x.shape[0]):
        for column in range(x.shape[1]):
            if spans[1][0] <= row < spans[1][1] and spans[0][0] <= column < spans[0][1]:
                for c in range(x.shape[2]):
                    x[row, column, c] = cut(d.normal() * 255 if fill is None else fill)
    return x


def perspective(x, d, scale=1.0, nearest=False, fill=0.0, factor=1.0):
    happens = d.happens(factor)
    right, bottom = x.shape[1] - 1, x.shape[0] - 1
    start = numpy.array([[0, 0], [right, 0], [0, bottom], [right, bottom]], float)
    end = numpy.array([[p + p * d.uniform(-scale / 2, scale / 2) for p in corner] for corner in start])
    if not happens:
        return x
    rows, known = [], []
    for (u, v), (px, py) in zip(start, end):
        rows += [[px, py, 1, 0, 0, 0, -u * px, -u * py], [0, 0, 0, px, py, 1, -v * px, -v * py]]
        known += [u, v]
    matrix = numpy.append(numpy.linalg.solve(numpy.array(rows), known), 1).reshape(3, 3)
    out = numpy.empty_like(x)
    for row in range(x.shape[0]):
        for column in range(x.shape[1]):
            u, v, depth = matrix @ [column, row, 1]
            out[row, column] = sample(x, u / depth, v / depth, nearest, fill)
    return out


def sample(x, u, v, nearest, fill):
    at = lambda r, c: x[r, c] if 0 <= r < x.shape[0] and 0 <= c < x.shape[1] else fill  # noqa: E731
    if nearest:
        return at(int(numpy.floor(v + 0.5)), int(numpy.floor(u + 0.5)))
    left, top = int(numpy.floor(u)), int(numpy.floor(v))
    a, b = u - left, v - top
    above = (1 - a) * at(top, left) + a * at(top, left + 1)
    below = (1 - a) * at(top + 1, left) + a * at(top + 1, left + 1)
    return (1 - b) * above + b * below


def affine(x, matrix):
    """Bilinear, reflected at the borders."""
    height, width = x.shape[:2]
    inside = lambda i, n: i % (2 * n) if i % (2 * n) < n else 2 * n - 1 - i % (2 * n)  # noqa: E731
    out = numpy.empty_like(x)
    for row in range(height):
        for column in range(width):
            u, v = matrix @ [column, row, 1]
            left, top = int(numpy.floor(u)), int(numpy.floor(v))
            a, b = u - left, v - top
            at = lambda r, c: x[inside(r, height), inside(c, width)]  # noqa: E731
            above = (1 - a) * at(top, left) + a * at(top, left + 1)
            out[row, column] = (1 - b) * above + b * ((1 - a) * at(top + 1, left) + a * at(top + 1, left + 1))
    return out


def shear(x, d, across, down):
    side = -1 if d.uniform() > 0.5 else 1
    y, right = d.uniform(*down) * side, d.uniform(*across) * side
    return affine(x, numpy.array([[1, right, 0], [y, 1, 0]]))


def translate(x, d, low, high):
    down, right = d.uniform(low, high) * x.shape[0], d.uniform(low, high) * x.shape[1]
    return affine(x, numpy.array([[1, 0, -right], [0, 1, -down]]))


def rotate(x, d, low, high):
    angle = d.uniform(low, high) * 2 * numpy.pi
    mx, my, c, s = (x.shape[1] - 1) / 2, (x.shape[0] - 1) / 2, numpy.cos(angle), numpy.sin(angle)
    return affine(x, numpy.array([[c, -s, mx - c * mx + s * my], [s, c, my - s * mx - c * my]]))


def brighten(x, d, low, high):
    return cut(x + 255 * d.uniform(low, high))


def contrast(x, d, low, high):
    mean = x.mean((0, 1))
    return cut((x - mean) * d.uniform(1 - low, 1 + high) + mean)


def auto_contrast(x, d=None):
    low, high = x.min((0, 1)), x.max((0, 1))
    return numpy.where(high > low, cut((x - low) * 255 / numpy.where(high > low, high - low, 1)), x)


def equalize(x, d=None, bins=256):
    """In float32, since the table's indices depend on the last bit."""
    x = x.astype(numpy.float32)
    out = x.copy()
    last, most = numpy.float32(bins - 1), numpy.float32(255)
    for c in range(x.shape[2]):
        counts = numpy.bincount(numpy.clip((x[..., c] * last / most).astype(int), 0, bins - 1).ravel(), minlength=bins)
        if numpy.count_nonzero(counts) <= 1:
            continue
        below = numpy.cumsum(counts)
        first = below[below > 0][0]
        table = numpy.clip(numpy.round((below - first) * 255 / (below[-1] - first)), 0, 255)
        out[..., c] = table[numpy.clip(x[..., c] / most * last, 0, bins - 1).astype(int)]
    return out.astype(float)


def solarize(x, d, addition, threshold):
    a = d.uniform(addition[0], addition[1] * 255)
    t = d.uniform(threshold[0], threshold[1] * 255)
    x = cut(x + a)
    return numpy.where(x < t, x, 255 - x)


def rand_augment(x, d, ops, f):
    layers = [
        lambda p: shear(p, d, (0, f), (0, f)),
        lambda p: translate(p, d, 0, f),
        lambda p: rotate(p, d, 0, f),
        lambda p: brighten(p, d, 0, f),
        lambda p: degenerate(p, d, 0, f),
        lambda p: contrast(p, d, 0, f),
        lambda p: sharpen(p, d, 0, f),
        lambda p: posterize(p, d, 1, max(1, int(8 * f))),
        lambda p: solarize(p, d, (0, f), (0, f)),
        auto_contrast,
        equalize,
    ]
    for _ in range(ops):
        x = layers[d.below(len(layers))](x)
    return x


def jitter(x, d):
    x = brighten(x, d, -0.2, 0.2)
    x = contrast(x, d, 0.3, 0.3)
    return hue(saturate(x, d, 0.3, 0.7), d, 0, 0.4)


JITTER = (
    "random_color_jitter { brightness_factor: 0.2 contrast_factor: 0.3 saturation_factor: [0.3, 0.7] hue_factor: 0.4 }"
)

# Text of the step: its function here. For a factor of one number, the first column is what Keras makes of it.
STEPS = {
    "random_shear { x_factor: 0.3 y_factor: [0.1, 0.2] }": lambda x, d: shear(x, d, (-0.3, 0.3), (0.1, 0.2)),
    "random_saturation { factor: [0.2, 0.9] }": lambda x, d: saturate(x, d, 0.2, 0.9),
    "random_saturation { factor: 0.6 }": lambda x, d: saturate(x, d, -0.6, 0.6),
    "random_hue { factor: 0.7 }": lambda x, d: hue(x, d, 0, 0.7),
    "random_hue { factor: [0.9, 1] }": lambda x, d: hue(x, d, 0.9, 1),
    "random_grayscale { factor: 0.4 }": lambda x, d: x * 0 + grey(x) if d.uniform() < 0.4 else x,
    "random_grayscale {}": lambda x, d: x * 0 + grey(x) if d.uniform() < 0.5 else x,
    JITTER: jitter,
    "random_color_degeneration { factor: 0.8 }": lambda x, d: degenerate(x, d, -0.8, 0.8),
    "random_invert { factor: 0.6 }": lambda x, d: 255 - x if d.happens(0.6) else x,
    "random_invert {}": lambda x, d: 255 - x if d.happens() else x,
    "random_posterization { factor: 5 }": lambda x, d: posterize(x, d, 1, 5),
    "random_posterization { factor: [3, 3] }": lambda x, d: posterize(x, d, 3, 3),
    "random_sharpness { factor: 0.9 }": lambda x, d: sharpen(x, d, 0, 0.9),
    "random_gaussian_blur {}": blur,
    "random_gaussian_blur { kernel_size: [5, 3] sigma: [0.5, 1] factor: 0.5 }": lambda x, d: blur(
        x, d, (5, 3), (0.5, 1), 0.5
    ),
    "random_erasing { fill_value: 300 }": lambda x, d: erase(x, d, fill=300),
    "random_erasing { scale: 0.5 factor: 0.7 fill_value: 1 }": lambda x, d: erase(x, d, (0, 0.5), 1, 0.7),
    "random_erasing {}": erase,
    "random_perspective { scale: 0.4 fill_value: 9 }": lambda x, d: perspective(x, d, 0.4, fill=9.0),
    "random_perspective { factor: 0.5 }": lambda x, d: perspective(x, d, factor=0.5),
    "auto_contrast {}": auto_contrast,
    "equalization {}": equalize,
    "equalization { bins: 17 }": lambda x, d: equalize(x, d, 17),
    "solarization { addition_factor: 0.3 threshold_factor: [0.2, 0.8] }": lambda x, d: solarize(
        x, d, (0, 0.3), (0.2, 0.8)
    ),
    "rand_augment {}": lambda x, d: rand_augment(x, d, 2, 0.5),
    "rand_augment { num_ops: 5 factor: 0.3 }": lambda x, d: rand_augment(x, d, 5, 0.3),
}


def augmented(folder, steps, picture, count=COUNT):
    source, target = os.path.join(folder, "in"), os.path.join(folder, "out")
    picture.astype(numpy.float32).tofile(source)
    shape = [str(n) for n in picture.shape]
    arguments = [DRIVER, steps, *shape, str(SEED), str(PASS), str(count), source, target]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, (steps, done.stdout, done.stderr)
    return numpy.fromfile(target, numpy.float32).reshape(count, *picture.shape)


def compare(folder, step, wanted, picture):
    got = augmented(folder, f"augmentation {{ {step} }}", picture)
    changed = 0
    for example in range(COUNT):
        expected = wanted(picture.astype(float), Draws(example))
        changed += not numpy.allclose(expected, picture)
        difference = abs(got[example] - expected)
        # A number at the edge of a level (a shade, a threshold, a border) may fall on either side.
        steps = any(word in step for word in ("rand_augment", "posterization", "solarization", "equalization"))
        beside = (difference > 2e-2).mean()
        assert beside <= (0.02 if steps else 0), (step, example, difference.max(), beside)
    assert changed > COUNT / 10, f"{step}: {changed} of {COUNT} pictures are changed"


def main():
    rng = numpy.random.default_rng(3)
    with tempfile.TemporaryDirectory() as folder:
        picture = rng.integers(0, 256, (9, 7, 3)).astype(numpy.float32)
        picture[2:5, 1:4] = [[[200, 100, 100]]]  # two equal largest channels; greys
        picture[6] = 77
        for step, wanted in STEPS.items():
            compare(folder, step, wanted, picture)
        for step in ("random_invert {}", "auto_contrast {}", "random_sharpness { factor: 0.9 }", "equalization {}"):
            compare(folder, step, STEPS[step], rng.uniform(20, 200, (6, 11, 1)).astype(numpy.float32))
        # A single colour has no contrast to stretch.
        flat = numpy.full((4, 5, 3), 33, numpy.float32)
        for step in ("auto_contrast {}", "equalization {}"):
            assert (augmented(folder, f"augmentation {{ {step} }}", flat, 1) == 33).all(), step
        # A second step has its own random numbers.
        two = augmented(
            folder,
            "augmentation { random_invert { factor: 0.6 } } augmentation { random_hue { factor: 0.7 } }",
            picture,
        )
        for example in range(COUNT):
            first = STEPS["random_invert { factor: 0.6 }"](picture.astype(float), Draws(example))
            expected = hue(first, Draws(example, 1), 0, 0.7)
            numpy.testing.assert_allclose(two[example], expected, atol=2e-2)
    print(f"{len(STEPS)} augmentations agree with numpy")


main()
