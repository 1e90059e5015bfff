"""Scoring submissions against a reference: every measure, in every group of test points, with intervals.

Each chain of the reference is also scored against the other chains; the mean over chains is listed with the entries, at the cost
of one chain. The floor is what the finite reference adds to a distance even for a perfect submission.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity import distances
from retinabench.fidelity.reference.reference_file import Reference, chains_of, predictive
from retinabench.fidelity.scoring import measures
from retinabench.fidelity.scoring.measures import (
    ALL,
    DrawCurve,
    Estimate,
    Measure,
    Posterior,
    Probabilities,
    Resampling,
    SampleSums,
    Values,
    average,
    draw_curve,
    posterior_distance,
)
from retinabench.fidelity.submissions.submission import DRAWS, Submission
from retinabench.fidelity.targets.data import TargetData, labels
from retinabench.fidelity.targets.target import Target

Estimates = dict[str, dict[str, Estimate]]  # {group: {measure: estimate}}.


@dataclass(frozen=True, eq=False)
class Evaluator:
    """A target with its data, its reference and one set of replicates, which make all its estimates comparable."""

    target: Target
    data: TargetData
    reference: Reference
    replicates: int = 1000
    seed: int = 0

    @cached_property
    def resampling(self) -> Resampling:
        return Resampling.of(self.target, self.data.test.groups, self.replicates, self.seed)

    def grade(self, submission: Submission) -> Estimates:
        """Return all measures of a submission; the replicates of the ranked ones vary with points and chains."""
        found = self._over_points(submission)
        changes = measures.chain_changes(submission, self.reference, self.resampling.groups)
        weights = measures.chain_weights(self.reference, self.target.name, self.replicates, self.seed)
        for group, of_group in changes.items():
            for name, each in of_group.items():
                found[group][name] = measures.with_chains(found[group][name], each, weights)
        return found

    @cached_property
    def predictive(self) -> NDArray[np.floating]:
        """What the reference predicts: probabilities (N, C), or draws of y (N, M)."""
        return predictive(self.reference)

    @cached_property
    def truth(self) -> NDArray[Any] | None:
        """What the test points are, (N,); None where it is not known."""
        return self.reference.labels if self.reference.external else labels(self.data)[1]

    def _over_points(self, submission: Submission) -> Estimates:
        truth, values = self.truth, submission.values
        if self.target.likelihood == "gaussian":
            useful = {} if truth is None else measures.regression(values, truth)
            return self._in_groups({**measures.close_regression(values, self.predictive), **useful})
        alone = submission.samples is None or self.reference.samples is None
        sums = None if alone else SampleSums.of(np.asarray(submission.samples))
        std: NDArray[np.floating] | None = submission.std if sums is None else sums.std
        std = None if self.reference.samples is None else std
        known = Posterior(self.predictive, self.reference.epistemic, self._disagreement, self._std, self.decided)
        found: Estimates = {}
        for group, rows in self.resampling.groups.items():
            measured = self._close(values, sums, std, known, rows)
            if truth is not None:
                measured |= measures.classification(values[rows], truth[rows])
            found[group] = self.resampling.estimate(measured, group)
            if truth is not None and (decision := self.target.decision):
                needs = decision.needs_expert(self.target.outputs)
                found[group]["referral_area"] = measures.referral_area(values[rows], truth[rows], needs)
        return found

    @cached_property
    def ceiling(self) -> Estimates:
        """Each chain of the reference against the others, averaged over chains."""
        if self.reference.chains < 2:
            return {group: {} for group in self.resampling.groups}
        parts = [self._chain(k) for k in range(self.reference.chains)]
        return {
            group: {name: average([part[group][name] for part in parts]) for name in parts[0][group]}
            for group in self.resampling.groups
        }

    @cached_property
    def floor(self) -> dict[str, dict[str, float]]:
        """What a perfect submission would score, by the noise of the reference alone, and of 1,000 draws of y.

        Total variation: each class's Monte Carlo standard error e gives √(2/π) e / 2 on average. Wasserstein: random
        halves of the reference's draws, h each, against each other, scaled to 1,000 draws against all M of them: the distance of
        two samples of one distribution falls as √(1/n + 1/m). What a chain is farther from the others than that is the
        error of a chain, of which the mean of K has the K-th part of the variance.
        """
        if self.reference.external:
            return {group: {} for group in self.resampling.groups}
        return {
            group: {name: float(np.hypot(own, error)) for name, (own, error) in self._errors(group).items()}
            for group in self.resampling.groups
        }

    def _errors(self, group: str) -> dict[str, tuple[float, float]]:
        """Return the errors of a perfect submission, that of its 1,000 draws of y, and of the reference, by distance."""
        rows, chains = self.resampling.groups[group], self.reference.chains
        if self.target.likelihood == "categorical":
            return {"total_variation": (0.0, float(posterior_distance(self.reference.mcse)[rows].mean()))}
        draws = self.predictive[rows]
        count = draws.shape[1]
        found = {}
        for name, order in (("wasserstein", 1), ("w2", 2)):
            unit = float(distances.noise_floor(draws, order).mean()) / np.sqrt(2 / (count // 2))
            square = unit**2 / count
            if chains > 1:
                share = 1 + 1 / (chains - 1)
                apart = self.ceiling[group][name].value ** 2 - unit**2 * share * chains / count
                square += max(apart, 0.0) / share / chains
            found[name] = unit / np.sqrt(DRAWS), np.sqrt(square)
        return found

    @cached_property
    def draws(self) -> DrawCurve | None:
        """How far independent draws of the posterior are from the reference, over all test points, by the last ranked measure."""
        if self.reference.external:
            return None
        rows, name = self.resampling.groups[ALL], measures.RANKED[self.target.likelihood][-1]
        return draw_curve(self.reference, rows, self.floor[ALL][name], self._errors(ALL)[name][1])

    def _chain(self, k: int) -> Estimates:
        """Grade a chain against the others; what needs samples is left out where the reference has none."""
        chains = chains_of(self.reference)
        others = distances.of_others(chains, k, self.target.likelihood)
        if self.target.likelihood == "gaussian":
            return self._in_groups(measures.close_regression(chains[k], others))
        own, epistemic, disagreement, std = None, self.reference.epistemic, self._disagreement, self._std
        if self.reference.samples is not None:
            own = self._chain_sums[k]
            rest = SampleSums.joined(self._chain_sums[:k] + self._chain_sums[k + 1 :])
            epistemic, disagreement, std = rest.epistemic, rest.disagreement, rest.std
        known, own_std = Posterior(others, epistemic, disagreement, std, self.decided), None if own is None else own.std
        return {
            group: self.resampling.estimate(self._close(chains[k], own, own_std, known, rows), group)
            for group, rows in self.resampling.groups.items()
        }

    @cached_property
    def decided(self) -> NDArray[np.bool_]:
        return measures.decided(self.reference)

    @cached_property
    def _std(self) -> Values:
        if self.reference.samples is None:
            return np.full(self.predictive.shape, np.nan)
        return SampleSums.joined(self._chain_sums).std

    @cached_property
    def _disagreement(self) -> Values:
        if self.reference.samples is None:
            return np.full(len(self.reference.epistemic), np.nan)
        return SampleSums.joined(self._chain_sums).disagreement

    @cached_property
    def _chain_sums(self) -> list[SampleSums]:
        assert self.reference.samples is not None
        return [SampleSums.of(some) for some in np.array_split(self.reference.samples, self.reference.chains)]

    def _close(
        self,
        probs: Probabilities,
        sums: SampleSums | None,
        std: NDArray[np.floating] | None,
        known: Posterior,
        rows: NDArray[np.intp],
    ) -> dict[str, Measure]:
        own, own_std = None if sums is None else sums.rows(rows), None if std is None else std[rows]
        costs = self.target.decision.costs(self.target.outputs) if self.target.decision else None
        return measures.close_classification(probs[rows], own, own_std, known.rows(rows), costs=costs)

    def _in_groups(self, measured: dict[str, Measure]) -> Estimates:
        """Estimate measures whose terms are one value per point, in every group."""
        return {
            group: self.resampling.estimate(
                {name: Measure(one.terms[rows], one.finish) for name, one in measured.items()}, group
            )
            for group, rows in self.resampling.groups.items()
        }
