"""What a screening programme asks: the four readings of "referred", and patients instead of images.

| reading of "referred" | sensitivity | specificity | when it is meant |
|---|---|---|---|
| `retained_only` | TP_ret / P_ret | TN_ret / N_ret | how good is the model on what it keeps |
| `screen_positive` | (TP_ret + P_ref) / P | TN_ret / N | a referred patient goes to the clinic like a positive one |
| `expert` | (TP_ret + P_ref) / P | (TN_ret + N_ref) / N | an expert who never errs: an upper bound |
| `reader` | (TP_ret + s P_ref) / P | (TN_ret + p N_ref) / N | a reader of stated sensitivity s and specificity p |

A patient is referable if one image is, called so if one retained image is, and referred if an image is and no retained one is called
referable.

>>> views = referral_views([1, 1, 0, 0], [True, False, False, False], [False, True, False, True])
>>> views["retained_only"].sensitivity, views["screen_positive"].specificity, views["expert"].specificity
(1.0, 0.5, 1.0)
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError
from retinabench.metrics.bootstrap import cluster_codes
from retinabench.metrics.proportions import Interval, binary, clustered_proportion

Floats = NDArray[np.float64]
RATES = ("sensitivity", "specificity", "accuracy", "prevalence", "positive_rate")


@dataclass(frozen=True)
class PathwayReading:
    """The (expected) counts of the whole pathway under one reading of "referred", and the rates that follow."""

    tp: float
    fp: float
    fn: float
    tn: float

    @property
    def sensitivity(self) -> float:
        """TP / (TP + FN), NaN without a positive."""
        return _share(self.tp, self.tp + self.fn)

    @property
    def specificity(self) -> float:
        """TN / (TN + FP), NaN without a negative."""
        return _share(self.tn, self.tn + self.fp)

    @property
    def accuracy(self) -> float:
        """(TP + TN) / all that are counted."""
        return _share(self.tp + self.tn, self.tp + self.fp + self.fn + self.tn)

    @property
    def prevalence(self) -> float:
        """(TP + FN) / all that are counted; referral removes positives, so it falls among the retained."""
        return _share(self.tp + self.fn, self.tp + self.fp + self.fn + self.tn)

    @property
    def positive_rate(self) -> float:
        """(TP + FP) / all that are counted: who is sent on in the end."""
        return _share(self.tp + self.fp, self.tp + self.fp + self.fn + self.tn)


def referral_views(
    label: ArrayLike,
    positive: ArrayLike,
    referred: ArrayLike,
    *,
    reader: tuple[float, float] = (0.9, 0.95),
    weight: ArrayLike | None = None,
) -> dict[str, PathwayReading]:
    """Return the rates under the four readings of "referred", which differ by far more than methods do.

    With P and N the positives and negatives, `_ret` retained, `_ref` referred, and a reader of sensitivity s, specificity p:

    | reading           | sensitivity             | specificity             |
    |-------------------|-------------------------|-------------------------|
    | `retained_only`   | TP_ret / P_ret          | TN_ret / N_ret          |
    | `screen_positive` | (TP_ret + P_ref) / P    | TN_ret / N              |
    | `expert`          | (TP_ret + P_ref) / P    | (TN_ret + N_ref) / N    |
    | `reader`          | (TP_ret + s P_ref) / P  | (TN_ret + p N_ref) / N  |

    `expert` never errs: an upper bound. `retained_only` drops the referred, and prevalence changes with them.

    Shapes: `label` (N,), `positive` (N,), `referred` (N,), `weight` (N,).
    """
    y, said, sent = binary(label, "label"), binary(positive, "positive"), binary(referred, "referred")
    _check_reader(reader)
    if not len(y) == len(said) == len(sent):
        raise InputError(f"{len(said)} calls and {len(sent)} referrals for {len(y)} labels")
    w = np.ones(len(y)) if weight is None else np.asarray(weight, np.float64)

    def count(case: NDArray[np.bool_]) -> float:
        return float(w[case].sum())

    tp, fp, fn, tn = (
        count(case) for case in (~sent & y & said, ~sent & ~y & said, ~sent & y & ~said, ~sent & ~y & ~said)
    )
    positives, negatives = count(sent & y), count(sent & ~y)

    def joined(s: float, p: float) -> PathwayReading:
        return PathwayReading(
            tp + s * positives, fp + (1 - p) * negatives, fn + (1 - s) * positives, tn + p * negatives
        )

    return {
        "retained_only": PathwayReading(tp, fp, fn, tn),
        "screen_positive": joined(1, 0),
        "expert": joined(1, 1),
        "reader": joined(*reader),
    }


def referral_view_intervals(
    label: ArrayLike,
    positive: ArrayLike,
    referred: ArrayLike,
    cluster: ArrayLike | Sequence[Hashable],
    *,
    reader: tuple[float, float] = (0.9, 0.95),
    level: float = 0.95,
) -> dict[str, dict[str, Interval]]:
    """Return `referral_views` with the intervals of `clustered_proportion`.

    The thresholds behind `positive` and `referred` are taken as frozen, and the reader's rates as known: choose and measure
    them on other data.

    Shapes: `label` (N,), `positive` (N,), `referred` (N,), `cluster` (N,).
    """
    y, sent = binary(label, "label"), binary(referred, "referred")
    calls = reading_calls(y, binary(positive, "positive"), sent, reader)
    codes, _ = cluster_codes(cluster)
    found = {}
    for name, called in calls.items():
        counted = ~sent if name == "retained_only" else np.ones(len(y), bool)
        right = np.where(y, called, 1 - called)
        of = {
            "sensitivity": (called, y & counted), "specificity": (1 - called, ~y & counted),
            "accuracy": (right, counted), "prevalence": (y, counted), "positive_rate": (called, counted),
        }  # fmt: skip
        found[name] = {rate: clustered_proportion(*of[rate], codes, level) for rate in RATES}
    return found


def reading_calls(
    label: NDArray[np.bool_],
    positive: NDArray[np.bool_],
    referred: NDArray[np.bool_],
    reader: tuple[float, float],
) -> dict[str, Floats]:
    """Return the probability with which each image is called positive in the end, under each reading of "referred".

    Shapes: `label` (N,), `positive` (N,), `referred` (N,), returns (N,).
    """
    _check_reader(reader)
    said = positive.astype(np.float64)
    read = np.where(label, reader[0], 1 - reader[1])
    return {
        "retained_only": said,
        "screen_positive": np.where(referred, 1.0, said),
        "expert": np.where(referred, label, said),
        "reader": np.where(referred, read, said),
    }


@dataclass(frozen=True)
class ScreenedPatients:
    """One row per patient, in the order of the sorted ids; G patients."""

    label: NDArray[np.bool_]
    prob: Floats
    positive: NDArray[np.bool_]
    referred: NDArray[np.bool_]
    images: NDArray[np.int64]


def patient_level(
    label: ArrayLike,
    prob: ArrayLike,
    patient: ArrayLike | Sequence[Hashable],
    *,
    threshold: float = 0.5,
    referred: ArrayLike | None = None,
) -> ScreenedPatients:
    """Return one row per patient by the any-eye reading: a patient is referable if one eye is, and called so if one eye is.

    The patient's prob is the largest of the retained images (of all images where none is retained). Referred means that some
    image is referred and no retained one is positive: a positive patient sees the specialist in any case. The pivotal trial
    of IDx-DR judged participants so: "in at least one eye".

    Shapes: `label` (N,), `prob` (N,), `patient` (N,), `referred` (N,).
    """
    y, p = binary(label, "label"), np.asarray(prob, np.float64)
    sent = np.zeros(len(y), bool) if referred is None else binary(referred, "referred")
    codes, patients = cluster_codes(patient)
    if not len(y) == len(p) == len(sent) == len(codes):
        raise InputError(
            f"{len(p)} probabilities, {len(sent)} referrals, {len(codes)} ids for {len(y)} labels"
        )

    def any_eye(case: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return np.bincount(codes, case, patients) > 0

    positive = any_eye((p >= threshold) & ~sent)
    alone = ~any_eye(~sent)[codes]  # images of patients all of whose images are referred
    largest = np.full(patients, -np.inf)
    shown = ~sent | alone
    np.maximum.at(largest, codes[shown], p[shown])
    return ScreenedPatients(
        any_eye(y), largest, positive, any_eye(sent) & ~positive, np.bincount(codes, minlength=patients)
    )


def _check_reader(reader: tuple[float, float]) -> None:
    if not all(0 <= rate <= 1 for rate in reader):
        raise InputError(f"the reader's sensitivity and specificity are {reader}", hint="Both lie in [0, 1].")


def _share(top: float, bottom: float) -> float:
    return top / bottom if bottom > 0 else float("nan")
