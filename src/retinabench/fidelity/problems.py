"""A fidelity target as a posterior in Python, for samplers of any framework: its points, log density, gradient and predictions.

Letters: P weights, S draws, N training points, M test points, D inputs, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from retinabench.core.errors import InputError, WorkError
from retinabench.core.results import JsonObject, json_content
from retinabench.core.version import __version__
from retinabench.fidelity.densities.density import density_names
from retinabench.fidelity.densities.draws import DensityProblem
from retinabench.fidelity.leaderboard.files import keep_submission, make_evaluator, score_among_shipped
from retinabench.fidelity.leaderboard.results import TaskBoard, rank_json
from retinabench.fidelity.leaderboard.tables import task_table
from retinabench.fidelity.networks import NETWORKS, Array, Categorical, Floats, Gaussian
from retinabench.fidelity.scoring.measures import ALL
from retinabench.fidelity.submissions.submission import About, Budget, Implied, Submission, submission_of
from retinabench.fidelity.targets.data import TargetData, labels, load, standardised
from retinabench.fidelity.targets.target import TARGETS, Target
from retinabench.reports.toolkit.tables import to_text


@dataclass(frozen=True, eq=False)
class Submitted:
    """A submission that was written: its file, and its board, which is what it prints."""

    path: Path
    title: str
    board: TaskBoard

    @property
    def row(self) -> JsonObject:
        """Its place and values over all test points, by name, and `exact_draws`."""
        entry = self.board.entries[self.title]
        values = {name: json_content(score.value) for name, score in self.board.scores(self.title, ALL).items()}
        place = {} if entry.rank is None else rank_json(entry.rank)
        draws = self.board.draws(self.title)
        return {**place, **values, "exact_draws": None if draws is None else draws.value}

    def __str__(self) -> str:
        return to_text(task_table(self.board, terminal=True))


class Problem:
    """The posterior of a fidelity target, π(w) ∝ Π_n p(y_n | x_n, w) · N(w; 0, s² I), for a sampler of any framework.

    `rb.fidelity.problem(NAME)` returns it. No function imports PyTorch. The flat weights w (P,) are, layer by layer, the
    matrix (units, inputs), then the biases.

    Attributes:
        name: Name of the target.
        dimension: Number of weights P.
        prior_variance: s².
        inputs: Training inputs (N, D), float64, standardised as the target says.
        targets: Training targets (N,): classes 0 to C - 1, or y with mean 0 and std 1.
        test_inputs: Test inputs (M, D).
        test_targets: Test targets (M,), in the unit of `targets`.
        groups: Group of each test point (M,), such as "in_domain".
        evaluations: How often the likelihood was evaluated by `log_density` and `gradient` in NumPy, per w.

    Examples:
        >>> import numpy as np
        >>> import retinabench as rb
        >>> problem = rb.fidelity.problem("logistic")
        >>> problem.dimension, problem.inputs.shape, problem.test_inputs.shape
        (6, (60, 2), (200, 2))
        >>> w = np.zeros(6)
        >>> round(float(problem.log_density(w)) / len(problem.inputs), 3)  # two classes at even odds: -log 2
        -0.693
        >>> problem.gradient(w).shape
        (6,)
        >>> problem.predict(np.zeros((10, 6))).shape
        (10, 200, 2)
    """

    def __init__(self, target: Target, source: Path | None = None, data: TargetData | None = None) -> None:
        if target.network not in NETWORKS or target.points:
            known = ", ".join(name for name, one in TARGETS.items() if one.network in NETWORKS and not one.points)
            raise InputError(f"the density of '{target.name}' is not written in NumPy", hint=f"Name one of {known}.")
        data = data or load(target, source)
        self.target, self.source = target, source
        self.evaluations, self.limit, self.traced = 0, math.inf, False
        self.name, self.dimension, self.prior_variance = target.name, target.parameters, target.prior_variance
        self.inputs, self.test_inputs = (inputs.astype(np.float64) for inputs in standardised(data))
        self.targets, self.test_targets = labels(data)
        self.groups: NDArray[np.str_] = data.test.groups
        self._network = NETWORKS[target.network](target.outputs)
        self._likelihood: Categorical | Gaussian = Categorical(self.targets)
        if target.likelihood == "gaussian":
            self._likelihood = Gaussian(self.targets.astype(np.float64), target.floor)

    def log_density(self, weights: Array, xp: Any = np) -> Array:
        """Return log p(y | x, w) - |w|² / (2 s²), the log density of the posterior up to a constant.

        Args:
            weights: (..., P), one w or many.
            xp: The array functions to use. With `jax.numpy` it can be traced: `jax.grad(lambda w: problem.log_density(w, jnp))`.

        Returns:
            An array (...), of the namespace; a number for one w.
        """
        weights = xp.asarray(weights)
        self._count(weights, xp)
        outputs = self._network.outputs(weights, xp.asarray(self.inputs), xp)
        return self._likelihood.log_density(outputs, xp) - (weights * weights).sum(axis=-1) / (2 * self.prior_variance)

    def gradient(self, weights: ArrayLike) -> Floats:
        """Return the slope of `log_density` in closed form, in NumPy.

        Args:
            weights: (..., P).

        Returns:
            An array (..., P), float64.
        """
        w = np.asarray(weights, np.float64)
        self._count(w)
        slopes = self._likelihood.slopes(self._network.outputs(w, self.inputs, np))
        return np.asarray(self._network.slopes(w, self.inputs, slopes) - w / self.prior_variance)

    def _count(self, weights: Array, xp: Any = np) -> None:
        if xp is not np:
            self.traced = True
            return
        self.evaluations += weights.size // self.dimension
        if self.evaluations > self.limit:
            raise WorkError(f"the sampler took more than the {self.limit:g} evaluations of its budget")

    def predict(self, weights: ArrayLike) -> Floats:
        """Return what each w predicts for the test points.

        Args:
            weights: (..., P).

        Returns:
            Class probabilities (..., M, C); of a regression means and stds of y (..., M, 2).
        """
        return self._likelihood.predict(self._network.outputs(np.asarray(weights, np.float64), self.test_inputs, np))

    def submit(
        self,
        draws: ArrayLike,
        *,
        method: str,
        gradients: float | None = None,
        seed: int = 0,
        out: str | Path = "fidelity-runs",
    ) -> Submitted:
        """Write the predictions of draws as a submission, and score it among the shipped entries of its tier of the budget.

        Args:
            draws: (S, P), the weights of all chains after burn-in, in order.
            method: What to call the sampler.
            gradients: Evaluations of the likelihood of all training points, with a gradient or without, of all chains and burn-in;
                default: `evaluations`.
            seed: Which of its runs it is, 0, 1, 2 ...
            out: Folder for submissions, which `retinabench fidelity board` ranks.

        Returns:
            The file, the row of the entry, and, printed, its board.

        Raises:
            InputError: The draws are not finite numbers of shape (S, P).
        """
        used = self.evaluations if gradients is None else gradients
        submission = self.submission(draws, gradients=used, method=method, seed=seed)
        evaluator = make_evaluator(self.target, self.source, None)
        path = keep_submission(submission, evaluator, Path(out))
        board = score_among_shipped([submission], evaluator)
        title = next(title for title, entry in board.entries.items() if submission in entry.seeds)
        return Submitted(path, title, board)

    def submission(self, draws: ArrayLike, *, gradients: float, method: str, seed: int) -> Submission:
        """Return what `submit` writes."""
        w = np.asarray(draws, np.float64)
        if w.ndim != 2 or w.shape[1] != self.dimension or not len(w) or not np.isfinite(w).all():
            raise InputError(f"draws of shape {w.shape}: needed are finite numbers (S, {self.dimension})")
        about = About(
            task=self.name, method=method, title=method, seed=seed, version=__version__,
            budget=Budget(used=gradients), implied=Implied(temperature=1, prior_variance=self.prior_variance, how="draws of the weights"),
        )  # fmt: skip
        parts = [self.predict(some).astype(np.float32) for some in np.split(w, range(200, len(w), 200))]
        return submission_of(np.concatenate(parts), self.target, about, seed)


def problem(name: str, data: str | Path | None = None) -> Problem | DensityProblem:
    """Return a fidelity target, or a density whose moments are known, for a sampler of any framework.

    Args:
        name: A target of few weights: logistic, banana, idrid-head, drawn-head, their forms `-mlp`, `-binary` and `-1013`, energy-gap …;
            or a density: funnel, gaussian, eight-schools, mixture … (`retinabench fidelity tasks` lists both).
        data: Folder of the data of targets whose data do not come with the package, such as energy-gap.

    Returns:
        A `Problem`, with points, log density, gradient, predictions and `submit`; of a density a `DensityProblem`.

    Raises:
        InputError: The target is unknown, too large, or its data are not there.

    Examples:
        >>> import retinabench as rb
        >>> rb.fidelity.problem("idrid-head").dimension
        45
        >>> rb.fidelity.problem("mixture").dimension
        10
    """
    if name in density_names():
        return DensityProblem(name)
    return Problem(TARGETS.find(name), None if data is None else Path(data))
