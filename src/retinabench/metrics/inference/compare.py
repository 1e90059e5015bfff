"""Is one model better than another, on the same images? Paired differences and Holm's correction.

>>> holm([0.01, 0.04, 0.03]).round(3).tolist()
[0.03, 0.06, 0.06]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.metrics.inference.bootstrap import MAX_UNDEFINED, check_seed, percentile_interval
from retinabench.metrics.inference.paired import PairedSet, align, check_names, paired_sets
from retinabench.metrics.registry import ScoreSpec
from retinabench.metrics.score import RULES
from retinabench.metrics.sets import why_no_interval
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """Differences a - b of every score on every set; `to_dict` is the JSON of `retinabench compare`.

    sets: {set: {images, patients, positives, scores: {name: {a, b, difference, low, high, p, p_holm, better,
    version}}}}. An undefined number is None with a `why`. `better` is "a" or "b" where the Holm-adjusted p-value lies
    below 1 - level, else None.
    """

    a: str
    b: str
    rules: str
    bootstrap: int
    seed: int
    level: float
    sets: Mapping[str, Any]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return what `retinabench compare --json` writes."""
        return {"schema": "retinabench.comparison/1", **vars(self), "notes": list(self.notes)}


def compare(
    a: Predictions,
    b: Predictions,
    rules: str = "corrected",
    bootstrap: int = 1000,
    seed: int = 0,
    *,
    scores: Sequence[str] | None = None,
    sets: Sequence[str] | None = None,
    uncertainty: str = "auto",
    level: float = 0.95,
) -> Comparison:
    """Paired, patient-clustered differences a - b of every score.

    Both files must hold the same test images (in any order) with the same truth. Each replicate draws patients with
    replacement and scores both models on the very same draw; the interval is the percentile interval of the
    differences, the p-value inverts it: p = 2 min(#{d <= 0} + 1, #{d >= 0} + 1) / (R + 1), at most 1 and never below
    2 / (R + 1). `p_holm` corrects it over all scores of a set. Models that never differ have p = 1.

    scores, sets: names, None for all. bootstrap: 0 for values without intervals. rules: "published" compares the values
    of the published protocol, which has no intervals.

    Raises `InputError` where images, labels, domains, grades or patients differ, naming the first.
    """
    if rules not in RULES:
        raise InputError(f"unknown rules '{rules}'", hint=nearest(rules, RULES))
    if bootstrap < 0:
        raise InputError(f"{bootstrap} bootstrap replicates", hint="Ask for 0 (no intervals) or more.")
    check_names(scores, sets)
    check_seed(seed)
    first, second = align([a, b])
    names = a.source or "a", b.source or "b"
    notes = notes_on([first, second], names, uncertainty)
    if rules == "published":
        table = _published(first, second, scores, sets, uncertainty, seed)
        return Comparison(
            *names, rules, 0, seed, level, table, (*notes, "the published protocol has no intervals")
        )
    paired = paired_sets(
        [first, second],
        scores=scores,
        sets=sets,
        uncertainty=uncertainty,
        bootstrap=bootstrap,
        seed=seed,
    )
    found = {one.name: {**counts(one), "scores": _differences(one, level)} for one in paired}
    return Comparison(*names, rules, bootstrap, seed, level, found, notes)


def holm(p_values: ArrayLike) -> Floats:
    """Holm's step-down adjusted p-values (family-wise error over all of them, under any dependence); NaN stays NaN.

    Sorted p_(1) <= … <= p_(m): adjusted p_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).
    Source: Holm, A simple sequentially rejective multiple test procedure, Scand. J. Stat. 6:65 (1979).
    """
    p = np.asarray(p_values, np.float64)
    out = np.full(p.shape, np.nan)
    known = np.flatnonzero(np.isfinite(p))
    order = known[np.argsort(p[known], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    out[order] = np.maximum.accumulate(np.minimum(1.0, factors * p[order]))
    return out


def difference_p_value(draws: ArrayLike) -> float:
    """Two-sided p-value of "no difference" from (R,) draws of a difference; NaN if over 5 % of them are undefined."""
    values = np.asarray(draws, np.float64)
    known = values[np.isfinite(values)]
    if not len(known) or len(known) < (1 - MAX_UNDEFINED) * len(values):
        return float("nan")
    tail = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0)) + 1
    return float(min(1.0, 2 * tail / (len(known) + 1)))


def _differences(one: PairedSet, level: float) -> dict[str, Any]:
    draws = one.draws[:, 0] - one.draws[:, 1]
    low = high = p = np.full(len(one.scores), np.nan)
    if len(draws):
        low, high = percentile_interval(draws, level)
        p = np.array([difference_p_value(column) for column in draws.T])
    adjusted = holm(p)
    out = {}
    for k, score in enumerate(one.scores):
        a, b = one.point[:, k]
        entry: dict[str, Any] = {
            "a": number_or_none(a),
            "b": number_or_none(b),
            "difference": number_or_none(a - b),
            "low": number_or_none(low[k]),
            "high": number_or_none(high[k]),
            "p": number_or_none(p[k]),
            "p_holm": number_or_none(adjusted[k]),
            "better": _better(score, a - b, adjusted[k], 1 - level),
            "version": score.version,
        }
        undefined = [i for i in (0, 1) if not np.isfinite(one.point[i, k])]
        if undefined:
            entry["why"] = f"{'ab'[undefined[0]]}: {score.why_undefined(one.whole[undefined[0]])}"
        elif len(draws) and not np.isfinite(low[k]):
            entry["why"] = why_no_interval(one.images if one.patients is None else one.patients)
        out[score.name] = entry
    return out


def _better(score: ScoreSpec, difference: float, p: float, alpha: float) -> str | None:
    if not p < alpha or difference == 0:
        return None
    return "a" if difference * score.sign > 0 else "b"


def _published(
    a: Predictions,
    b: Predictions,
    scores: Sequence[str] | None,
    sets: Sequence[str] | None,
    uncertainty: str,
    seed: int,
) -> dict[str, Any]:
    from retinabench.metrics.published import sets as published_sets

    one, two = (
        published_sets.score_sets(model, referral_uncertainty(model, uncertainty, exact=True)[0], seed)
        for model in (a, b)
    )
    table: dict[str, Any] = {}
    for name, values in one.items():
        if sets is not None and name not in sets:
            continue
        table[name] = {key: values.get(key) for key in ("images", "patients", "positives")}
        table[name]["scores"] = {}
        for score, entry in values["scores"].items():
            if scores is not None and score not in scores:
                continue
            x, y = entry["value"], two[name]["scores"][score]["value"]
            known = x is not None and y is not None
            table[name]["scores"][score] = {
                "a": x,
                "b": y,
                "difference": x - y if known else None,
                **dict.fromkeys(("low", "high", "p", "p_holm", "better")),
                "version": entry["version"],
                **({} if known else {"why": "one class only"}),
            }
    return table


def counts(one: PairedSet) -> dict[str, Any]:
    """What a set holds."""
    return {"images": one.images, "patients": one.patients, "positives": one.positives}


def notes_on(models: Sequence[Predictions], names: Sequence[str], uncertainty: str) -> tuple[str, ...]:
    """What a reader of a comparison must know of its inputs."""
    notes = []
    if all(model.patient_id is None for model in models):
        notes.append("no patient_id: every image is its own cluster, intervals may be too narrow")
    used = {
        name: referral_uncertainty(model, uncertainty)[1] for name, model in zip(names, models, strict=True)
    }
    if len(set(used.values())) > 1:
        notes.append(
            "referral is ordered by " + ", ".join(f"{kind} in {name}" for name, kind in used.items())
        )
    return tuple(notes)


def number_or_none(value: float) -> float | None:
    """JSON has no NaN."""
    return float(value) if np.isfinite(value) else None
