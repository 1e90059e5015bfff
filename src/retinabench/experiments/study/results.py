"""The numbers of a study: means over seeds and over ensembles, their standard errors, and ranks.

Which entry is better, and how far ranks are resolved, is asked of `metrics.comparison`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from retinabench.core.errors import Advance
from retinabench.core.seeds import derive
from retinabench.experiments.study.definition import Study
from retinabench.experiments.study.prediction_files import ResultRow
from retinabench.metrics.comparison import ScoreRanking, rank_methods
from retinabench.metrics.image_sets import SetScores
from retinabench.metrics.paired import aggregate, mean_over_subsets, ranks
from retinabench.metrics.registry import SCORES
from retinabench.metrics.scoring import score
from retinabench.predictions.io import read_predictions

Key = tuple[str, str]  # set and score
DOMAIN = ("accuracy", "auroc", "nll", "ece_top_label", "referral_accuracy_area", "referral_auroc_area")
MAIN: dict[str, tuple[str, ...]] = {
    "in_domain": DOMAIN,
    "shifted": DOMAIN,
    "joint": ("ood_auroc",),
    "balanced": ("referral_accuracy_area",),
}


@dataclass(frozen=True)
class MeanScore:
    """The mean of a score over the runs of an entry; NaN where a number is undefined.

    `error` is its standard error over seeds and `rank` that of the mean; `rank_low` and `rank_high` are the ranks that resolved
    differences leave, and `first` is the share of the replicates in which the entry is first.
    """

    mean: float = np.nan
    error: float = np.nan
    runs: int = 0
    rank: float = np.nan
    rank_low: float = np.nan
    rank_high: float = np.nan
    first: float = np.nan

    @property
    def ranked(self) -> bool:
        return bool(np.isfinite(self.rank))

    def to_dict(self) -> dict[str, float | None]:
        """Return the numbers for JSON: None where undefined, ranks only where there are any."""
        record: dict[str, float | None] = {
            "mean": _number(self.mean), "error": _number(self.error), "runs": self.runs,
        }  # fmt: skip
        if self.ranked:
            record["rank"] = self.rank
        if np.isfinite(self.first):
            record |= {name: _number(getattr(self, name)) for name in ("rank_low", "rank_high", "first")}
        return record


EntryScores = dict[Key, MeanScore]


def score_entries(
    study: Study, entries: Sequence[ResultRow], advance: Advance = lambda steps: None
) -> list[EntryScores]:
    """Return by entry of one task and criterion its scores by set and name.

    An entry with a seed that diverged, or without any file, has no mean and no rank. `advance` is told the number of files done.
    """
    known = {str(k): entry for k, entry in enumerate(entries) if entry.files}
    values: dict[Key, dict[str, Sequence[float]]] = {}
    rankings: dict[Key, ScoreRanking] = {}
    if study.rules == "published":
        values = _published(known, study.seed, advance)
    elif known:
        models = {name: [read_predictions(file) for file in entry.files] for name, entry in known.items()}
        seeds = {name: entry.subsets for name, entry in known.items()}
        found, _ = rank_methods(
            models, study.bootstrap, derive(study.seed, "benchmark"), scores=MAIN, seeds=seeds,
            unranked=[name for name, entry in known.items() if entry.diverged], advance=advance,
        )  # fmt: skip
        rankings = {(name, score): one for name, of in found.items() for score, one in of.scores.items()}
        values = {key: {name: one.values for name, one in ranking.models.items()} for key, ranking in rankings.items()}
    table: list[EntryScores] = [{} for _ in entries]
    for key, of_entries in values.items():
        means = [_mean(study, entry, of_entries.get(str(k), ())) for k, entry in enumerate(entries)]
        for row, own in zip(table, _with_ranks(means, rankings.get(key), key), strict=True):
            row[key] = own
    return table


def _published(entries: Mapping[str, ResultRow], seed: int, advance: Advance) -> dict[Key, dict[str, Sequence[float]]]:
    """Return by score the values of each entry's files by the released code, which has no intervals."""
    scored: dict[str, list[Mapping[str, SetScores]]] = {}
    for name, entry in entries.items():
        for file in entry.files:
            scored.setdefault(name, []).append(score(read_predictions(file), "published", 0, seed).sets)
            advance(1)
    found: dict[Key, dict[str, Sequence[float]]] = {}
    for set_name, kinds in MAIN.items():
        for kind in kinds:
            values: dict[str, Sequence[float]] = {
                name: [
                    of[set_name][kind].value if set_name in of and kind in of[set_name].scores else np.nan
                    for of in files
                ]
                for name, files in scored.items()
            }
            if np.isfinite([one for of in values.values() for one in of]).any():
                found[set_name, kind] = values
    return found


def _mean(study: Study, entry: ResultRow, values: Sequence[float]) -> MeanScore:
    """Return mean and standard error of an entry; undefined where a seed diverged, which is a property of the method."""
    if not len(values) or entry.diverged:
        return MeanScore(runs=len(values))
    groups = [[k for k, one in enumerate(entry.subsets) if set(one) <= set(seeds)] for seeds in study.seeds_by_repeat]
    if entry.members > 1 and len(groups) > 1 and all(groups):  # of other divisions: independent of each other
        found = aggregate([float(np.mean([values[k] for k in group])) for group in groups])
    else:
        seeds = len(study.run_seeds) - len(entry.lacking)
        found = mean_over_subsets(values, entry.subsets, seeds, study.rules)
    return MeanScore(found.mean, found.error, len(values))


def _with_ranks(means: Sequence[MeanScore], ranking: ScoreRanking | None, key: Key) -> list[MeanScore]:
    """Add the ranks of the means, and what the ranking resolves, to those that are defined."""
    known = [k for k, one in enumerate(means) if np.isfinite(one.mean)]
    out = list(means)
    if not known:
        return out
    order = ranks([[means[k].mean for k in known]], SCORES[key[1]].sign > 0)[0]
    for k, rank in zip(known, order.tolist(), strict=True):
        out[k] = replace(out[k], rank=rank)
        if ranking is not None and np.isfinite((model := ranking.models[str(k)]).first):
            out[k] = replace(out[k], rank_low=model.best, rank_high=model.worst, first=model.first)
    return out


def in_order(rows: Sequence[EntryScores]) -> tuple[Key | None, list[int]]:
    """Order the entries by the balanced area of accuracy over referral, else by the in-domain one; return that score, None without."""
    for key in (("balanced", "referral_accuracy_area"), ("in_domain", "referral_accuracy_area")):
        scores = [row.get(key, MeanScore()) for row in rows]
        if any(one.ranked for one in scores):
            return key, sorted(range(len(rows)), key=lambda k: scores[k].rank if scores[k].ranked else float("inf"))
    return None, list(range(len(rows)))


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
