"""The model beside several readers, with patients *and* readers as random: what holds for other readers like these.

J readers call the same images. With theta_j the rate of reader j (or its distance from that of the model), the patients' parts phi_gj of it (the
linearised contribution of patient g), and

    C2 = mean over pairs j != k of G / (G - 1) sum_g phi_gj phi_gk,     M = sum_j (theta_j - mean)^2 / (J - 1)

the mean over readers has the variance (M + J max(C2, 0)) / J and Student's t with (M + J max(C2, 0))^2 / (M^2 / (J - 1)) degrees of freedom.

References:
    Obuchowski and Rockette, Hypothesis testing of diagnostic accuracy for multiple readers and multiple tests, Commun. Stat. Simul. 24:285
    (1995); Hillis, A comparison of denominator degrees of freedom methods for multiple observer ROC analysis, Stat. Med. 26:596 (2007).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from retinabench.core.errors import InputError
from retinabench.core.results import Document
from retinabench.metrics.intervals import Interval, clustered_proportion
from retinabench.metrics.weighted_images import Bools, Floats
from retinabench.predictions.table import Predictions

PREFIX = "reader_"  # of the columns that hold the calls of a reader


@dataclass(frozen=True)
class BesideReaders(Document):
    """Sensitivity or specificity of every reader, of the mean of readers like these, and the model's less that mean, with p of "no difference"."""

    images: int
    readers: Mapping[str, Interval]
    model: Interval
    mean_reader: Interval
    model_minus_mean: Interval
    p_value: float

    @property
    def verdict(self) -> str:
        gap = self.model_minus_mean
        return "higher" if gap.low > 0 else "lower" if gap.high < 0 else "not shown to differ"


def reader_calls(part: Predictions) -> dict[str, Floats]:
    calls = {}
    for column, values in part.subgroups.items():
        if not column.lower().startswith(PREFIX):
            continue
        known = values if values.dtype.kind == "f" else np.where(values == "", "nan", values)
        try:
            found = np.asarray(known, np.float64)
        except ValueError:
            found = np.full(len(part), -1.0)
        wrong = np.flatnonzero(~(np.isnan(found) | np.isin(found, (0, 1))))
        if len(wrong):
            problem = f"'{values[wrong[0]]}' of image '{part.image_id[wrong[0]]}' is not a call of a reader"
            raise InputError(problem, file=part.source, column=column, hint="Give 1 (referable), 0, or an empty cell.")
        calls[column[len(PREFIX) :]] = found
    return calls


def beside_readers(part: Predictions, called: Bools, codes: NDArray[np.intp]) -> dict[str, BesideReaders]:
    """Compare the model's calls with those of two or more readers, over the images that all of them read; by rate; `called`, `codes` (N,)."""
    calls = reader_calls(part)
    if len(calls) < 2:
        return {}
    table = np.stack([*calls.values(), called.astype(float)])
    all_read = np.isfinite(table).all(axis=0)
    y, found = part.label == 1, {}
    for rate, of, right in (("sensitivity", y, table), ("specificity", ~y, 1 - table)):
        rows = all_read & of
        if len(np.unique(codes[rows])) > 1:
            patients = np.unique(codes[rows], return_inverse=True)[1]
            of_readers, of_model = right[:-1, rows], right[-1, rows]
            found[rate] = compare_with_readers(list(calls), of_readers, of_model, np.ones_like(of_readers), patients)
    return found


def compare_with_readers(
    names: list[str], right: Floats, model: Floats, weight: Floats, codes: NDArray[np.intp]
) -> BesideReaders:
    """Compare correct calls of readers, `right` (J, N), with those of the model (N,), each over images of `weight` (J, N), where truths may differ by reader."""
    weight = weight * (right.shape[1] / weight.sum(axis=1, keepdims=True))
    readers = (clustered_proportion(row, each, codes) for row, each in zip(right, weight, strict=True))
    theirs, own = (_rates(calls, weight, codes) for calls in (right, np.broadcast_to(model, right.shape)))
    mean, _ = over_readers(theirs[0], _covariance(theirs[1]))
    gap = over_readers(own[0] - theirs[0], _covariance(own[1] - theirs[1]))
    bounded = Interval(mean.value, max(mean.low, 0.0), min(mean.high, 1.0))
    alone = clustered_proportion(model, weight.mean(axis=0), codes)
    return BesideReaders(right.shape[1], dict(zip(names, readers, strict=True)), alone, bounded, *gap)


def _rates(right: Floats, weight: Floats, codes: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return (J,) weighted rates, and the parts (J, G) that patients have in them."""
    theta = (weight * right).sum(axis=1) / right.shape[1]
    parts = [np.bincount(codes, each * (row - rate)) for row, each, rate in zip(right, weight, theta, strict=True)]
    return theta, np.stack(parts) / right.shape[1]


def _covariance(parts: Floats) -> Floats:
    patients = parts.shape[1]
    return np.asarray(patients / (patients - 1) * parts @ parts.T)


def over_readers(theta: Floats, covariance: Floats) -> tuple[Interval, float]:
    """Return the mean of (J,) readers with its interval for other readers and patients, and p of "0"; `covariance` (J, J) is that over patients."""
    readers = len(theta)
    shared = float((covariance.sum() - np.trace(covariance)) / (readers * (readers - 1)))
    spread, mean = float(theta.var(ddof=1)), float(theta.mean())
    sum_ = spread + readers * max(shared, 0.0)
    if not sum_ > 0:
        return Interval(mean), math.nan
    degrees = min(sum_**2 / (spread**2 / (readers - 1)), 1e9) if spread > 0 else 1e9
    error = math.sqrt(sum_ / readers)
    half = float(stdtrit(degrees, 0.975)) * error
    return Interval(mean, mean - half, mean + half), float(2 * stdtr(degrees, -abs(mean) / error))
