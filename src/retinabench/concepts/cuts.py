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

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.tables import read_bank
from retinabench.concepts.examinees import read_answers
from retinabench.core.errors import InputError, nearest
from retinabench.core.settings import read_toml
from retinabench.metrics.clinical.thresholds import DecisionThreshold
from retinabench.predictions.table import Predictions


def parse_cut(text: str | None, asked: Bank) -> dict[str, float]:
    """Return the cuts by concept of what is asked about; concepts without one are left out."""
    concepts = asked.concepts
    if text is None:
        return {}
    if text.endswith(".toml"):
        return _of_file(Path(text), concepts)
    rule, at, folder = text.partition("@")
    if at:
        return _chosen(DecisionThreshold.parse(rule), Path(folder), asked)
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
        if name not in ("all", *concepts):
            raise InputError(f"has a cut of an unknown concept '{name}'", file=path, hint=nearest(name, concepts))
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise InputError(f"the cut of '{name}' is not a number", file=path, hint=f'Write "{name}" = 0.3.')
    common = dict.fromkeys(concepts, stated.pop("all")) if "all" in stated else {}
    return {name: float(value) for name, value in {**common, **stated}.items()}


def _chosen(rule: DecisionThreshold, folder: Path, asked: Bank) -> dict[str, float]:
    """Choose cuts by a rule on the answers in a folder, which are about other images."""
    bank = read_bank(folder / "truth.csv", asked.concepts)
    if np.isin([bank.name(k) for k in range(bank.samples)], asked.ids if asked.ids is not None else []).any():
        raise InputError("holds images that will be asked about", file=folder, hint="Choose cuts on others.")
    answers = read_answers(folder / "answers.csv", bank, asked.concepts)
    cuts = {}
    for column, concept in enumerate(asked.concepts):
        known = np.flatnonzero(bank.truth[:, column] >= 0)
        scores = [answers(int(sample), concept) for sample in known]
        # The rules know their scores by rank alone: a score need not be a probability.
        levels, rank = np.unique(scores, return_inverse=True)
        names = np.arange(len(rank)).astype(np.str_)
        truth = bank.truth[known, column]
        try:
            found = rule.freeze(Predictions(names, truth, rank / len(levels))).value
        except InputError:
            problem = f"cannot decide the cut of '{concept}', which {truth.sum()} of {len(truth)} images show"
            hint = "Leave the concept out with --concepts, or give the cuts in a TOML file."
            raise InputError(problem, file=folder, hint=hint) from None
        place_of = math.ceil(found * len(levels) - 1e-6)
        above = np.nextafter(levels[-1], np.inf)  # the rule wants no yes at all
        cuts[concept] = float(levels[place_of] if place_of < len(levels) else above)
    return cuts
