"""All scores of one set of images by the corrected rules, with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retinabench.metrics.calibration.set_calibration import set_calibration
from retinabench.metrics.clinical.baseline import baseline_of
from retinabench.metrics.inference.bootstrap import cluster_bootstrap
from retinabench.metrics.inference.interval_methods import Ends
from retinabench.metrics.inference.replicates import Steps, one_blas_thread
from retinabench.metrics.registry import SCORES
from retinabench.metrics.results import REFERRED, RetainedImages, ScoreValue, SetScores
from retinabench.metrics.score_spec import ScoreSpec
from retinabench.metrics.selective import referral_curves
from retinabench.metrics.selective.referral_curves import Curve
from retinabench.metrics.sets import ImageSet, SetEvaluator
from retinabench.metrics.sorted_images import MANY, Cases, Weighted
from retinabench.predictions.table import Predictions

Floats = NDArray[np.float64]
MAIN_CURVES = ("accuracy", "nll", "auroc", "auprc", "sensitivity", "specificity", "prevalence")
CONTROL_CURVES = ("accuracy", "nll", "auroc")
CONTROL_SUMMARIES = ("rc_index", "aurc", "e_aurc", "augrc")


def interval_of(spec: ScoreSpec, whole: Weighted, value: float, draws: Floats, level: float) -> Ends:
    """Return the interval of one score on one set, or why it has no value or no interval.

    Args:
        spec: The score.
        whole: Every image of the set once.
        value: The score.
        draws: (R,) its replicates; (0,) where no interval is asked for.
        level: Level of the interval.

    Returns:
        The ends, NaN without replicates.
    """
    if not np.isfinite(value):
        return Ends(why=spec.why_undefined(whole))
    return spec.interval.ends([whole], value, draws, level) if len(draws) else Ends()


class BootstrapSettings(NamedTuple):
    """How intervals are computed, and the scores whose replicates (R, K) are kept, by the name of the set."""

    replicates: int
    seed: int
    level: float
    workers: int | None
    wanted: Sequence[ScoreSpec]
    kept: dict[str, Floats]


def scored_sets(
    sets: list[ImageSet],
    validation: Predictions | None,
    settings: BootstrapSettings,
    advance: Callable[[int], None] | None,
) -> dict[str, SetScores]:
    """Return the scores of every set by the corrected rules.

    Args:
        sets: The sets. The list is emptied: the indexes of a million images take several hundred megabytes and are given up with their set.
        validation: Images on which the prior is corrected; None: on each set itself.
        settings: How intervals are computed.
        advance: Called with the number of further replicates that are done, in all sets together.
    """
    work = settings.replicates * sum(map(len, sets))
    done = Steps(advance or (lambda steps: None), settings.replicates, max(work, 1))
    found: dict[str, SetScores] = {}
    with one_blas_thread():
        while sets:
            name = sets[0].name
            found[name] = _scored(sets.pop(0), validation, settings, done)
    return found


def _scored(
    images: ImageSet, validation: Predictions | None, settings: BootstrapSettings, done: Steps
) -> SetScores:
    """Return all scores of one set by the corrected rules.

    Args:
        images: The set.
        validation: Images on which the prior is corrected; None: on the set itself.
        settings: How intervals are computed.
        done: Counts the replicates that are done.
    """
    bootstrap, seed, level = settings[:3]
    whole = images.whole
    curves = {metric: _read(referral_curves.curve_of(whole, metric)) for metric in MAIN_CURVES}
    areas = {f"referral_{metric}_area": curve for metric, curve in curves.items()}
    point = np.array([areas[s.name].area if s.name in areas else s(whole) for s in images.scores])
    draws = _replicates(images, point, settings, done)
    scores = {}
    for spec, value, column in zip(images.scores, point.tolist(), draws.T, strict=True):
        low, high, why = interval_of(spec, whole, value, column, level)
        reach = areas[spec.name].reach if spec.name in areas else None
        scores[spec.name] = ScoreValue(value, low, high, spec.version, reach, why)
    cases, weight = images.cases, whole.weight
    retained = {f"{r:g}": _classes(whole, r) for r in REFERRED}
    whole.forget_curves()
    if len(cases) > MANY:
        cases.forget()
    calibration = set_calibration(whole, seed, level)
    baseline = None
    if images.name != "balanced":
        baseline = baseline_of(whole, validation, bootstrap=bootstrap, seed=seed, level=level)
    del whole
    return SetScores(
        len(images),
        images.patients,
        images.positives,
        scores,
        referral={metric: curve.referral for metric, curve in curves.items()},
        calibration=calibration,
        retained=retained,
        controls={
            "random": _control(cases, np.zeros(len(cases)), weight),
            "oracle": _control(cases, cases.error, weight),
        },
        baseline=baseline,
    )


def _replicates(images: ImageSet, point: Floats, settings: BootstrapSettings, done: Steps) -> Floats:
    """The bootstrap replicates (R, K) of the scores whose intervals need them, NaN of the others; those wanted are kept."""
    replicates = settings.replicates
    draws = np.full((replicates, len(point)), np.nan)
    columns = [k for k, spec in enumerate(images.scores) if spec.interval.resampled]
    wanted = settings.wanted if images.name != "balanced" else ()
    if replicates:
        statistic = SetEvaluator(
            images,
            [*(images.scores[k] for k in columns), *wanted],
            np.append(point[columns], [spec(images.whole) for spec in wanted]),
        )
        found = cluster_bootstrap(
            statistic, images.cluster, replicates=replicates, seed=settings.seed, workers=settings.workers,
            advance=lambda rows: done.add(rows * len(images)),
        )  # fmt: skip
        draws[:, columns] = found[:, : len(columns)]
        if wanted:
            settings.kept[images.name] = found[:, len(columns) :]
    return draws


class ReadCurve(NamedTuple):
    """What is shown of a curve: its area, how far it enters it (None unless it ranks classes), and its value by fraction referred."""

    area: float
    reach: float | None
    referral: dict[str, float]


def _read(curve: Curve) -> ReadCurve:
    reach = curve.reach if referral_curves.ranks_classes(curve.metric) else None
    return ReadCurve(curve.area, reach, {f"{r:g}": curve.at(r) for r in REFERRED})


def _classes(w: Weighted, referred: float) -> RetainedImages:
    """The retained images where this fraction is referred."""
    count = len(w.points)
    fractions = np.arange(count) / count
    if fractions[-1] < referred:
        return RetainedImages(np.nan, np.nan)
    k = count - 1 - int(np.argmax(fractions >= referred - 1e-9))
    return RetainedImages(float(w.retained_positives[k]), float(w.retained_negatives[k]))


def _control(cases: Cases, uncertainty: Floats | NDArray[np.bool_], weight: Floats) -> dict[str, float]:
    """Summaries of the same predictions in another order of referral, for the same axes."""
    other = cases.reordered(uncertainty).weighted(weight)
    values = {f"referral_{metric}_area": referral_curves.area_of(other, metric) for metric in CONTROL_CURVES}
    return values | {name: SCORES[name](other) for name in CONTROL_SUMMARIES}
