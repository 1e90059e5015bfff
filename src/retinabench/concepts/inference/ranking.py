"""How well the answers about a concept rank the samples: the AUROC, with a confidence sequence for new samples.

    A = P(X > Y) + P(X = Y) / 2,      X, Y: P(yes) about a sample with the concept and about one without it.

Its value compares all answered samples with each other. For the interval, the k-th answered sample with the concept is compared with
the k-th one without it: h_k = 1, 1/2 or 0. As samples are asked about in random order within a cell, and no sample (no patient, see
`patients.py`) is in two pairs, each h_k has the mean A given all earlier ones, whatever made one ask about a cell or stop. For a
variable h in [0, 1] with the mean p and any q, convexity gives

    E[(q / p)^h ((1 - q) / (1 - p))^(1 - h)] <= E[h q / p + (1 - h) (1 - q) / (1 - p)] = 1,

so that the sequence of `confidence_sequences.new_sequence` with the sum of h in the place of the right answers holds for A: at every
number of pairs at once, with a probability of at least 95 %. It is wider than an interval for a number of questions fixed beforehand,
which compares all samples (DeLong, Obuchowski).

References:
    Hoeffding, Probability inequalities for sums of bounded random variables, JASA 58:13 (1963), section 2.
    Waudby-Smith and Ramdas, Estimating means of bounded random variables by betting, JRSS B 86:1 (2024).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.inference.confidence_sequences import RateEnds, new_sequence
from retinabench.concepts.inference.rates import ALPHA, ANYTHING
from retinabench.metrics.classification import auroc

Floats = NDArray[np.float64]


class AnswerRanking(NamedTuple):
    """The AUROC of the answers about a concept."""

    value: float | None
    low: float
    high: float
    pairs: int


def ranking(answers: tuple[Floats, Floats], compared: tuple[Floats, Floats] | None) -> AnswerRanking:
    """Return the AUROC with its confidence sequence."""
    without, having = answers
    value = None
    if len(without) and len(having):
        label = np.repeat([0, 1], [len(without), len(having)])
        value = float(auroc(label, np.concatenate([without, having])))
    ends, pairs = ANYTHING, 0
    if compared is not None:
        ends, pairs = sequence(*compared)
    return AnswerRanking(value, *ends, pairs)


def sequence(without: Floats, having: Floats, alpha: float = ALPHA) -> tuple[RateEnds, int]:
    """Return the interval of the AUROC, and the number of pairs that it compares."""
    pairs = min(len(without), len(having))
    above = np.sign(having[:pairs] - without[:pairs])
    return new_sequence(float((1 + above).sum() / 2), pairs, alpha), pairs
