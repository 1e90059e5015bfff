"""Scores as plain numbers, for JSON and for every table; an undefined one is None with a reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from retinabench.fidelity.scoring.grading import Estimates, Evaluator
from retinabench.fidelity.scoring.measures import MEASURES
from retinabench.fidelity.scoring.resampling import Estimate
from retinabench.fidelity.submissions.submission import Submission
from retinabench.fidelity.targets.target import Target

WHY = {
    "epistemic_correlation": "needs posterior samples that differ",
    "epistemic_error": "needs posterior samples",
    "disagreement_gap": "needs posterior samples",
    "nll": "a class that occurs got probability 0",
}


def entry_record(evaluator: Evaluator, submission: Submission, found: Estimates) -> dict[str, Any]:
    """Return the grades of one file as plain numbers, for JSON; undefined ones are None with a `why`."""
    relative = evaluator.relative(found)
    return {
        "title": submission.title,
        **{key: submission.meta.get(key) for key in ("method", "seed", "budget", "seconds")},
        "baseline": bool(submission.meta.get("baseline")),
        "source": None if submission.source is None else str(submission.source),
        "groups": {
            group: {
                name: _record(name, of_group.get(name), relative[group].get(name))
                for name in _names(evaluator.target)
            }
            for group, of_group in found.items()
        },
    }


def evaluator_record(evaluator: Evaluator) -> dict[str, Any]:
    """Return what is the same for all files: the task, its reference, ceilings and floors."""
    reference, target = evaluator.reference, evaluator.target
    return {
        "task": target.name,
        "title": target.title,
        "likelihood": target.likelihood,
        "target": target.fingerprint(evaluator.data.sha256),
        "data": evaluator.data.sha256,
        "bootstrap": evaluator.replicates,
        "seed": evaluator.seed,
        "reference": {"passed": reference.passed, "why": list(reference.why)},
        "points": {group: len(rows) for group, rows in evaluator.resampling.groups.items()},
        "ceiling": {
            group: {name: _record(name, one, None) for name, one in of_group.items()}
            for group, of_group in evaluator.ceiling.items()
        },
        "floor": evaluator.floor,
    }


def _names(target: Target) -> Sequence[str]:
    regression = ("wasserstein", "w2", "w2_kit", "w2_as_printed", "rmse", "crps", "coverage_90")
    if target.likelihood == "gaussian":
        return regression
    return [
        name
        for name in MEASURES
        if name not in regression and (target.decision or name not in ("regret", "referral_area"))
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
