"""All numbers of a report, gathered once; page, table and console only read them.

Scores come from `retinabench.score`. What the report adds (referral of half the pictures, the change under shift,
paired differences between methods, bands of curves) is drawn here, with the same patients in every replicate.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from retinabench.core.errors import InputError
from retinabench.metrics.inference.bootstrap import percentile_interval
from retinabench.metrics.registry import SCORES
from retinabench.metrics.selective import half_referred
from retinabench.metrics.sets import SET_LABELS
from retinabench.metrics.sorted_images import Cases
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation import evidence as ev
from retinabench.reports.evaluation.evidence import Estimate, Floats, SetCase
from retinabench.reports.toolkit.style import Mark, mark

Progress = Callable[[str, float], None]
MOST_BAND_DRAWS = 300
BASIC = (
    "auroc", "accuracy", "nll", "ece_top_label", "referral_accuracy_area", "failure_auroc",
)  # fmt: skip
"""Scores whose draws the report needs, for paired differences between methods and for the mean of several seeds."""
DRAWN = (*half_referred.NAMES, *BASIC)
LEAD = "accuracy_at_50"
CHANGED = ("auroc", "accuracy", "nll")


@dataclass(frozen=True)
class Entry:
    """One method by its name, with the predictions of one or more seeds."""

    name: str
    predictions: tuple[Predictions, ...]

    @classmethod
    def of(cls, name: str, predictions: Predictions | Sequence[Predictions]) -> Entry:
        """Make an entry from one file or several seeds; raises `InputError` where there is none."""
        files = (predictions,) if isinstance(predictions, Predictions) else tuple(predictions)
        if not files:
            raise InputError(f"method '{name}' has no predictions", hint="Give one file or more.")
        return cls(name, files)


@dataclass(frozen=True)
class Band:
    """A curve (G,) over `x` with the ends of its band."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


@dataclass
class Study:
    """Everything that the report says of the entries, by entry index and set."""

    entries: list[Entry]
    rules: str
    bootstrap: int
    seed: int
    files: list[list[dict[str, Any]]]
    sets: list[str]
    marks: list[Mark]
    leader: int = 0
    cases: dict[tuple[int, str], list[SetCase]] = field(default_factory=dict)
    estimates: dict[tuple[int, str, str], Estimate] = field(default_factory=dict)
    draws: dict[tuple[int, str], tuple[Floats, Floats]] = field(default_factory=dict)
    curves: dict[tuple[int, str, str], Band] = field(default_factory=dict)
    changes: dict[tuple[int, str], Estimate] = field(default_factory=dict)

    def get(self, entry: int, name: str, score: str) -> Estimate:
        """Return an estimate, undefined where there is none."""
        return self.estimates.get((entry, name, score), Estimate(np.nan))

    def first(self, entry: int, name: str) -> SetCase | None:
        """Return the first file of an entry on a set: the one whose pictures and histograms are shown."""
        cases = self.cases.get((entry, name))
        return cases[0] if cases else None

    def difference(self, a: int, b: int, name: str, score: str) -> Estimate:
        """Return score of entry `a` minus that of entry `b` on the same pictures; unbounded where they differ."""
        if score not in DRAWN or not self._paired(a, b, name):
            return Estimate(self.get(a, name, score).value - self.get(b, name, score).value)
        k = DRAWN.index(score)
        (values_a, draws_a), (values_b, draws_b) = self.draws[a, name], self.draws[b, name]
        gap = np.atleast_2d(values_a[:, k].mean() - values_b[:, k].mean())
        draws = draws_a[..., k].mean(axis=0) - draws_b[..., k].mean(axis=0)
        return ev.estimates(gap, draws[None, :, None])[0]

    def best(self, name: str, score: str) -> int | None:
        """Return the entry whose paired interval against every other one excludes 0 in its favour, if any."""
        sign = SCORES[score].sign
        known = [i for i in range(len(self.entries)) if np.isfinite(self.get(i, name, score).value)]
        if len(known) < 2 or self.rules != "corrected":  # draws follow the corrected rules
            return None
        top = max(known, key=lambda i: sign * self.get(i, name, score).value)
        ahead = (self.difference(top, i, name, score).sign() == sign for i in known if i != top)
        return top if all(ahead) else None

    def lead_label(self, other: int) -> str:
        """Return how the difference between the leading entry and another is named in tables."""
        return f"{self.entries[self.leader].name} − {self.entries[other].name}"

    def leads(self) -> list[tuple[int, str, Estimate]]:
        """Return (other entry, set, leading minus other) for accuracy with half of the pictures referred, paired."""
        others = [i for i in range(len(self.entries)) if i != self.leader]
        name = self.sets[-1]
        return [(i, name, self.difference(self.leader, i, name, LEAD)) for i in others]

    def _paired(self, a: int, b: int, name: str) -> bool:
        one, two = self.first(a, name), self.first(b, name)
        return (
            one is not None
            and two is not None
            and len(one) == len(two)
            and np.array_equal(np.sort(one.image_id), np.sort(two.image_id))
        )


def gather(
    entries: Sequence[Entry], *, rules: str, bootstrap: int, seed: int, progress: Progress | None = None
) -> Study:
    """Score every file and draw every interval. Raises `InputError` for no entries or two of one name."""
    entries = list(entries)
    names = [entry.name for entry in entries]
    if not entries:
        raise InputError("there is nothing to report", hint="Give one predictions file or more.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two methods are named '{twice}'", hint="Give every method its own name.")
    tell = progress or (lambda _text, _share: None)
    sets = _sets(entries)
    study = Study(entries, rules, bootstrap, seed, [], sets, [mark(i) for i in range(len(entries))])
    for i, entry in enumerate(entries):
        tell(f"scoring {entry.name}", i / len(entries))
        study.files.append([_scores(p, rules, bootstrap, seed) for p in entry.predictions])
        for k, name in enumerate(sets):
            tell(f"{entry.name}, {SET_LABELS[name].lower()}", (i + (k + 1) / (len(sets) + 1)) / len(entries))
            cases = [case for p in entry.predictions if (case := SetCase.of(p, name)) is not None]
            if cases:
                study.cases[i, name] = cases
                _measure(study, i, name, seed)
                _draw_curves(study, i, name, seed)
        _measure_change(study, i, seed)
    worth = [study.get(i, sets[-1], "referral_accuracy_area").value for i in range(len(entries))]
    study.leader = int(np.nanargmax(worth)) if np.isfinite(worth).any() else 0
    tell("scored", 1.0)
    return study


def _sets(entries: list[Entry]) -> list[str]:
    """Return the sets of the report; `joint` where some file holds both domains."""
    of_files = [set(p.domain[p.split == "test"].tolist()) for entry in entries for p in entry.predictions]
    found = set().union(*of_files)
    if not found:
        raise InputError("no file has test images", column="split", hint="Report needs rows of split 'test'.")
    sets = [name for name in ev.SETS if name in found]
    return [*sets, "joint"] if any(len(domains) == 2 for domains in of_files) else sets


def _scores(predictions: Predictions, rules: str, bootstrap: int, seed: int) -> dict[str, Any]:
    from retinabench.metrics.score import score

    return dict(score(predictions, rules=rules, bootstrap=bootstrap, seed=seed).to_dict())


def _measure(study: Study, i: int, name: str, seed: int) -> None:
    """Fill in the scalar estimates of entry `i` on a set."""

    def prepare(case: SetCase) -> Callable[[Floats], Floats]:
        def statistic(weight: Floats) -> Floats:
            w = case.cases.weighted(weight)
            return np.concatenate([half_referred.numbers(w), [SCORES[key](w) for key in BASIC]])

        return statistic

    values, draws = ev.drawn(study.cases[i, name], prepare, study.bootstrap, seed)
    study.draws[i, name] = values, draws
    own = dict(zip(DRAWN, ev.estimates(values, draws), strict=True))
    if study.rules != "corrected":  # the scores of other rules come from `score` alone, without intervals
        own = {key: own[key] for key in half_referred.NAMES}
    study.estimates.update({(i, name, key): estimate for key, estimate in own.items()})
    blocks = [found["sets"].get(name) for found in study.files[i]]
    blocks = [block for block in blocks if block is not None]
    for score in {key for block in blocks for key in block["scores"]}:
        study.estimates[i, name, score] = _of_files([b["scores"][score] for b in blocks], own.get(score))


def _of_files(found: list[dict[str, Any]], own: Estimate | None) -> Estimate:
    """Merge the `score` results of the seeds: their mean, its standard error, and the interval of the mean."""

    def column(part: str) -> Floats:
        return np.array([np.nan if one.get(part) is None else one[part] for one in found], np.float64)

    value, low, high = column("value"), column("low"), column("high")
    if len(found) == 1:
        return Estimate(float(value[0]), float(low[0]), float(high[0]))
    se = float(value.std(ddof=1) / np.sqrt(len(found)))
    if own is not None:
        return Estimate(float(value.mean()), own.low, own.high, se)
    return Estimate(float(value.mean()), float(low.mean()), float(high.mean()), se)


def _draw_curves(study: Study, i: int, name: str, seed: int) -> None:
    """Fill in the curves of entry `i` on a set, with bands."""
    replicates = min(study.bootstrap, MOST_BAND_DRAWS)
    values, draws = ev.drawn(study.cases[i, name], ev.figures_of, replicates, seed)
    low, high = percentile_interval(draws.mean(axis=0))
    start = 0
    grids: dict[str, Floats] = dict.fromkeys((*ev.METRICS, "roc"), ev.GRID)
    for key, x in {**grids, "observed": np.arange(ev.BINS, dtype=np.float64)}.items():
        part = slice(start, start + len(x))
        start = part.stop
        study.curves[i, name, key] = Band(x, values[:, part].mean(axis=0), low[part], high[part])


def _measure_change(study: Study, i: int, seed: int) -> None:
    """Fill in shifted minus in-domain; patients are drawn once for both, as one patient may be in both."""
    if "joint" not in study.sets or not all((i, name) in study.cases for name in ev.SETS):
        return

    def prepare(case: SetCase) -> Callable[[Floats], Floats]:
        rows = [np.flatnonzero(case.domain == domain) for domain in ("in_domain", "shifted")]
        parts = [Cases(case.label[r], case.prob[r], case.uncertainty[r]) for r in rows]

        def statistic(weight: Floats) -> Floats:
            out = []
            for r, cases in zip(rows, parts, strict=True):
                w = cases.weighted(weight[r]) if weight[r].any() else None
                out.append([SCORES[key](w) if w else np.nan for key in CHANGED])
            return np.asarray(np.subtract(out[1], out[0]))

        return statistic

    values, draws = ev.drawn(study.cases[i, "joint"], prepare, study.bootstrap, seed)
    for key, estimate in zip(CHANGED, ev.estimates(values, draws), strict=True):
        study.changes[i, key] = estimate
