"""Category layers from Keras' documentation, SipHash from its paper, FarmHash's Fingerprint64 of short texts. They have
no gradient."""

import numpy as np

ALL = (1 << 64) - 1


def no_gradient(xs):
    return lambda dy: [np.zeros_like(x) for x in xs]


def encoded(indices, mode, depth, weights=None):
    """-1 does not count."""
    if mode == "INT":
        return indices.astype(np.float64)
    rows = np.where(indices[..., None] == np.arange(depth), 1.0, 0.0)
    if mode == "ONE_HOT":
        return rows[..., 0, :] if indices.shape[-1] == 1 else rows
    if mode == "MULTI_HOT":
        return rows.max(axis=1)
    counts = rows.sum(axis=1)
    return counts * np.array(weights) if mode == "TF_IDF" else counts


def discretization(spec, xs, _, __):
    boundaries = np.array(spec["bin_boundaries"], dtype=np.float32).astype(np.float64)
    indices = np.digitize(xs[0], boundaries)
    return encoded(indices, spec["output_mode"], len(boundaries) + 1), no_gradient(xs)


def category_encoding(spec, xs, _, __):
    return encoded(xs[0].astype(int), spec["output_mode"], spec["num_tokens"]), no_gradient(xs)


def integer_lookup(spec, xs, _, __):
    mode, oov, tokens = spec["output_mode"], spec["num_oov_indices"], [int(t) for t in spec["vocabulary"]]
    weights = list(spec["idf_weights"])
    mask = int(spec["mask_token"]) if "mask_token" in spec else None
    front = ([mask] if mask is not None and mode == "INT" else []) + [int(spec["oov_token"])] * oov
    mean = np.mean(weights) if weights else 0
    if tokens[: len(front)] != front:
        tokens, weights = front + tokens, [mean] * len(front) + weights
    depth = spec["max_tokens"] if spec["pad_to_max_tokens"] else len(tokens)
    weights += [0.0] * (depth - len(weights))

    def index(value):
        if value == mask:
            return 0 if mode == "INT" else -1
        if value in tokens[len(front) :]:
            return tokens.index(value, len(front))
        return len(front) - oov + value % oov

    indices = np.vectorize(index)(xs[0].astype(int))
    return encoded(indices, mode, depth, weights), no_gradient(xs)


# ---- hashes ----


def rotated(x, bits):
    return (x << bits | x >> (64 - bits)) & ALL


def siphash(key, text):
    v = [
        key[0] ^ 0x736F6D6570736575,
        key[1] ^ 0x646F72616E646F6D,
        key[0] ^ 0x6C7967656E657261,
        key[1] ^ 0x7465646279746573,
    ]

    def rounds(count):
        for _ in range(count):
            for a, b, c, d, r, s in ((0, 1, 2, 3, 13, 16), (2, 1, 0, 3, 17, 21)):
                v[a] = v[a] + v[b] & ALL
                v[c] = v[c] + v[d] & ALL
                v[b], v[d] = rotated(v[b], r) ^ v[a], rotated(v[d], s) ^ v[c]
                v[a] = rotated(v[a], 32)

    padded = text + bytes(7 - len(text) % 8) + bytes([len(text) & 255])
    for i in range(0, len(padded), 8):
        word = int.from_bytes(padded[i : i + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    v[2] ^= 255
    rounds(4)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def farmhash(text):
    """For 1 to 3 bytes."""
    k0, k2 = 0xC3A5C85C97CB3127, 0x9AE16A3B2F90404F
    y = text[0] + (text[len(text) // 2] << 8)
    z = len(text) + (text[-1] << 2)
    x = (y * k2 ^ z * k0) & ALL
    return (x ^ x >> 47) * k2 & ALL


def hashing(spec, xs, _, __):
    bins, salt = spec["num_bins"], [int(s) for s in spec["salt"]]
    mask = int(spec["mask_value"]) if "mask_value" in spec and bins > 1 else None

    def index(value):
        text = str(value).encode()
        number = siphash((salt[0], salt[-1]), text) if salt else farmhash(text)
        if mask is None:
            return number % bins
        return 0 if value == mask else 1 + number % (bins - 1)

    return encoded(np.vectorize(index)(xs[0].astype(int)), spec["output_mode"], bins), no_gradient(xs)


def hashed_crossing(spec, xs, _, __):
    factor = 0xC6A4A7935BD1E995

    def mixed(value):
        return value ^ value >> 47

    def index(*values):
        number = 0xDECAFCAFFE
        for value in values:
            joined = number ^ factor
            joined = (joined ^ mixed(value * factor & ALL) * factor) & ALL
            number = mixed(mixed(joined * factor & ALL) * factor & ALL)
        return number % spec["num_bins"]

    indices = np.array([[index(*(int(x[e, 0]) for x in xs))] for e in range(len(xs[0]))])
    return encoded(indices, spec["output_mode"], spec["num_bins"]), no_gradient(xs)
