"""Batches of raw outputs of a network and the scores of all of them, for the hooks into other libraries."""

from __future__ import annotations

import torch

import retinabench as rb

NAMES = ("auroc", "failure_auroc", "referral_accuracy_area")


def output_batches():
    """Return 60 pairs of logits with their labels, in batches of 16 and a rest."""
    label = torch.arange(60) % 2
    noise = torch.randn(60, generator=torch.Generator().manual_seed(0))
    logits = torch.stack([torch.zeros(60), 2.0 * label - 1 + noise], dim=1)
    return list(zip(logits.split(16), label.split(16), strict=True))


def expected_scores(batches):
    """Return the scores `NAMES` of all images of the batches, by `rb.score`."""
    logits, label = (torch.cat(parts) for parts in zip(*batches, strict=True))
    (found,) = rb.score(rb.Predictions.from_logits(logits, label=label), bootstrap=0).sets.values()
    return {name: found.scores[name].value for name in NAMES}
