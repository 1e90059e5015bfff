"""The new patients of a monitored threshold, day by day, and the wealth of the bets against its promise.

Let x_1, x_2, … >= -1 be observed one after the other. The hypothesis is E[x_t | past] <= 0 for every t: under it, no
bets on positive x have an expected gain. Staking a share lambda < 1 from time k on gives the wealth prod_{s > k} (1 + lambda x_s).
The wealth here is the average over shares lambda and starting times k,

    W_t = mean_lambda [ sum_{k < t} w_k prod_{k < s <= t} (1 + lambda x_s) + r_t ],    r_t = 1 - sum_{k < t} w_k,

a nonnegative supermartingale that starts at 1. By Ville's inequality P(W_t >= 1 / level for some t) <= level: an alarm at
1 / level is raised at most at the stated rate, however often and for however long one looks. The weights w_k = r_k - r_{k+1} with
r_k = 1 / log2(k + 3) for k >= 1 and r_0 = 1 put one half on the start, and fall slowly enough that a change after k steps costs
only about log(k) + 2 log(log(k)) of the logarithm of the wealth.

The unit of every sequential test is a visit: the images of a patient on a day. Visits are ordered by day and, within a day, by patient id. The
order depends on nothing else, so that a file to which later days were added gives the same history again. A patient who was misjudged once
is likely to be misjudged again, so that the visits of a patient may not follow each other in one sequence of bets. The first visits of all
patients are one sequence, their second visits another, and so on; each has other patients at every step. With W^v_t the wealth of the sequence
of the v-th visits, the evidence is

    max_v w_v W^v_t,    w_v = 1 / (v (v + 1)).

The weights add up to 1: by Ville's inequality for each sequence and the sum over the sequences, the evidence reaches 1 / level with a probability
of at most `level`, however the visits of a patient depend on each other.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, nearest
from retinabench.metrics.clinical.groups import group_labels
from retinabench.metrics.image_sets import referral_uncertainty
from retinabench.metrics.weighted_images import Bools, Floats
from retinabench.predictions.check import own_patients, refuse_alike
from retinabench.predictions.columns import LABELLED
from retinabench.predictions.table import Predictions

BETS: Floats = np.asarray(0.5 ** np.arange(1, 9), np.float64)
"""Shares of the wealth that are staked; the best one against a share p of errors at goal a is (p - a) / (1 - a)."""

DROP = 4.0  # in log likelihood: holds the onset in 97 to 99 % of simulated alarms (`benchmarks/new_data.py`)
Days = NDArray[np.datetime64]
_DAY = re.compile(r"(\d{4})-(\d{2})(-(\d{2})([T ].*)?)?$")
_WITH_POINTS = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})$")  # always the day first
MOST_WINDOWS = 36
MOST_REFERENCE = 1000  # validation patients whose values a certificate keeps, by which drift is seen


def log_wealth(increments: ArrayLike) -> Floats:
    x = np.asarray(increments, np.float64)
    if x.size and not x.min() >= -1 - 1e-12:
        raise InputError(f"an increment is {x.min()}, below -1")
    steps = x.shape[-1]
    remaining = np.append(1.0, 1 / np.log2(np.arange(1, steps + 1) + 3.0))
    weight = np.log(-np.diff(remaining))
    total = np.full(x.shape, -np.inf)
    for bet in BETS:
        gains = np.cumsum(np.log1p(bet * x), axis=-1)
        before = np.concatenate([np.zeros((*x.shape[:-1], 1)), gains[..., :-1]], axis=-1)
        started = gains + np.logaddexp.accumulate(weight - before, axis=-1)
        np.logaddexp(total, np.logaddexp(started, np.log(remaining[1:])), out=total)
    return np.asarray(total - np.log(len(BETS)))


def mean_log_wealth(streams: ArrayLike) -> Floats:
    """Return the logarithm of the mean of R wealths: (R, T) to (T,); again an e-process."""
    each = np.asarray(streams, np.float64)
    return np.asarray(np.logaddexp.reduce(each, axis=0) - np.log(len(each)))


def first_alarm(log_wealths: ArrayLike, level: float) -> int | None:
    """Return the first step (from 0) at which the wealth reaches 1 / level, or None."""
    reached = np.flatnonzero(np.asarray(log_wealths) >= -np.log(level))
    return int(reached[0]) if len(reached) else None


def onset(increments: ArrayLike) -> tuple[int, int, int]:
    """Return from which step on the increments (T,) pay: the likeliest, and the first and last that are likely, too.

    The steps k … T are as likely to pay as the best of the bets on all of them wins, max_lambda sum_{s >= k} log(1 + lambda x_s), against
    x with mean 0; likely is what lies within `DROP` of the largest.
    """
    gains = np.log1p(BETS[:, None] * np.asarray(increments, np.float64))
    since = np.cumsum(gains[:, ::-1], axis=1)[:, ::-1].max(axis=0)
    likely = np.flatnonzero(since >= since.max() - DROP)
    return int(since.argmax()), int(likely[0]), int(likely[-1])


def conformal_p_values(reference: ArrayLike, values: ArrayLike, seed: int = 0) -> Floats:
    """Return the conformal p-value of each value among the reference and all values before it.

    p_t = (#{earlier > v_t} + U_t (#{earlier = v_t} + 1)) / (number of earlier values + 1) with U_t uniform. If reference and
    values are exchangeable, the p-values are independent and uniform on (0, 1), exactly.
    """
    earlier = np.sort(np.asarray(reference, np.float64)).tolist()
    sequence = np.asarray(values, np.float64).tolist()
    uniform = np.random.default_rng([seed, 0xC0DF]).random(len(sequence)).tolist()
    p_values = []
    for value, u in zip(sequence, uniform, strict=True):
        low, high = bisect_left(earlier, value), bisect_right(earlier, value)
        p_values.append((len(earlier) - high + u * (high - low + 1)) / (len(earlier) + 1))
        earlier.insert(high, value)
    return np.array(p_values)


def drift_log_wealth(p_values: ArrayLike) -> Floats:
    """Return the logarithm of the wealth of bets against independent uniform p-values.

    A quarter each is bet on p being high, low, extreme and central. Their increments 2p - 1, 1 - 2p,
    12 (p - 1/2)^2 - 1 and (1 - 12 (p - 1/2)^2) / 2 have mean 0 for uniform p and are at least -1.
    """
    p = np.asarray(p_values, np.float64)
    line, bowl = 2 * p - 1, 12 * (p - 0.5) ** 2 - 1
    return mean_log_wealth(log_wealth(np.stack([line, -line, bowl, -bowl / 2])))


@dataclass(frozen=True, eq=False)
class Watched:
    """N images with what is known of each, (N,); `group` is "" where groups are not told apart."""

    image_id: NDArray[np.str_]
    patient: NDArray[np.str_]
    label: Bools
    labelled: Bools
    prob: Floats
    uncertainty: Floats
    grade: NDArray[np.int8]
    day: Days
    group: NDArray[np.str_]

    def __len__(self) -> int:
        return len(self.image_id)

    def take(self, rows: NDArray[Any]) -> Watched:
        return Watched(**{one.name: getattr(self, one.name)[rows] for one in fields(self)})

    @classmethod
    def of(
        cls,
        images: Predictions,
        uncertainty: str,
        date_column: str | None,
        decision: float = 0.5,
        within: str | None = None,
    ) -> Watched:
        n, patient, labelled = len(images), images.patient_id, images.subgroups.get(LABELLED)
        if patient is None:
            patient, _ = own_patients(np.full(n, ""), images.image_id)
        known = np.ones(n, bool) if labelled is None else labelled != "no"
        values, _ = referral_uncertainty(images, uncertainty, threshold=decision)
        grade = np.full(n, -1, np.int8) if images.grade is None else images.grade
        day = np.full(n, "NaT", "datetime64[D]") if date_column is None else days(images, date_column)
        group = np.full(n, "") if within is None else group_labels(images, within)
        return cls(images.image_id, patient, images.label == 1, known, images.prob, values, grade, day, group)

    @classmethod
    def together(cls, parts: Sequence[Watched]) -> Watched:
        whole = cls(**{one.name: np.concatenate([getattr(p, one.name) for p in parts]) for one in fields(cls)})
        names, counts = np.unique(whole.image_id, return_counts=True)
        for column in ("image_id", "patient"):
            refuse_alike([getattr(part, column) for part in parts], column.replace("patient", "patient_id"))
        if (counts > 1).any():
            twice = names[counts > 1][0]
            raise InputError(f"image '{twice[:60]}' is in two files", column="image_id", hint="Give every image once.")
        return whole


def follow_up(
    files: Sequence[Predictions], uncertainty: str, decision: float, date_column: str, within: str | None = None
) -> tuple[Watched, Watched | None]:
    tests, references = [], []
    for one in files:
        if (part := one.select(split="test", unlabelled=True)) is not None:
            tests.append(Watched.of(part, uncertainty, date_column, decision, within))
        if (part := one.select(domain="in_domain", split="validation", unlabelled=True)) is not None:
            references.append(Watched.of(part, uncertainty, None, decision))
    if not tests:
        hint = "Leave the column out for new images."
        raise InputError("no file holds images of the test split", column="split", hint=hint)
    return Watched.together(tests), Watched.together(references) if references else None


def days(predictions: Predictions, column: str) -> Days:
    if column not in predictions.subgroups:
        known = [name for name in predictions.subgroups if name != LABELLED]
        hint = nearest(column, known) if known else "The file has no further columns."
        raise InputError("is missing", file=predictions.source, column=column, hint=hint)
    levels, codes = np.unique(predictions.subgroups[column].astype(str), return_inverse=True)
    found = np.full(len(levels), "NaT", "datetime64[D]")
    for k, text in enumerate(levels.tolist()):
        if points := _WITH_POINTS.match(text.strip()):
            text = f"{points[3]}-{points[2]:0>2}-{points[1]:0>2}"
        if match := _DAY.match(text.strip()):
            try:
                found[k] = np.datetime64(f"{match[1]}-{match[2]}-{match[4] or '01'}", "D")
            except ValueError:  # such as the 31st of February
                continue
    if np.isnat(found).any():
        row = int(np.flatnonzero(np.isnat(found)[codes])[0])
        shown = str(predictions.subgroups[column][row])[:40]
        problem = f"is '{shown}', not a date" if shown else "is empty"
        hint = "Write dates as 2026-03-31 or 31.03.2026."
        raise InputError(problem, file=predictions.source, row=predictions.file_row(row), column=column, hint=hint)
    return np.asarray(found[codes])


@dataclass(frozen=True, eq=False)
class Visits:
    """The visits of patients as they are watched: `of_image` (N,) the visit of each image, `day` (T,), `number` (T,) which of its patient it is, from 1."""

    of_image: NDArray[np.intp]
    day: Days
    number: NDArray[np.intp]

    @classmethod
    def of(cls, images: Watched) -> Visits:
        """Order the visits of some images by day, and by patient id within a day."""
        _, codes = np.unique(images.patient, return_inverse=True)  # codes follow the ids
        order = np.lexsort((codes, images.day))
        day, patient = images.day[order], codes[order]
        first = np.append(True, (day[1:] != day[:-1]) | (patient[1:] != patient[:-1]))
        of_image = np.empty(len(order), np.intp)
        of_image[order] = np.cumsum(first) - 1
        patient = patient[first]
        by_patient = np.argsort(patient, kind="stable")
        starts = np.searchsorted(patient[by_patient], patient[by_patient])
        number = np.empty(len(patient), np.intp)
        number[by_patient] = np.arange(len(patient)) - starts + 1
        return cls(of_image, day[first], number)

    def sums(self, values: Floats | Bools) -> Floats:
        """(T,) sums of (N,) values over the images of each visit."""
        return np.asarray(np.bincount(self.of_image, values, minlength=len(self.day)), np.float64)

    def evidence(self, log_wealth_of: Callable[[NDArray[np.intp]], Floats]) -> Floats:
        """(T,) log of the weighted largest wealth; `log_wealth_of` some visits is the log wealth of the bets on these, in their order."""
        largest = np.full(len(self.day), -np.inf)
        for number in np.unique(self.number):
            visits = np.flatnonzero(self.number == number)
            path = np.append(0.0, log_wealth_of(visits)) - np.log(number * (number + 1))
            steps = np.cumsum(self.number == number)  # how many of them have been seen
            np.maximum(largest, path[steps], out=largest)
        return largest


def one_image_each(image_id: NDArray[np.str_], codes: NDArray[np.intp], most: int = 1) -> NDArray[np.intp]:
    """Choose one image of each patient, or `most` of them, by a hash of its id.

    The choice does not depend on how many images a patient has, on their order or on what the model said of them: the value of
    the chosen image has one distribution, whether all images of a patient are there or those of one visit.
    """
    digest = np.array([hashlib.blake2b(name.encode(), digest_size=8).digest() for name in image_id.tolist()])
    order = np.lexsort((digest, codes))
    ranked = codes[order]
    first = np.append(np.full(min(most, len(order)), True), ranked[most:] != ranked[:-most])
    return np.asarray(order[first], np.intp)


def reference_values(images: Watched) -> dict[str, list[float]]:
    """Return probability and uncertainty of an image of each patient, of at most `MOST_REFERENCE` patients, in order of size."""
    codes = np.unique(images.patient, return_inverse=True)[1]
    rows = one_image_each(images.image_id, codes)
    rows = rows[one_image_each(images.image_id[rows], np.zeros(len(rows), np.intp), MOST_REFERENCE)]
    return {name: np.sort(getattr(images, name)[rows]).tolist() for name in ("prob", "uncertainty")}


def windows(day: Days) -> tuple[Days, NDArray[np.intp], str]:
    """Cut time into days, weeks, months or years: the finest that gives at most `MOST_WINDOWS` windows; `day` (N,) -> (W,)."""
    monday = day - (day.astype(np.int64) + 3) % 7
    cuts = {"day": day, "week": monday, "month": day.astype("datetime64[M]"), "year": day.astype("datetime64[Y]")}
    for name, cut in cuts.items():
        start, number = np.unique(cut, return_inverse=True)
        if len(start) <= MOST_WINDOWS or name == "year":
            break
    return start.astype("datetime64[D]"), np.asarray(number, np.intp), name
