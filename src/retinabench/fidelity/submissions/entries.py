"""The entries of the fidelity benchmark: the settings of each method, and the gradients that a run plans."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import log, sqrt
from typing import Any

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject
from retinabench.core.settings import merged
from retinabench.experiments.config import Run, load_run, override
from retinabench.fidelity.targets.target import Target
from retinabench.methods.base import FidelitySettings, is_composed
from retinabench.methods.registry import METHODS


def planned(run: Run) -> float:
    """Return the gradient evaluations per training example that a run will take, all its members together."""
    method = METHODS[run.method.name]
    if run.method.needs_validation_labels:
        hint = "Name another method."
        raise InputError(f"'{run.method.name}' needs validation labels, which fidelity targets do not have", hint=hint)
    if is_composed(method):
        return sum(planned(member) for member in method.member_runs(run))
    return run.method.gradients_per_example(run.optimizer)


def with_epochs(run: Run, epochs: int) -> Run:
    return run.model_copy(update={"optimizer": run.optimizer.model_copy(update={"epochs": epochs})})


def within(run: Run, limit: float) -> Run:
    """Return the run with as many epochs, at least 1, as `limit` gradient evaluations per example allow, by bisection."""
    least, most = 1, max(1, int(limit))
    while least < most:
        middle = (least + most + 1) // 2
        if planned(with_epochs(run, middle)) <= limit:
            least = middle
        else:
            most = middle - 1
    return with_epochs(run, least)


def check_plan(run: Run, limit: float) -> None:
    plan = planned(run)
    if plan <= limit:
        return
    epochs = within(run, limit).optimizer.epochs
    settings = f"optimizer.epochs to {epochs}"
    if planned(with_epochs(run, epochs)) > limit:
        settings = " or ".join(f"method.{key}" for key in ("members", "train_samples") if hasattr(run.method, key))
    hint = f"Lower {settings or 'the cost of the method'}, or mark the submission by --over-budget mark."
    raise InputError(f"plans {plan:g} gradient evaluations per training example; the budget is {limit:g}", hint=hint)


# Titles of the entries without a training loop (`untrained/run.py`), by name.
UNTRAINED_TITLES = {"nngp": "infinite width (NNGP)", "ntk": "infinite width (NTK)"}

PER_POINT = " per point"
# Weights of a network above which rates are those of `fundus-small` (61,581 weights) at every tier.
LARGE = 10_000


@cache
def entries() -> dict[str, FidelitySettings]:
    return {
        one.name: one.model_copy(update={"method": {"name": name, **one.method}})
        for name, method in METHODS.items()
        for one in getattr(method, "FIDELITY", ())
    }


def entry(name: str) -> FidelitySettings:
    """Return one entry. A method without one takes part under its own name, with its default settings."""
    if name in entries():
        return entries()[name]
    if name in METHODS:
        return FidelitySettings(name=name, title=METHODS[name].Config.title or name, method={"name": name})
    raise InputError(f"unknown method '{name}'", hint=nearest(name, {*entries(), *METHODS}))


def entry_run(
    entry: FidelitySettings, target: Target, points: int, budget: float, seed: int, overrides: Sequence[str] = ()
) -> Run:
    """Return the run of an entry on a target.

    The loss is the mean negative log-likelihood + l2 Σ w² with l2 = 1 / (2 N s²) over all weights, which is the negative
    log posterior divided by N.
    """
    changes = entry.categorical if target.likelihood == "categorical" else entry.gaussian
    posterior = {
        "l2": 1 / (2 * points * target.prior_variance), "l2_on": "everything", "reweight": "none", "augment": "none",
        "select": "last", "batch_size": 50, "warmup": 0.0,
    }  # fmt: skip
    tree: JsonObject = {
        "data": target.name, "task": "fidelity", "seed": seed,
        "method": merged(entry.method, changes.get("method", {})),
        "optimizer": posterior | entry.optimizer | changes.get("optimizer", {}),
    }  # fmt: skip
    for word in overrides:
        override(tree, word)
    run = load_run(**_of_target(tree, target, budget))
    return run if "epochs" in tree["optimizer"] else within(run, budget)


def _of_target(value: Any, target: Target, budget: float) -> Any:
    """Replace the names of the target's numbers by the numbers, and a table of rates by that of the tier or size, in nested tables too."""
    if isinstance(value, dict):
        if tiers := [key for key in value if isinstance(key, int)]:
            large = target.parameters > LARGE
            return value["large" if large else min(tiers, key=lambda tier: abs(log(budget / tier)))]
        return {key: _of_target(inner, target, budget) for key, inner in value.items()}
    numbers = {"prior_precision": 1 / target.prior_variance, "prior_std": sqrt(target.prior_variance)}
    if isinstance(value, str) and value.endswith(PER_POINT):
        return float(value.removesuffix(PER_POINT)) * target.train
    return numbers.get(value, value) if isinstance(value, str) else value
