"""Submissions to the smallest frozen benchmark: folders as a stranger would write them."""

from pathlib import Path

import numpy as np

from retinabench.data.frozen.definition import truth_of
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions

NAME = "retinabench-drawn-1-mini"
CARD = """name = "{name}"
title = "{title}"
method = "Noise around the label."
authors = "A. Stranger"
code = "https://example.org/noise"
compute = "one core"
hours = 0.5
pretrained = false
deterministic = {deterministic}
tuned_on = "nothing"
"""


def noisy(signal: float, seed: int = 0, split: str = "test") -> Predictions:
    truth = truth_of(NAME)
    rows = np.flatnonzero(truth.split == split)
    z = signal * (2.0 * truth.label[rows] - 1) + np.random.default_rng(seed).normal(size=len(rows))
    return Predictions(
        truth.image_id[rows], truth.label[rows], 1 / (1 + np.exp(-z)), domain=truth.domain[rows],
        split=truth.split[rows], metadata={"method": "noise", "title": f"noise {signal:g}", "seed": seed},
    )  # fmt: skip


def submission(folder: Path, *seeds: Predictions, name: str = "noise", title: str = "Noise") -> Path:
    own = folder / name
    (own / NAME).mkdir(parents=True)
    text = CARD.format(name=name, title=title, deterministic=str(len(seeds) == 1).lower())
    (own / "card.toml").write_text(text, encoding="utf-8")
    for seed, one in enumerate(seeds):
        write_predictions(one, own / NAME / f"seed-{seed}.parquet")
    return own
