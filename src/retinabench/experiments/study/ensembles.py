"""Ensembles of seeds, pooled from the prediction files of single runs: nothing is trained again."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from retinabench.methods.ensembles.ensemble import combine
from retinabench.predictions.table import Predictions

PUBLISHED_DRAWS = 6


def subsets(seeds: Sequence[int], members: int, rules: str) -> list[tuple[int, ...]]:
    """Return which seeds form the ensembles of `members`.

    corrected: every subset, C(n, K) of them: 20 of 3 out of 6. published: six random draws without replacement, as the
    Retina Benchmark's evaluation makes them (`RandomState(0).choice`); a subset that is drawn again counts again, except
    where there is only one.
    """
    if members == 0:
        return []
    every = list(combinations(seeds, members))
    if rules == "corrected" or len(every) == 1:
        return every
    draw = np.random.RandomState(0)  # the released code's generator
    drawn = [draw.choice(len(seeds), members, replace=False) for _ in range(PUBLISHED_DRAWS)]
    return [tuple(sorted(seeds[k] for k in some)) for some in drawn]


def pool(members: Sequence[Predictions], seeds: Sequence[int], number: int) -> Predictions:
    """Pool runs that differ by their seed as ensemble `number` of several, which stands for its seed."""
    pooled = combine(members)
    single = str(members[0].metadata.get("title") or members[0].metadata.get("method", "model"))
    hashes = "/".join(str(member.metadata.get("config_hash")) for member in members)
    about = {
        **pooled.metadata,
        "method": "ensemble",
        "title": f"ensemble of {len(members)} {single}",
        "member_seeds": list(seeds),
        "seed": number,
        "run": f"ensemble of {len(members)} {single}, seeds {', '.join(map(str, seeds))}",
        "config_hash": hashlib.sha256(hashes.encode()).hexdigest()[:12],
    }
    return replace(pooled, metadata=about)
