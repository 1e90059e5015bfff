"""The points of the referral, ROC and calibration figures, with the text that the page shows for each."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure
from numpy.typing import NDArray

from retinabench.reports.evaluation.evaluation import Band, Evaluation
from retinabench.reports.evaluation.set_statistics import BINS, GRID, Floats, SetPredictions
from retinabench.reports.toolkit.hover import Trace, points
from retinabench.reports.toolkit.number_format import THREE_DIGITS, TWO_DIGITS, percent, plain

STEP = 2
"""One point of the grid in so many can be pointed at."""
MOST_TRACES = 6
PLACES = GRID[::STEP]


def referral_points(figure: Figure, evaluation: Evaluation, name: str, metric: str) -> Markup:
    """Return the points of a referral figure, after it was drawn."""
    label = {"accuracy": "accuracy", "auroc": "AUROC", "nll": "NLL"}[metric]
    traces = []
    for i in _methods(evaluation):
        band = evaluation.curves.get((i, name, metric))
        if band is not None and np.isfinite(band.y).any():
            texts = [f"{label} {text}" for text in _texts(band, STEP)]
            traces.append(_trace(evaluation, i, name, band.y[::STEP], texts))
    return points(figure.axes[0], "referral", traces, [f"{percent(share)} referred" for share in PLACES])


def roc_points(figure: Figure, evaluation: Evaluation, name: str) -> Markup:
    """Return the points of an ROC figure; each leads to the bin of probabilities that its threshold lies in."""
    traces = []
    for i in _methods(evaluation):
        band, case = evaluation.curves.get((i, name, "roc")), evaluation.first(i, name)
        if band is None or case is None or not np.isfinite(band.y).any():
            continue
        cuts = _cuts(case)
        alone = len(evaluation.methods[i].predictions) == 1
        said = [f", P above {plain(cut, 3)}" if alone else "" for cut in cuts]
        texts = [f"sensitivity {text}{cut}" for text, cut in zip(_texts(band, STEP), said, strict=True)]
        to = _bin_places(case)[case.bins_of(cuts)]
        traces.append(_trace(evaluation, i, name, band.y[::STEP], texts, to.tolist(), cuts))
    return points(figure.axes[0], "roc", traces, [f"Specificity {plain(1 - fpr)}" for fpr in PLACES])


def observed_points(figure: Figure, evaluation: Evaluation, i: int) -> Markup:
    """Return the points of the calibration figure of a method; each leads to the threshold at its mean probability."""
    traces = []
    for name, color in (("in_domain", "good"), ("shifted", "bad")):
        case, band = evaluation.first(i, name), evaluation.curves.get((i, name, "observed"))
        if case is None or band is None:
            continue
        x, filled = predicted_by_bin(case)
        part = Band(band.x[filled], band.y[filled], band.low[filled], band.high[filled])
        texts = [f"predicted {plain(p)}, observed {text}" for p, text in zip(x, _texts(part, 1), strict=True)]
        called = (case.prob[~case.label][None] > x[:, None]).mean(axis=1) if (~case.label).any() else 0 * x
        to = np.rint(called * (len(PLACES) - 1)).astype(int).tolist()
        label = {"in_domain": "in-domain", "shifted": "shifted"}[name]
        traces.append(Trace(f"{i}|{name}", label, color, x, part.y, texts, to))
    return points(figure.axes[0], f"reliability-{i}", traces)


def predicted_by_bin(case: SetPredictions) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the mean probability of every bin that holds an image, and (BINS,) which do."""
    total = np.bincount(case.bins, minlength=BINS)
    filled = total > 0
    return np.bincount(case.bins, case.prob, BINS)[filled] / total[filled], filled


def _methods(evaluation: Evaluation) -> list[int]:
    """Return the first methods, the leading one among them."""
    rest = [i for i in range(len(evaluation.methods)) if i != evaluation.leader]
    return sorted([evaluation.leader, *rest[: MOST_TRACES - 1]])


def _trace(
    evaluation: Evaluation,
    i: int,
    name: str,
    y: Floats,
    texts: list[str],
    to: list[int] | None = None,
    cuts: Floats | None = None,
) -> Trace:
    color = f"c{evaluation.marks[i].hue}"
    return Trace(f"{i}|{name}", evaluation.methods[i].name, color, PLACES, y, texts, to or (), cuts)


def _texts(band: Band, step: int) -> list[str]:
    found = []
    for value, low, high in zip(band.y[::step], band.low[::step], band.high[::step], strict=True):
        form = THREE_DIGITS if not np.isfinite(high - low) else TWO_DIGITS.fitted(float(high - low))
        found.append(f"{form(float(value))} {form.interval(float(low), float(high))}".rstrip())
    return found


def _bin_places(case: SetPredictions) -> NDArray[np.intp]:
    """Return (BINS,) the place of each bin among those that hold an image; of an empty one, that of the next below."""
    return np.asarray(np.maximum(np.cumsum(predicted_by_bin(case)[1]) - 1, 0), np.intp)


def _cuts(case: SetPredictions) -> Floats:
    """Return for each place on the horizontal axis the threshold above which at most this share of the negatives lies."""
    negatives = np.sort(case.prob[~case.label])[::-1]
    allowed = np.floor(PLACES * len(negatives) + 1e-9).astype(int)
    return np.asarray(np.append(negatives, 0.0)[np.minimum(allowed, len(negatives))], np.float64)
