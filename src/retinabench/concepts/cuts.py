"""The cut of a concept: from which answer on it is a yes.

Without a cut, yes is a P(yes) above one half. A cut is a number for all concepts, a TOML file with a number per concept (and one named
``all`` for the others), or a rule such as ``youden`` or ``sensitivity=0.9``, which chooses it for each concept on the answers to
other images: ``RULE@FOLDER``, where the folder holds `answers.csv` and `truth.csv`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retinabench.concepts.banks.tables import read_bank
from retinabench.concepts.examinees import read_answers
from retinabench.core.errors import InputError, nearest
from retinabench.core.settings import read_toml
from retinabench.metrics.clinical.thresholds import DecisionThreshold
from retinabench.predictions.table import Predictions

ALL = "all"


def parse_cut(text: str | None, concepts: Sequence[str]) -> dict[str, float]:
    """Return the cuts by concept; concepts without one are left out."""
    if text is None:
        return {}
    if text.endswith(".toml"):
        return _of_file(Path(text), concepts)
    rule, at, folder = text.partition("@")
    if at:
        return _chosen(DecisionThreshold.parse(rule), Path(folder), concepts)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        hint = "A number, a TOML file with one per concept, or a rule with the folder of other answers: youden@FOLDER."
        raise InputError(f"--cut '{text}' is not understood", hint=hint)
    return dict.fromkeys(concepts, value)


def _of_file(path: Path, concepts: Sequence[str]) -> dict[str, float]:
    stated = read_toml(path)
    for name, value in stated.items():
        if name not in (ALL, *concepts):
            raise InputError(f"has a cut of an unknown concept '{name}'", file=path, hint=nearest(name, concepts))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise InputError(f"the cut of '{name}' is no number", file=path, hint=f'Write "{name}" = 0.3.')
    common = {} if ALL not in stated else dict.fromkeys(concepts, stated.pop(ALL))
    return {name: float(value) for name, value in {**common, **stated}.items()}


def _chosen(rule: DecisionThreshold, folder: Path, concepts: Sequence[str]) -> dict[str, float]:
    """Choose cuts by a rule on the answers in a folder."""
    bank = read_bank(folder / "truth.csv", concepts)
    answers = read_answers(folder / "answers.csv", bank, concepts)
    cuts = {}
    for column, concept in enumerate(concepts):
        known = np.flatnonzero(bank.truth[:, column] >= 0)
        scores = [answers(int(sample), concept) for sample in known]
        # The rules know their scores by rank alone: a score need not be a probability.
        levels, rank = np.unique(scores, return_inverse=True)
        names = np.arange(len(rank)).astype(np.str_)
        found = rule.freeze(Predictions(names, bank.truth[known, column], rank / len(levels), source=concept)).value
        place_of = math.ceil(found * len(levels) - 1e-6)
        above = np.nextafter(levels[-1], np.inf)  # the rule wants no yes at all
        cuts[concept] = float(levels[place_of] if place_of < len(levels) else above)
    return cuts
