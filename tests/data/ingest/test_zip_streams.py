"""Files in parts read as one."""

from __future__ import annotations

import io
from itertools import pairwise

import numpy as np

from retinabench.data.ingest.zip_streams import Chain


def test_a_chain_reads_and_seeks_like_its_whole():
    random = np.random.default_rng(0)
    whole = random.bytes(1000)
    cuts = [0, 0, 3, 400, 401, 1000]
    chain = io.BufferedReader(Chain([(io.BytesIO(whole), a, b - a) for a, b in pairwise(cuts)]), 16)
    for _ in range(300):
        begin, length = random.integers(0, 1010), random.integers(0, 500)
        chain.seek(begin)
        assert chain.read(length) == whole[begin : begin + length]
    chain.seek(-7, io.SEEK_END)
    assert chain.read() == whole[-7:]
