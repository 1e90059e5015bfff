"""Screening per site and subgroup: who is missed more often than others.

The worst group is found by looking at all of them, so that its interval must hold for all of them at once. The intervals of
the groups are therefore given at two levels: 95 % each, and simultaneously by Bonferroni's inequality, each at
1 - 0.05 / K for K groups of all columns. Bonferroni needs nothing of the groups: those of two columns share their images, and a
patient may be in two groups. A bootstrap of the largest deviation would be narrower, but its replicates of a group without an
error have no width, which is the group that matters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logit, ndtri

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import Document, JsonObject, json_content, number_text
from retinabench.metrics import intervals
from retinabench.metrics.clinical.readers import PREFIX
from retinabench.metrics.intervals import Interval, auroc_error, clustered_proportion, difference_of, loss_interval
from retinabench.metrics.weighted_images import Bools, Floats, cluster_codes
from retinabench.predictions.table import Predictions

MOST_GROUPS = 20  # A text column with more values than this is no subgroup.
AGES = (40.0, 50.0, 60.0, 70.0)
QUARTILES_ABOVE = 8  # A numeric column with more values than this is cut at its quartiles.
UNKNOWN = "not known"
NOT_GROUPS = ("gradable",)  # Columns that another part of the report reads.
FEWEST_PATIENTS = 10  # Patients of the class that a rate is about, below which nothing is said.
WIDEST = 0.3  # Width of a 95 % interval above which nothing is said.
RATES = ("sensitivity", "specificity", "auroc")
SITES = re.compile(
    r"(?i)(^|_)(site|cent(er|re)|clinic|hospital|institution|camera|device|country|region|programme)(_|s?$)"
)
FEWEST_SITES = 3


def group_members(
    part: Predictions, columns: Sequence[str] | None = None
) -> tuple[dict[str, dict[str, Bools]], dict[str, str], dict[str, str]]:
    """Return which images are in which group; (N,)."""
    for name in columns or ():
        _check_column(part, name)
    members: dict[str, dict[str, Bools]] = {}
    skipped: dict[str, str] = {}
    bins: dict[str, str] = {}
    for name in part.subgroups if columns is None else dict.fromkeys(columns):
        if columns is None and (name in NOT_GROUPS or name.lower().startswith(PREFIX)):
            continue
        found, why, cut = _groups(name, part.subgroups[name], named=columns is not None)
        if found is None and columns is not None:
            raise InputError(f"makes no groups: {why}", file=part.source, column=name)
        if found is None:
            skipped[name] = why
            continue
        members[name] = found
        if cut:
            bins[name] = cut
    return members, skipped, bins


def named_groups(part: Predictions, columns: Sequence[str] | None = None) -> dict[str, Bools]:
    """Return the images (N,) of each group of all columns by names such as `site: B`."""
    members = group_members(part, columns)[0]
    return {f"{name}: {value}": rows for name, found in members.items() for value, rows in found.items()}


def group_labels(part: Predictions, column: str) -> NDArray[np.str_]:
    """(N,) the group of each image by the values of a further column as they are, such as `site: B`; nothing is cut into ranges."""
    _check_column(part, column)
    levels, codes = np.unique(part.subgroups[column], return_inverse=True)
    if len(levels) > MOST_GROUPS:
        raise InputError(f"has {len(levels):,} values, more than {MOST_GROUPS}", file=part.source, column=column)
    texts = [number_text(one) if isinstance(one, float) and np.isfinite(one) else str(one) for one in levels.tolist()]
    names = [f"{column}: {UNKNOWN if text in ('', 'nan') else text}" for text in texts]
    return np.array(names)[codes]


def _check_column(part: Predictions, name: str) -> None:
    if name not in part.subgroups:
        hint = nearest(name, part.subgroups) if part.subgroups else "The file has no further columns."
        raise InputError(f"has no column '{name}'", file=part.source, hint=hint)


def _groups(name: str, values: NDArray[Any], *, named: bool) -> tuple[dict[str, Bools] | None, str, str]:
    """Return the rows of each group, or None with the reason, and the limits at which numbers were cut."""
    if values.dtype.kind == "f":
        return _numeric_groups(name, values)
    text = np.where(values == "", UNKNOWN, values)
    levels, counts = np.unique(text, return_counts=True)
    if len(levels) == 1:
        return None, "it has one value", ""
    if not named and all(re.match(r"\d{4}-\d\d-\d\d", level) for level in levels if level != UNKNOWN):
        return None, "it holds dates, which “retinabench monitor” reads", ""
    if len(levels) > MOST_GROUPS:
        kind = "almost every image has its own" if counts.max() <= 2 else f"it has {len(levels):,} values"
        return None, f"{kind}, more than {MOST_GROUPS}", ""
    return {str(level): text == level for level in levels}, "", ""


def _numeric_groups(name: str, values: Floats) -> tuple[dict[str, Bools] | None, str, str]:
    known = values[np.isfinite(values)]
    levels = np.unique(known)
    missing = {UNKNOWN: ~np.isfinite(values)} if len(known) < len(values) else {}
    if len(levels) < 2:
        return None, "it has one value", ""
    if len(levels) <= QUARTILES_ABOVE:
        return {number_text(level): values == level for level in levels} | missing, "", ""
    whole = bool((known == np.round(known)).all())
    if whole and len(levels) > 0.9 * len(known) and len(known) > 100 and re.search(r"(?i)id$|number|index", name):
        return None, "almost every image has its own number", ""
    if re.fullmatch(r"(?i)(patient_?)?age(_?years)?", name):
        edges, cut = np.array(AGES), "by decades: below 40, 40 to 49, 50 to 59, 60 to 69, 70 and above"
    else:
        edges, cut = np.unique(np.quantile(known, (0.25, 0.5, 0.75))), "at its quartiles"
    number = np.searchsorted(edges, values, side="right")
    ends = _end_texts(edges)
    labels = [f"below {ends[0]}", *(f"{a} to below {b}" for a, b in pairwise(ends)), f"{ends[-1]} and above"]
    held = np.isfinite(values)
    rows = {label: held & (number == k) for k, label in enumerate(labels)}
    return {label: chosen for label, chosen in rows.items() if chosen.any()} | missing, "", cut


def _end_texts(edges: Floats) -> list[str]:
    whole = int(np.log10(np.abs(edges).max() + 1)) + 2
    for digits in range(min(max(6, whole), 17), 18):
        ends = [number_text(float(f"{edge:.{digits}g}")) for edge in edges]
        if len(set(ends)) == len(ends):
            break
    return ends


@dataclass(frozen=True)
class GroupRate:
    """A rate of a group: its own interval, the simultaneous one, how far it lies from all other images, and the intervals of `between_groups`."""

    alone: Interval
    together: Interval
    gap: Interval
    for_gaps: Sequence[Interval]
    too_small: str = ""

    def to_dict(self) -> JsonObject:
        ends, gap = json_content((self.together.low, self.together.high)), self.gap.to_dict()
        return {**self.alone.to_dict(), "simultaneous": ends, "minus_others": gap, "too_small": self.too_small or None}


@dataclass(frozen=True)
class Subgroup(Document):
    """A group of images: the value `value` of the column `column`; rates are per image, after the expert has read what is referred."""

    _inline, _hidden, _keys = (
        ("rates",), ("calibration_for_gaps",), {"referral": "referral_rate", "calibration": "observed_minus_predicted"},
    )  # fmt: skip

    column: str
    value: str
    images: int
    patients: int
    positives: int
    rates: Mapping[str, GroupRate]
    referral: Interval
    calibration: Interval
    calibration_for_gaps: Sequence[Interval]

    @property
    def name(self) -> str:
        return f"{self.column}: {self.value}"


@dataclass(frozen=True)
class Subgroups:
    """The groups of all columns."""

    groups: tuple[Subgroup, ...]
    skipped: Mapping[str, str]
    bins: Mapping[str, str]
    level: float
    between: tuple[Between, ...] = ()

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(one.column for one in self.groups))

    def of(self, column: str) -> list[Subgroup]:
        return [one for one in self.groups if one.column == column]

    def worst(self, rate: str) -> Subgroup | None:
        known = [one for one in self.groups if not one.rates[rate].too_small]
        return min(known, key=lambda one: one.rates[rate].alone.value) if known else None

    def failing(self, rate: str) -> list[Subgroup]:
        """Return the groups whose rate lies below that of all other images, by the simultaneous interval."""
        return [one for one in self.groups if not one.rates[rate].too_small and one.rates[rate].gap.high < 0]

    def to_dict(self) -> JsonObject:
        worst = {rate: found.name for rate in RATES if (found := self.worst(rate)) is not None}
        failing = {rate: [one.name for one in self.failing(rate)] for rate in RATES}
        parts = {"groups": json_content(self.groups), "between": json_content(self.between), "worst": worst}
        columns = {"worse_than_others": failing, "skipped": dict(self.skipped), "bins": dict(self.bins)}
        return {**parts, **columns, "simultaneous_level": self.level}


def subgroups_of(
    part: Predictions, positive: NDArray[Any], referred: Bools, columns: Sequence[str] | None = None
) -> Subgroups:
    """Return the rates of every group; `positive` is the probability with which an image is called positive in the end; `positive`, `referred` (N,)."""
    members, skipped, bins = group_members(part, columns)
    number = sum(len(found) for found in members.values())
    level = 1 - 0.05 / max(number, 1)
    codes, _ = cluster_codes(part.patients)
    y, p = part.label == 1, part.prob

    def group(column: str, value: str, rows: Bools) -> Subgroup:
        rates, count, share = {}, max(len(members[column]), 2), 0.05 / len(members)
        at_gaps = 1 - share, 1 - share / (count * (count - 1))
        for rate, right, of in (("sensitivity", positive, y), ("specificity", 1 - positive.astype(float), ~y)):
            alone, *for_gaps = (clustered_proportion(right, of & rows, codes, at) for at in (0.95, *at_gaps))
            together, others = (
                clustered_proportion(right, of & chosen, codes, level, exact=True) for chosen in (rows, ~rows)
            )
            gap = difference_of(together, others)
            why = "" if gap.high < 0 else _too_small(alone, {rate: len(np.unique(codes[of & rows]))})
            rates[rate] = GroupRate(alone, together, gap, for_gaps, why)
        inside, outside = (auroc_error(y[k], p[k], codes[k]) if k.any() else None for k in (rows, ~rows))
        assert inside is not None
        alone, together, *for_gaps = (Interval(inside.auroc, *inside.interval(at)) for at in (0.95, level, *at_gaps))
        gap = Interval(np.nan)
        if outside is not None:
            gap = difference_of(together, Interval(outside.auroc, *outside.interval(level)))
        classes = {"referable": len(np.unique(codes[y & rows])), "healthy": len(np.unique(codes[~y & rows]))}
        rates["auroc"] = GroupRate(alone, together, gap, for_gaps, _too_small(alone, classes))
        sizes = int(rows.sum()), len(np.unique(codes[rows])), int((y & rows).sum())
        calibration, *for_gaps = (mean_residual(y[rows], p[rows], codes[rows], at) for at in (0.95, *at_gaps))
        referral = clustered_proportion(referred, rows, codes)
        return Subgroup(column, value, *sizes, rates, referral, calibration, for_gaps)

    groups = tuple(group(name, value, rows) for name, found in members.items() for value, rows in found.items())
    return Subgroups(groups, skipped, bins, level, _between(groups))


def _between(groups: Sequence[Subgroup]) -> tuple[Between, ...]:
    found = []
    for column in dict.fromkeys(one.column for one in groups):
        here = {one.name: one for one in groups if one.column == column}
        for rate in RATES:
            known = {name: one.rates[rate] for name, one in here.items() if not one.rates[rate].too_small}
            alone = {name: one.alone for name, one in known.items()}
            found.append(between_groups(column, rate, alone, [one.for_gaps for one in known.values()]))
        residuals = {name: one for name, one in here.items() if np.isfinite(one.calibration.low)}
        alone = {name: one.calibration for name, one in residuals.items()}
        for_gaps = [one.calibration_for_gaps for one in residuals.values()]
        found.append(between_groups(column, "observed_minus_predicted", alone, for_gaps))
    return tuple(one for one in found if one is not None)


def mean_residual(label: Bools, prob: Floats, codes: NDArray[np.intp], level: float = 0.95) -> Interval:
    """Return the mean of label - prob: observed minus predicted disease, with its clustered interval; `label`, `prob`, `codes` (N,).

    It is the mean of what disease exceeds its prediction, y (1 - p), less that of what predictions exceed in healthy images, (1 - y) p. Both are rare and
    large in a good model, and have the interval of such losses (`loss_interval`). The loss of the pseudo-patient, who counts as `HALF` a patient, may be anything
    between 0 and 1: the images of a small group say little of the largest loss.
    """
    value = float((label - prob).mean())
    patients = np.unique(codes, return_inverse=True)[1]
    count = patients.max() + 1
    if count == 1:
        return Interval(value)
    parts = []
    for loss in (label * (1 - prob), ~label * prob):
        sums = np.bincount(patients, loss - loss.mean())
        variance = float(count / (count - 1) * sums @ sums) / len(loss) ** 2
        pseudo = intervals.HALF / 2 / count, intervals.HALF / 3 / count**2
        parts.append(Interval(float(loss.mean()), *loss_interval(float(loss.mean()), variance, pseudo, 1.0, level)))
    return difference_of(*parts)


def _too_small(found: Interval, patients: Mapping[str, int]) -> str:
    for name, count in patients.items():
        if count < FEWEST_PATIENTS:
            kind = {"sensitivity": "referable", "specificity": "healthy"}.get(name, name)
            return f"{count} patients with a {kind} image, fewer than {FEWEST_PATIENTS}"
    if not np.isfinite(found.high - found.low):
        return "it has no interval"
    if found.high - found.low > WIDEST:
        return f"its interval is wider than {WIDEST:g}"
    return ""


@dataclass(frozen=True)
class NewSite(Document):
    """The mean rate of K sites, the std of their true rates on the logit scale (the posterior median), and where the rate of a new site lies (95 %)."""

    sites: int
    mean: Interval
    tau: float
    new_site: Interval


@dataclass(frozen=True)
class Between(Document):
    """The gap of a rate between the groups of a column; `new_site` only for columns of sites with 3 or more usable groups."""

    column: str
    rate: str
    lowest: str
    highest: str
    gap: Interval
    new_site: NewSite | None = None


def between_groups(
    column: str, rate: str, alone: Mapping[str, Interval], for_gaps: Sequence[Sequence[Interval]]
) -> Between | None:
    """Return how far a rate differs between the groups of a column, and what to expect at a new site; None for fewer than two groups.

    The gap of K groups is the largest rate less the smallest. Each end is the largest such end among the differences of all pairs of groups (`difference_of`). The
    upper end needs no correction, because that of the two groups which truly differ most misses the gap in 2.5 % of studies. The lower end leaves out 2.5 % / (K (K - 1)) of each
    pair: chance may make any pair seem different. With C columns both leave out a C-th of that, so that the gaps of a rate hold for all columns at once. The gap of sensitivity and
    that of specificity together are the violation of *equalised odds*.

    For sites, rates are taken as draws of one distribution, normal on the logit scale, of mean mu and std tau. Site k has n_k images, the effective number
    that its interval tells, and y_k of them are successes. With a flat prior of mu, and that of tau half-normal of scale 1, the posterior is

        p(mu, tau | y) ~ exp(-tau^2 / 2) prod_k integral of Binomial(y_k; n_k, expit(x)) Normal(x; mu, tau^2) dx

    The rate of a new site has the quantiles of the mixture of Normal(mu, tau^2) over it, that of the mean those of mu. Unlike a normal model of the sites' logits it needs
    no correction where a site has no error: with fewer than twenty errors per site, the intervals of such models held the rate of a new site in as few as 14 % of
    simulated studies.

    alone: the 95 % intervals of the groups. for_gaps: those of each group for the upper and for the lower end, at the levels 1 - .05 / C and 1 - .05 / (C K (K - 1)).

    References:
        Debray et al., Transparent reporting of multivariable prediction models developed or validated using clustered data (TRIPOD-Cluster),
        BMJ 380:e071018 (2023); Riley, Higgins and Deeks, Interpretation of random effects meta-analyses, BMJ 342:d549 (2011); Stijnen, Hamza and
        Özdemir, Random effects meta-analysis of event outcome in the framework of the generalized linear mixed model, Stat. Med. 29:3046 (2010); Röver et
        al., On weakly informative prior distributions for the heterogeneity parameter in Bayesian random-effects meta-analysis, Res. Synth. Methods 12:448 (2021).
    """
    if len(alone) < 2:
        return None
    ordered = sorted(alone, key=lambda name: alone[name].value)
    for_high, for_low = zip(*for_gaps, strict=True)
    most = max(difference_of(a, b).high for a, b in permutations(for_high, 2))
    least = max(difference_of(a, b).low for a, b in permutations(for_low, 2))
    gap = Interval(alone[ordered[-1]].value - alone[ordered[0]].value, max(0.0, least), most)
    new = None
    if rate in RATES and SITES.search(column) and len(alone) >= FEWEST_SITES:
        new = new_site(list(alone.values()))
    return Between(column, rate, ordered[0], ordered[-1], gap, new)


def new_site(rates: Sequence[Interval]) -> NewSite:
    """Return what the rates of K sites, with their own 95 % intervals, say of a new site."""
    trials = np.array([_trials(one) for one in rates])
    right = trials * [one.value for one in rates]
    centre = float(logit((right.sum() + 0.5) / (trials.sum() + 1)))
    x = centre + np.linspace(-8, 8, 641)
    log = right[:, None] * log_expit(x) + (trials - right)[:, None] * log_expit(-x)
    likelihood = np.exp(log - log.max(axis=1, keepdims=True))
    steps = np.linspace(-1, 1, 81)
    mu, tau = centre + 4 * steps * np.abs(steps), 3 * np.linspace(0.09, 1, 40) ** 2  # finer near the centre, and near 0
    density = np.exp(-0.5 * ((x - mu[:, None, None]) / tau[:, None]) ** 2)
    density /= density.sum(axis=-1, keepdims=True)
    log_posterior = np.log(np.maximum(density @ likelihood.T, 1e-300)).sum(axis=-1) - tau**2 / 2
    posterior = np.exp(log_posterior - log_posterior.max()) * np.gradient(mu)[:, None] * np.gradient(tau)
    posterior /= posterior.sum()
    of_mean, of_new = posterior.sum(axis=1), np.einsum("mt,mtx->x", posterior, density)
    mean = float(expit(of_mean @ mu))

    def quantiles(at: Floats | float, chance: Floats, values: Floats) -> Floats:
        return np.asarray(np.interp(at, np.cumsum(chance) - chance / 2, values))

    tails = np.array((0.025, 0.975))
    ends = [expit(quantiles(tails, chance, at)).tolist() for chance, at in ((of_mean, mu), (of_new, x))]
    middle = float(quantiles(0.5, posterior.sum(axis=0), tau))
    return NewSite(len(rates), Interval(mean, *ends[0]), middle, Interval(mean, *ends[1]))


def _trials(one: Interval) -> float:
    """The number of images that would have the interval of a rate; of a rate of 0 or 1, the exact bound."""
    if 0 < one.value < 1:
        width = float(logit(one.high) - logit(one.low)) / (2 * float(ndtri(0.975)))
        return 1 / (width**2 * one.value * (1 - one.value))
    return math.log(0.025) / math.log(one.low if one.value == 1 else 1 - one.high)
