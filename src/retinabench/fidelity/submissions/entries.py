"""The entries of the benchmark: the settings under which each method takes part, as the methods state them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import sqrt
from typing import Any

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject
from retinabench.core.settings import merged
from retinabench.experiments.config import Run, load_run
from retinabench.experiments.config_sources import override
from retinabench.fidelity.submissions.budget import within
from retinabench.fidelity.targets.target import Target
from retinabench.methods.base import FidelitySettings
from retinabench.methods.registry import METHODS

UNTRAINED_TITLES = {
    "nngp": "infinite width (NNGP)",
    "ntk": "infinite width (NTK)",
    "hmc": "HMC, one chain",
    "nuts": "NUTS, one chain",
    "mclmc": "microcanonical Langevin (MCLMC)",
    "smc": "tempered particles (SMC)",
    "svgd": "Stein variational gradient descent",
}
"""Titles of the entries without a training loop (`untrained/run.py`), by name."""
PER_POINT = " per point"


@cache
def entries() -> dict[str, FidelitySettings]:
    """Return the entries of all methods by name."""
    return {
        one.name: one.model_copy(update={"method": {"name": name, **one.method}})
        for name, method in METHODS.items()
        for one in getattr(method, "FIDELITY", ())
    }


def entry(name: str) -> FidelitySettings:
    """Return one entry. A method without one takes part under its own name, with its default settings.

    Raises:
        InputError: There is neither.
    """
    if name in entries():
        return entries()[name]
    if name in METHODS:
        return FidelitySettings(name=name, title=METHODS[name].Config.title or name, method={"name": name})
    raise InputError(f"unknown method '{name}'", hint=nearest(name, {*entries(), *METHODS}))


def entry_run(
    entry: FidelitySettings,
    target: Target,
    points: int,
    budget: float,
    seed: int,
    overrides: Sequence[str] = (),
) -> Run:
    """Return the run of an entry on a target.

    The loss is the mean negative log-likelihood + l2 Σ w² with l2 = 1 / (2 N s²) over all weights, which is the negative
    log posterior divided by N.

    Args:
        entry: The settings of the method.
        target: The target.
        points: Number of its training points, N.
        budget: Gradient evaluations per training example, which decide the number of epochs.
        seed: Of all random streams.
        overrides: Settings such as ``optimizer.lr=0.01``.
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
    run = load_run(**_of_target(tree, target))
    return run if "epochs" in tree["optimizer"] else within(run, entry.share * budget)


def _of_target(value: Any, target: Target) -> Any:
    """Replace the names of the target's numbers by the numbers, in nested tables too."""
    if isinstance(value, dict):
        return {key: _of_target(inner, target) for key, inner in value.items()}
    numbers = {"prior_precision": 1 / target.prior_variance, "prior_std": sqrt(target.prior_variance)}
    if isinstance(value, str) and value.endswith(PER_POINT):
        return float(value.removesuffix(PER_POINT)) * target.train
    return numbers.get(value, value) if isinstance(value, str) else value
