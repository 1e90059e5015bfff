"""All numbers of a report, computed once into an `Evaluation`.

Scores come from `retinabench.score`. What the report adds (referral of a share of the images, the change under shift, bands of
curves) is computed here, with the same patients in every bootstrap replicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from retinabench.core.errors import InputError
from retinabench.metrics import selective
from retinabench.metrics.bootstrap import percentile_interval
from retinabench.metrics.image_sets import SET_LABELS, score_rows
from retinabench.metrics.paired import check_seeds
from retinabench.metrics.registry import SCORES
from retinabench.metrics.score_results import Scores, ScoreValue
from retinabench.metrics.scoring import score_and_replicates
from retinabench.metrics.weighted_images import Batch, Cases
from retinabench.predictions.columns import DOMAINS
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation import set_statistics as stats
from retinabench.reports.evaluation.evaluation import (
    DEFAULTS,
    Band,
    Evaluation,
    EvaluationSettings,
    MethodPredictions,
    Progress,
)
from retinabench.reports.evaluation.set_statistics import Floats, SetPredictions
from retinabench.reports.toolkit.number_format import Quantity
from retinabench.reports.toolkit.style import mark

MOST_BAND_REPLICATES = 300
CHANGED = ("auroc", "accuracy", "nll")


def evaluate_methods(
    methods: Sequence[MethodPredictions],
    settings: EvaluationSettings = DEFAULTS,
    progress: Progress | None = None,
) -> Evaluation:
    """Score every file and compute every interval."""
    methods = _checked(methods)
    tell = progress or (lambda _text, _share: None)
    sets = _sets(methods)
    found = Evaluation(methods, settings, sets, [mark(i) for i in range(len(methods))])
    for i, method in enumerate(methods):
        tell(f"scoring {method.name}", i / len(methods))
        scored = [_scored(p, found) for p in method.predictions]
        found.files.append([scores for scores, _ in scored])
        for k, name in enumerate(sets):
            tell(f"{method.name}, {SET_LABELS[name].lower()}", (i + (k + 1) / (len(sets) + 1)) / len(methods))
            made = [
                SetPredictions.of(p, name, settings.uncertainty, file.threshold.value)
                for p, file in zip(method.predictions, found.files[i], strict=True)
            ]
            cases = [case for case in made if case is not None]
            if cases:
                found.cases[i, name] = cases
                _add_estimates(found, i, name, [draws[name] for _, draws in scored if name in draws])
                _add_curves(found, i, name)
        _add_changes(found, i)
    areas = [found.get(i, sets[-1], "referral_accuracy_area").value for i in range(len(methods))]
    found.leader = int(np.nanargmax(areas)) if np.isfinite(areas).any() else 0
    tell("scored", 1.0)
    return found


def _scored(predictions: Predictions, found: Evaluation) -> tuple[Scores, dict[str, Floats]]:
    """Return the scores of a file, and the replicates of the scores `replicated`, which follow the corrected rules."""
    s = found.settings
    specs = [found.spec(name) for name in found.replicated]
    corrected, draws = score_and_replicates(predictions, replace(s, rules="corrected"), specs)
    return corrected if s.rules == "corrected" else score_and_replicates(predictions, s)[0], draws


def _checked(methods: Sequence[MethodPredictions]) -> list[MethodPredictions]:
    names = [method.name for method in methods]
    if not methods:
        raise InputError("there is nothing to report", hint="Give one predictions file or more.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two methods are named '{twice}'", hint="Give every method its own name.")
    for method in methods:
        check_seeds([method.name] * len(method.predictions), method.predictions)
    return list(methods)


def _sets(methods: Sequence[MethodPredictions]) -> list[str]:
    """Return the sets of the report; `joint` where some file holds both domains."""
    of_files = [
        {name for name in DOMAINS if p.select(domain=name, split="test") is not None}
        for method in methods
        for p in method.predictions
    ]
    found = set().union(*of_files)
    if not found:
        raise InputError("no file has test images", column="split", hint="Report needs rows of split 'test'.")
    sets = [name for name in stats.SETS if name in found]
    return [*sets, "joint"] if any(len(domains) == 2 for domains in of_files) else sets


def _scores(batch: Batch, names: Sequence[str]) -> Floats:
    return np.stack([score_rows(SCORES[name], batch) for name in names], axis=1)


class _Changes:
    """Shifted minus in-domain scores, as a function of the weights of all images."""

    def __init__(self, case: SetPredictions) -> None:
        self.of = [np.flatnonzero(case.domain == domain) for domain in ("in_domain", "shifted")]
        self.parts = [
            Cases(case.label[r], case.prob[r], case.uncertainty[r], threshold=case.threshold) for r in self.of
        ]

    def __call__(self, weight: Floats) -> Floats:
        return np.asarray(self.rows(weight[None])[0])

    def rows(self, weight: Floats) -> Floats:
        """Return (R, K) for weights (R, N), NaN where a replicate holds one domain alone."""
        found = np.full((2, len(weight), len(CHANGED)), np.nan)
        for out, rows, cases in zip(found, self.of, self.parts, strict=True):
            own = weight[:, rows]
            some = own.any(axis=1)
            if some.any():
                batch = Batch(cases, np.take(own[some], cases.order, axis=1))
                out[some] = _scores(batch, CHANGED)
        return np.asarray(found[1] - found[0])


def _add_estimates(found: Evaluation, i: int, name: str, draws: Sequence[Floats]) -> None:
    """Add the scores of a set; `draws` are the replicates (R, K) of each file, none without a bootstrap."""
    wholes = [case.cases.weighted() for case in found.cases[i, name]]
    specs = [found.spec(key) for key in found.replicated]
    values = np.array([[spec(whole) for spec in specs] for whole in wholes])
    replicates = np.stack(draws) if draws else np.full((len(values), 1, len(specs)), np.nan)
    found.replicates[i, name] = values, replicates
    own = dict(zip(found.replicated, stats.scored(specs, wholes, values, replicates), strict=True))
    # The scores of other rules come from `score` alone, without intervals.
    if found.settings.rules != "corrected":
        own = {key: own[key] for key in selective.names(found.settings.referred)}
    found.estimates.update({(i, name, key): quantity for key, quantity in own.items()})
    blocks = [file[name].scores for file in found.files[i] if name in file.sets]
    for key in {key for block in blocks for key in block}:
        found.estimates[i, name, key] = _of_files([block[key] for block in blocks], own.get(key))


def _of_files(scores: Sequence[ScoreValue], own: Quantity | None) -> Quantity:
    """Merge the scores of the seeds: their mean, its standard error, and the interval of the mean."""

    value, low, high = np.array([(one.value, one.low, one.high) for one in scores], np.float64).T
    if len(scores) == 1:
        return Quantity(float(value[0]), float(low[0]), float(high[0]))
    error = float(value.std(ddof=1) / np.sqrt(len(scores)))
    if own is not None:
        return Quantity(float(value.mean()), own.low, own.high, error)
    return Quantity(float(value.mean()), float(low.mean()), float(high.mean()), error)


def _add_curves(found: Evaluation, i: int, name: str) -> None:
    replicates = min(found.settings.bootstrap, MOST_BAND_REPLICATES)
    values, curves = stats.replicated(found.cases[i, name], stats.AllCurves, replicates, found.settings.seed)
    low, high = percentile_interval(curves.mean(axis=0), points=True)
    start = 0
    grids: dict[str, Floats] = dict.fromkeys((*stats.METRICS, "roc"), stats.GRID)
    for key, x in {**grids, "observed": np.arange(stats.BINS, dtype=np.float64)}.items():
        part = slice(start, start + len(x))
        start = part.stop
        found.curves[i, name, key] = Band(x, values[:, part].mean(axis=0), low[part], high[part])


def _add_changes(found: Evaluation, i: int) -> None:
    """Add shifted minus in-domain; patients are resampled once for both, as a patient may have images in both."""
    if "joint" not in found.sets or not all((i, name) in found.cases for name in stats.SETS):
        return

    values, replicates = stats.replicated(
        found.cases[i, "joint"], _Changes, found.settings.bootstrap, found.settings.seed
    )
    specs = [SCORES[key] for key in CHANGED]
    wholes = [case.cases.weighted() for name in stats.SETS[:2] for case in found.cases[i, name]]
    for key, quantity in zip(CHANGED, stats.differences(specs, wholes, values, replicates), strict=True):
        found.changes[i, key] = quantity
