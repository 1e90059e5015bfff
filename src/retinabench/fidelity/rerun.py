"""Run the code behind submissions again with the seeds 0, 1 and 2, for a board whose rows prove more than a file can.

The code is an entry of the package or of a plug-in, whose settings a submission holds, or a function of the author's,

    sample(problem, gradients, seed) -> draws (S, P)

that takes an `rb.fidelity.problem` and a budget. The problem counts its evaluations in NumPy and stops it at the budget; those that JAX
traces are not seen, and stay declared. A file holds if the run again gives the same predictions. Chains grow apart by rounding on
another machine: theirs holds if its distance from the reference is among those of the runs (95 % prediction interval of the logarithm).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from retinabench.core.errors import QUIET, InputError, Progress, WorkError
from retinabench.core.registry import import_location
from retinabench.core.results import Document
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.fidelity import distances
from retinabench.fidelity.leaderboard.files import keep_submission
from retinabench.fidelity.problems import Problem
from retinabench.fidelity.scoring.grading import Evaluator
from retinabench.fidelity.submissions.entries import UNTRAINED_TITLES, entry
from retinabench.fidelity.submissions.runner import run_entry, run_settings
from retinabench.fidelity.submissions.submission import Submission, read_submission
from retinabench.methods.registry import METHODS
from retinabench.methods.samplers import ChainConfig

SEEDS = (0, 1, 2)
SAME = 1e-3  # most difference of a probability, or of a draw in stds of y
Sample = Callable[[Problem, int, int], Any]


@dataclass(frozen=True)
class Compared(Document):
    """A submission beside its code run again: whether it holds, their distances from the reference, and from each other."""

    title: str
    seed: int
    holds: bool
    same: bool
    submitted: float
    again: float
    apart: float

    @property
    def text(self) -> str:
        """What was found, in a line."""
        said = "the same as run again" if self.same else f"{'like' if self.holds else 'NOT like'} the runs again"
        numbers = f"{self.submitted:.4f} from the reference, run again {self.again:.4f}; {self.apart:.4f} apart"
        return f"{self.title}, seed {self.seed}: {said} ({numbers})"


def rerun(
    submissions: Sequence[Submission], evaluator: Evaluator, out: Path, code: str = "", progress: Progress = QUIET
) -> list[Compared]:
    """Run the code of one entry again, write what it gives into `out`, marked as rerun, and compare the submissions with it."""
    first = submissions[0]
    if len({(one.title, str(one.about.run | {"seed": 0}) if one.about.run else "") for one in submissions}) > 1:
        raise InputError("are of several entries", hint="Name the seeds of one entry at a time.")
    sample = _function(code) if code else None
    if sample is None and first.about.run is None:
        hint = "Name a function of its author by --code FILE.py:FUNCTION (see docs/fidelity.md)."
        raise InputError("names no code of an entry that can be run again", file=first.source, hint=hint)
    stated = [0 if one.about.seed is None else one.about.seed for one in submissions]
    runs = {}
    for seed in dict.fromkeys((*SEEDS, *stated)):
        if sample is None:
            runs[seed] = _entry(first, evaluator, seed, out.with_name(f"{out.name}-runs"), progress)
        else:
            runs[seed] = _sampled(sample, first, evaluator, seed)
        if seed in SEEDS:
            keep_submission(runs[seed], evaluator, out, rerun=True)
    distance = distances.DISTANCE[evaluator.target.likelihood]
    fixed = [float(distance(runs[seed].values, evaluator.predictive).mean()) for seed in SEEDS]
    chains = sample is not None or first.about.method in UNTRAINED_TITLES or _is_chain(first.about.method)
    compared = []
    for one, seed in zip(submissions, stated, strict=True):
        values, again_values = one.values, runs[seed].values
        mine, again = (float(distance(some, evaluator.predictive).mean()) for some in (values, again_values))
        same = bool(np.abs(values - again_values).max() <= SAME)
        apart = float(distance(values, again_values).mean())
        holds = same or (chains and _is_among(mine, fixed))
        compared.append(Compared(one.title, seed, holds, same, mine, again, apart))
    return compared


def _is_chain(name: str | None) -> bool:
    return name is not None and issubclass(METHODS[entry(name).method["name"]].Config, ChainConfig)


def _is_among(value: float, others: Sequence[float]) -> bool:
    """Tell whether a distance lies in the 95 % prediction interval of others, of the logarithm."""
    logs = np.log(np.maximum(others, 1e-12))
    half = stats.t.ppf(0.975, len(logs) - 1) * logs.std(ddof=1) * np.sqrt(1 + 1 / len(logs))
    return bool(abs(np.log(max(value, 1e-12)) - logs.mean()) <= half)


def _entry(first: Submission, evaluator: Evaluator, seed: int, out: Path, progress: Progress) -> Submission:
    """Run an entry with the settings and the limit that a submission states."""
    target, about, data = evaluator.target, first.about, evaluator.data
    if about.budget is None or about.method is None:
        raise InputError("states no method or no budget, so that it cannot be run again", file=first.source)
    limit, settings, resources = about.budget.limit or about.budget.used, about.run or {}, Resources("cpu", 0, progress)
    if "optimizer" not in settings:  # of an infinite width, or of a chain of an earlier version
        file = run_entry(about.method, target, budget=limit, seed=seed, out=out, resources=resources)
    else:
        run = load_run(**{**settings, "seed": seed})
        file = run_settings(entry(about.method), run, target, data, budget=limit, out=out, resources=resources)
    return read_submission(file, target, len(data.test), data.sha256)


def _sampled(sample: Sample, first: Submission, evaluator: Evaluator, seed: int) -> Submission:
    """Call the author's function with the budget that a submission states."""
    budget = first.about.budget
    if budget is None:
        raise InputError("states no budget, so that it cannot be run again", file=first.source)
    problem = Problem(evaluator.target, data=evaluator.data)
    problem.limit = limit = float(budget.limit or budget.tier or budget.used)
    draws = sample(problem, int(limit), seed)
    if not problem.evaluations and not problem.traced:
        raise WorkError("the function gave draws without one evaluation of the density: they are not its own")
    used = budget.used if problem.traced else problem.evaluations
    made = problem.submission(draws, gradients=used, method=first.about.method or first.title, seed=seed)
    return replace(made, about=made.about.changed(title=first.title, traced=problem.traced))


def _function(code: str) -> Sample:
    file, _, name = code.rpartition(":")
    function = getattr(import_location(file), name, None) if file else None
    if not callable(function):
        hint = "For example: --code sampler.py:sample"
        raise InputError(f"'{code}' is not FILE.py:FUNCTION of a function", hint=hint)
    return function  # type: ignore[no-any-return]
