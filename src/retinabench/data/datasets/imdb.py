"""IMDB film reviews: positive or negative.

| | |
|---|---|
| input | the last 100 words of a review, as numbers |
| target | 0 negative, 1 positive |
| splits | 20,000 of the 25,000 training reviews, in an order fixed by their names; 25,000 to test on |
| citation | Maas et al. 2011; https://ai.stanford.edu/~amaas/data/sentiment/ |
| how to get it | see `HINT` |

Read from the published texts (`aclImdb/{train,test}/{pos,neg}/*.txt`), in lower case and without punctuation. Number 0
fills up at the front, 1 is any word that is not among the 19,998 most frequent of the training reviews. As many training
reviews as in Izmailov et al. 2021; their order and numbering came from a pickle (`imdb.npz`), which is not read here, so
that posteriors agree in kind and not in value.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.data.dataset import ArrayDataset, concatenate

LENGTH, TRAIN, WORDS = 100, 20_000, 20_000
FILL, OTHER, FIRST = 0, 1, 2
WORD = re.compile(r"[a-z0-9']+")
HINT = "Unpack aclImdb_v1.tar.gz from https://ai.stanford.edu/~amaas/data/sentiment/ and name aclImdb by --data."


def read(source: Path | None) -> ArrayDataset:
    """Read the reviews below `source`, with the splits ``train`` and ``test``."""
    if source is None:
        raise InputError("the data of 'imdb' do not come with the package", hint=HINT)
    train = _reviews(source, "train")[:TRAIN]
    counts = Counter(word for words, _ in train for word in words)
    # Words of equal frequency are in alphabetical order, so that every machine numbers them alike.
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[: WORDS - FIRST]
    number = {word: FIRST + rank for rank, word in enumerate(ranked)}
    return concatenate(
        {"train": _encoded(train, number, "train"), "test": _encoded(_reviews(source, "test"), number, "clean")}
    )


def tokens(words: Iterable[str], number: dict[str, int]) -> NDArray[np.int64]:
    """Return the numbers of the last 100 words, (100,), filled up at the front."""
    known = [number.get(word, OTHER) for word in words][-LENGTH:]
    return np.array([FILL] * (LENGTH - len(known)) + known, np.int64)


def _reviews(source: Path, split: str) -> list[tuple[list[str], int]]:
    """Return words and class of the reviews of a split, both classes mixed by the hash of their names."""
    files = [
        (file, label) for label, kind in enumerate(("neg", "pos")) for file in (source / split / kind).glob("*.txt")
    ]
    if not files:
        raise InputError("holds no reviews", file=source / split, hint=HINT)
    files.sort(key=lambda pair: hashlib.sha256(f"{pair[1]}/{pair[0].name}".encode()).digest())
    return [
        (WORD.findall(file.read_text(encoding="utf-8").replace("<br />", " ").lower()), label) for file, label in files
    ]


def _encoded(reviews: list[tuple[list[str], int]], number: dict[str, int], group: str) -> ArrayDataset:
    inputs = np.stack([tokens(words, number) for words, _ in reviews])
    classes = np.array([label for _, label in reviews], np.int64)
    return ArrayDataset(inputs, classes, np.full(len(reviews), group))
