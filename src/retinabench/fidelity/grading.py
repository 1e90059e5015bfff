"""Grading answers against a reference: every measure, in every group of test points, with intervals and ceilings.

The ceiling is what one chain of the reference scores against the others, averaged over chains: another sampler of the
same posterior, with the noise of one chain. The floor is what the finite reference adds to a distance even for perfect
answers. Answers may pass the ceiling: the mean of all chains has less noise than each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity import distances, measures, utility
from retinabench.fidelity.answers import DRAWS, Answers
from retinabench.fidelity.data import Data, labels
from retinabench.fidelity.decisions import costs, referable
from retinabench.fidelity.measures import MEASURES, Probabilities, Spread
from retinabench.fidelity.resampling import Estimate, Measure, Resampling, Values, average
from retinabench.fidelity.targets import Target

if TYPE_CHECKING:
    from retinabench.fidelity.reference import Reference

Estimates = dict[str, dict[str, Estimate]]
"""{group: {measure: estimate}}."""

WHY = {
    "epistemic_correlation": "needs posterior samples that differ",
    "epistemic_error": "needs posterior samples",
    "disagreement_gap": "needs posterior samples",
    "nll": "a class that occurs got probability 0",
}


@dataclass(frozen=True, eq=False)
class Examiner:
    """A target with its data, its reference and one set of replicates: whatever it grades is comparable."""

    target: Target
    data: Data
    reference: Reference
    replicates: int = 1000
    seed: int = 0
    resampling: Resampling = field(init=False)

    def __post_init__(self) -> None:
        drawn = Resampling.of(self.target, self.data.test.group, self.replicates, self.seed)
        object.__setattr__(self, "resampling", drawn)

    def grade(self, answers: Answers) -> Estimates:
        """Return all measures of answers, closeness and usefulness."""
        truth = labels(self.data)[1]
        found: Estimates = {}
        if self.target.likelihood == "gaussian":
            assert answers.draws is not None
            close = measures.regression(answers.draws, self.reference.draws)
            useful = utility.regression(answers.draws, truth)
            return self._in_groups({**close, **useful})
        assert answers.probs is not None
        spread = None if answers.samples is None else Spread.of(answers.samples)
        reference = (self.reference.probs, self.reference.epistemic, self._disagreement)
        for group, rows in self.resampling.groups.items():
            measured = self._close(answers.probs, spread, *reference, rows)
            measured |= utility.classification(answers.probs[rows], truth[rows])
            found[group] = self.resampling.estimate(measured, group)
            if (needs := referable(self.target)) is not None:
                area = utility.referral_area(answers.probs[rows], truth[rows], needs)
                found[group]["referral_area"] = area
        return found

    @cached_property
    def ceiling(self) -> Estimates:
        """Each chain of the reference against the others, averaged over chains."""
        if self.target.likelihood == "gaussian":
            chains = self.reference.chain_draws
            parts = [
                self._in_groups(measures.regression(chain, np.concatenate(others, axis=1)))
                for chain, others in _one_and_others(list(chains))
            ]
        else:
            parts = []
            for (chain, others), (own, theirs) in zip(
                _one_and_others(list(self.reference.chain_probs)),
                _one_and_others(self._chain_spreads),
                strict=True,
            ):
                rest = Spread.joined(theirs)
                against = (np.mean(others, axis=0), rest.epistemic, rest.disagreement)
                parts.append(
                    {
                        group: self.resampling.estimate(self._close(chain, own, *against, rows), group)
                        for group, rows in self.resampling.groups.items()
                    }
                )
        return {
            group: {name: average([part[group][name] for part in parts]) for name in parts[0][group]}
            for group in self.resampling.groups
        }

    @cached_property
    def floor(self) -> dict[str, dict[str, float]]:
        """What perfect answers would score, by the noise of the reference alone, and of 1,000 draws of y.

        Total variation: each class's Monte Carlo standard error e gives √(2/π) e / 2 on average. Wasserstein: the halves
        of the reference's draws, h each, against each other, scaled to 1,000 draws against all M of them: the distance of
        two samples of one distribution falls as √(1/n + 1/m).
        """
        if self.target.likelihood == "gaussian":
            draws = self.reference.draws
            count = draws.shape[1]
            scale = np.sqrt((1 / DRAWS + 1 / count) / (2 / (count // 2)))
            per_point = {
                name: scale * distances.noise_floor(draws, order)
                for name, order in (("wasserstein", 1), ("w2", 2))
            }
        else:
            per_point = {"total_variation": np.nansum(self.reference.mcse, axis=1) * np.sqrt(2 / np.pi) / 2}
        return {
            group: {name: float(values[rows].mean()) for name, values in per_point.items()}
            for group, rows in self.resampling.groups.items()
        }

    def relative(self, found: Estimates) -> Estimates:
        """Return each measure of closeness over its ceiling: 1 is as good, or as far, as another chain."""
        return {
            group: {
                name: one / self.ceiling[group][name]
                for name, one in of_group.items()
                if name in self.ceiling[group]
            }
            for group, of_group in found.items()
        }

    @cached_property
    def _chain_spreads(self) -> list[Spread]:
        chains = len(self.reference.chain_probs)
        return [Spread.of(some) for some in np.array_split(self.reference.samples, chains)]

    @cached_property
    def _disagreement(self) -> Values:
        return Spread.joined(self._chain_spreads).disagreement

    def _close(
        self,
        probs: Probabilities,
        spread: Spread | None,
        reference: Probabilities,
        epistemic: Values,
        disagreement: Values,
        rows: NDArray[np.intp],
    ) -> dict[str, Measure]:
        own = None if spread is None else spread.rows(rows)
        return measures.classification(
            probs[rows], reference[rows], own, epistemic[rows], disagreement[rows], costs(self.target)
        )

    def _in_groups(self, measured: dict[str, Measure]) -> Estimates:
        """Estimate measures whose terms are one value per point, in every group."""
        return {
            group: self.resampling.estimate(
                {name: Measure(one.terms[rows], one.finish) for name, one in measured.items()}, group
            )
            for group, rows in self.resampling.groups.items()
        }


def entry_record(examiner: Examiner, answers: Answers, found: Estimates) -> dict[str, Any]:
    """Return the grades of one file as plain numbers, for JSON; undefined ones are None with a `why`."""
    relative = examiner.relative(found)
    return {
        "title": answers.title,
        **{key: answers.meta.get(key) for key in ("method", "seed", "budget", "seconds")},
        "baseline": bool(answers.meta.get("baseline")),
        "source": None if answers.source is None else str(answers.source),
        "groups": {
            group: {
                name: _record(name, of_group.get(name), relative[group].get(name))
                for name in _names(examiner.target)
            }
            for group, of_group in found.items()
        },
    }


def examiner_record(examiner: Examiner) -> dict[str, Any]:
    """Return what is the same for all files: the task, its reference, ceilings and floors."""
    reference, target = examiner.reference, examiner.target
    return {
        "task": target.name,
        "title": target.title,
        "likelihood": target.likelihood,
        "target": target.identity(examiner.data.sha256),
        "data": examiner.data.sha256,
        "bootstrap": examiner.replicates,
        "seed": examiner.seed,
        "reference": {"passed": reference.passed, "why": list(reference.why)},
        "points": {group: len(rows) for group, rows in examiner.resampling.groups.items()},
        "ceiling": {
            group: {name: _record(name, one, None) for name, one in of_group.items()}
            for group, of_group in examiner.ceiling.items()
        },
        "floor": examiner.floor,
    }


def _names(target: Target) -> Sequence[str]:
    regression = ("wasserstein", "w2", "w2_kit", "w2_as_printed", "rmse", "crps", "coverage_90")
    if target.likelihood == "gaussian":
        return regression
    graded = referable(target) is not None
    return [
        name
        for name in MEASURES
        if name not in regression and (graded or name not in ("regret", "referral_area"))
    ]


def _record(name: str, one: Estimate | None, relative: Estimate | None) -> dict[str, Any]:
    value = _number(one.value) if one is not None else None
    record: dict[str, Any] = {"value": value}
    if value is None or one is None:
        return record | {"why": WHY.get(name, "undefined here")}
    for prefix, estimate in (("", one), ("relative_", relative)):
        if estimate is not None:
            low, high = estimate.interval()
            record |= {f"{prefix}low": _number(low), f"{prefix}high": _number(high)}
    return record | ({"relative": _number(relative.value)} if relative is not None else {})


def _number(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _one_and_others(parts: list[Any]) -> list[tuple[Any, list[Any]]]:
    return [(part, parts[:k] + parts[k + 1 :]) for k, part in enumerate(parts)]
