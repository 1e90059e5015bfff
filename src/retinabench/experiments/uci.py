"""The UCI regression comparison of 2019: every set by every method, beside the published values.

The folder holds `comparison.json` (the manifest), `results/SET/` (a table of the splits, `experiments/many.py`), and the
tables and the figure of all results that are there; a stopped comparison continues.

The data are the usual 20 random 90/10 splits (protein 5). The network has one hidden layer of 50 ReLU (protein 100), with standardised
inputs and target; it is trained by Adam with a rate of 0.01 that falls linearly, in batches of 32 (128 above 2,000 rows). MC dropout has
rate 0.05, mean-field VI the prior N(0, 1) and flipout, both 200 samples; the ensemble has 5 members without adversarial examples. Nothing
is tuned per set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy.special import logsumexp
from torch import nn

from retinabench.core.errors import QUIET, DivergedError, InputError, Progress, csv_text
from retinabench.core.files import write_bytes
from retinabench.core.random_streams import torch_generator
from retinabench.core.results import JsonObject
from retinabench.core.subprocesses import in_processes
from retinabench.core.workspace import Workspace
from retinabench.data.datasets.uci import SETS, Floats, Regression, available, known_set, read
from retinabench.data.loader import array_batches
from retinabench.experiments.many import Item, Result, ResultTable, run_many
from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import Optimizer, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Gaussian
from retinabench.models.build import initialise
from retinabench.models.networks.small import MLP
from retinabench.reports.toolkit.figures import FAINT, INK, MUTED, PAPER, canvas, drawing, mark, save

SCHEMA = "retinabench.uci/2"
# Of the standardised target: a variance of at least 1e-6, as published for ensembles.
LIKELIHOOD = Gaussian(floor=1e-3)
BATCHES = ((2000, 32), (math.inf, 128))  # training rows up to which, and rows per batch
SEEDS = 1000  # of one comparison; more than any set has splits
CPU = torch.device("cpu")

# By the names of the published table.
SETTINGS: dict[str, JsonObject] = {
    "dropout": {"name": "dropout", "rate": 0.05, "samples": 200},
    "variational": {
        "name": "mfvi", "prior_mean": "zero", "prior_stddev": 1.0, "stddev_mean_init": 0.05, "annealing": "none",
        "samples": 200,
    },
    "ensemble": {"name": "ensemble", "members": 5, "member": "map"},
}  # fmt: skip
TITLES = {"dropout": "MC dropout", "variational": "Mean-field VI", "ensemble": "Deep ensemble"}
OPTIMIZER = {
    "name": "adam", "lr": 0.01, "momentum": 0.9, "l2": 0.0, "schedule": "linear", "warmup": 0.0, "reweight": "none",
    "augment": "none", "select": "last",
}  # fmt: skip

MEASURES = {
    "log_likelihood": "Log-likelihood, nats per point (higher is better)",
    "rmse": "Root mean squared error, in the target's units (lower is better)",
    "matched_log_likelihood": "Log-likelihood of one Gaussian per point with the mixture's mean and variance",
}
COLUMNS = {"log_likelihood": "log-likelihood, nats per point", "rmse": "root mean squared error"}
Splits = dict[str, float | None]
Results = dict[str, dict[str, list[Splits]]]  # Set -> method -> scores of each split by name.


@dataclass(frozen=True, eq=False)
class SplitTraining:
    """The training of one method, a name of `SETTINGS`, on one split of a set."""

    data: Regression
    method: str
    split: int
    epochs: int
    seed: int


def compare_methods(
    source: Path,
    sets: Sequence[str],
    out: Path,
    *,
    epochs: int,
    seed: int,
    workers: int = 1,
    progress: Progress = QUIET,
) -> list[Path]:
    """Compute what is missing of the comparison; write its tables and figure, and return them."""
    for name in sets:
        known_set(name)
    names = [name for name in SETS if name in sets] or available(source)
    if not names:
        hint = "Expected folders such as energy/data.txt or UCI_Datasets/energy/data/data.txt."
        raise InputError("holds none of the UCI sets", file=source, hint=hint)
    loaded = [read(source, name) for name in names]  # all are checked before the long work begins
    folder = Workspace(out, "UCI comparison", "comparison.json")
    optimizer = {**OPTIMIZER, "batch_size": [size for _, size in BATCHES]}
    manifest = {"schema": SCHEMA, "epochs": epochs, "seed": seed, "methods": SETTINGS, "optimizer": optimizer}
    with folder.lock():
        folder.begin(manifest)
        items = [
            Item(table, f"{method}-{split}", SplitTraining(data, method, split, epochs, seed))
            for data in loaded
            for table in [_table(out, data.name, data.fingerprint)]
            for method in SETTINGS
            for split in range(len(data.train))
        ]

        def compute(missing: Sequence[Item[SplitTraining]]) -> Iterable[tuple[Item[SplitTraining], Result]]:
            jobs = [item.work for item in missing]
            with progress.track("Training", len(jobs), unit="splits") as advance:
                for number, result in in_processes(train_split, jobs, workers):
                    yield missing[number], result
                    advance(1)

        run_many(items, compute)
        found = results(out)
        write_bytes(out / "uci.csv", csv_table(found, epochs).encode())
        write_bytes(out / "uci.md", markdown(found, epochs).encode())
        with drawing():
            return [out / "uci.csv", out / "uci.md", *save(draw_figure(found), out / "uci", dpi=110)]


def results(out: Path) -> Results:
    """Return the results in a folder by set and method, in the order of the paper's table."""
    found: Results = {}
    for name in SETS:
        known = _table(out, name, None).known
        for method in SETTINGS:
            if splits := [known[key].scores for split in range(1000) if (key := f"{method}-{split}") in known]:
                found.setdefault(name, {})[method] = splits
    return found


def _table(out: Path, name: str, fingerprint: str | None) -> ResultTable:
    return ResultTable(out / "results" / name, None if fingerprint is None else {"set": name, "data": fingerprint})


def train_split(training: SplitTraining) -> Result:
    began = time.time()
    scores = train_and_score(training) | {"points": float(len(training.data))}
    key = f"{training.method}-{training.split}"
    return Result(key, "done", "", time.time() - began, 1, time.time(), scores=scores)


def train_and_score(training: SplitTraining) -> Splits:
    """Train on a split, standardised by its training rows alone, and score the predictions of its test rows by name; `DivergedError` where the training diverged."""
    data = training.data
    train, test = data.train[training.split], data.test[training.split]
    inputs, targets = data.inputs[train], data.targets[train]
    mean, std = inputs.mean(axis=0), inputs.std(axis=0)
    std[std <= 1e-12 * np.abs(mean)] = 1  # a constant column: its std is not exactly 0 after rounding
    center, scale = targets.mean(), targets.std()
    where = f"{data.name}, split {training.split}, {TITLES[training.method]}"
    standardised = ((inputs - mean) / std, (targets - center) / scale, (data.inputs[test] - mean) / std)
    fitted, aims, tested = (values.astype(np.float32) for values in standardised)
    try:
        predicted = _predict(run_of(training), fitted, aims, tested, SETS[data.name].hidden).astype(np.float64)
    except DivergedError as error:
        raise DivergedError(f"{where}: {error}") from None
    if not np.isfinite(predicted).all():
        raise DivergedError(f"{where}: predictions are not finite: the training diverged")
    means, stds = center + scale * predicted[..., 0], scale * predicted[..., 1]
    return split_scores(data.targets[test], means, stds**2)


def run_of(training: SplitTraining) -> TrainingRun:
    """Return the settings of a training; splits have different seeds."""
    rows = training.data.train.shape[1]
    batch_size = next(size for most, size in BATCHES if rows <= most)
    return TrainingRun(
        method=SETTINGS[training.method],
        optimizer=Optimizer(**OPTIMIZER, batch_size=batch_size, epochs=training.epochs),
        seed=SEEDS * training.seed + training.split,
    )


def _predict(
    run: TrainingRun, inputs: NDArray[np.float32], targets: NDArray[np.float32], test: NDArray[np.float32], hidden: int
) -> NDArray[np.float32]:
    """Train on inputs (n, D) and targets (n,); return mean and std (S, m, 2) of the test inputs (m, D)."""
    method = METHODS[run.method.name]
    if is_composed(method):
        members = [_predict(member, inputs, targets, test, hidden) for member in method.member_runs(run)]
        return np.concatenate(members)
    network = MLP(inputs.shape[1], hidden, LIKELIHOOD.outputs, nn.ReLU)
    network.initialisation = "glorot_uniform"  # type: ignore[assignment]  # read by `initialise`
    initialise(network, torch_generator(CPU, run.seed, "weights"))
    batches = array_batches(inputs, targets, run.optimizer.batch_size, run.seed, CPU)
    posterior = method.fit(network, batches, run, Checkpoint(), LIKELIHOOD)
    generator = torch_generator(CPU, run.seed, "predict")
    with torch.no_grad():
        predicted = posterior.predict(torch.from_numpy(test), run.method.samples, generator)
    return np.asarray(predicted.numpy(), np.float32)


# ------------------------------------------------------------------------------- scores of the test rows
#
# A prediction is a mixture of T Gaussians per point: means (T, N) and variances (T, N), or whatever broadcasts to it, all in
# the target's own units; hence the log-likelihood is of the target's own units too (minutes instead of hours lower it by log 60).


def _gaussian_log_density(target: Floats, mean: Floats, variance: Floats) -> Floats:
    """log N(target; mean, variance)."""
    density: Floats = -0.5 * (np.log(2 * np.pi * variance) + (target - mean) ** 2 / variance)
    return density


def mixture_log_likelihood(target: Floats, means: Floats, variances: Floats) -> float:
    """Mean over N points of log (1/T Σ_t N(y; m_t, v_t)): the likelihood of the predictive distribution itself.

    Shapes: `target` (N,), `means` (T, N), `variances` (T, N) or what broadcasts to it. In nats per point.
    """
    components = _gaussian_log_density(target, means, variances)
    return float(np.mean(logsumexp(components, axis=0) - np.log(len(components))))


def matched_log_likelihood(target: Floats, means: Floats, variances: Floats) -> float:
    """Mean log-likelihood of one Gaussian per point with the mixture's mean and variance, by the law of total variance (Lakshminarayanan 2017)."""
    variance = np.mean(np.broadcast_to(variances, means.shape), axis=0) + np.var(means, axis=0)
    return float(np.mean(_gaussian_log_density(target, means.mean(axis=0), variance)))


def split_scores(target: Floats, means: Floats, variances: Floats) -> Splits:
    """Return the scores of test targets (N,) under a mixture, means and variances (T, N), by name."""
    return {
        "log_likelihood": mixture_log_likelihood(target, means, variances),
        "matched_log_likelihood": matched_log_likelihood(target, means, variances),
        "rmse": float(np.sqrt(np.mean((target - means.mean(axis=0)) ** 2))),
    }


# ------------------------------------------------------------------------------- tables and figure


def mean_and_error(splits: Sequence[Splits], measure: str) -> tuple[float, float]:
    """Return mean and standard error (sample std / √K) over the K splits."""
    values = np.array([split[measure] for split in splits], np.float64)
    error = values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), float(error)


def csv_table(found: Results, epochs: int) -> str:
    head = ["set", "method", "epochs", "splits", "points"]
    head += [f"{measure}{suffix}" for measure in MEASURES for suffix in ("", "_standard_error")]
    head += [f"published_{field}" for field in Printed._fields]
    rows: list[list[object]] = [[*head]]
    for name, by_method in found.items():
        for method, splits in by_method.items():
            ours = [f"{value:.6g}" for measure in MEASURES for value in mean_and_error(splits, measure)]
            about = [name, method, epochs, len(splits), round(splits[0]["points"] or 0)]
            rows.append([*about, *ours, *PUBLISHED[name][method]])
    return csv_text(rows)


def markdown(found: Results, epochs: int) -> str:
    """One table per measure: per method ours and the printed value, and the released grid search of MC dropout."""
    titles = _titles(found)
    blocks = [
        f"{epochs} epochs. Ours: mean ± standard error over the random splits. Published: Table 2 of the 2019 paper, as "
        "printed. Grid search: the released MC dropout code's own table."
    ]
    for measure, title in MEASURES.items():
        printed = measure in Printed._fields
        head = ["set"]
        for method, name in titles.items():
            head += [name, "published"] if printed else [name]
            head += ["grid search"] if printed and method == "dropout" else []
        rows = [head, ["---"] * len(head)]
        for name, by_method in found.items():
            row = [SETS[name].title]
            for method in titles:
                ours = by_method.get(method)
                row.append("" if ours is None else plus_minus(*mean_and_error(ours, measure)))
                if printed:
                    row.append(_printed(PUBLISHED[name][method], measure))
                    row += [_printed(GRID_SEARCH[name], measure)] if method == "dropout" else []
            rows.append(row)
        lines = "\n".join("| " + " | ".join(row) + " |" for row in rows)
        blocks.append(f"### {title}\n\n{lines}")
    return "\n\n".join(blocks) + "\n"


def _titles(found: Results) -> dict[str, str]:
    return {method: TITLES[method] for by_method in found.values() for method in by_method}


def plus_minus(mean: float, error: float) -> str:
    """Return `-2.46 ± 0.06`: two to five decimals, as many as the error's second digit needs."""
    if not math.isfinite(error):
        return f"{mean:.3g}"
    decimals = 2 if error <= 0 else min(max(1 - math.floor(math.log10(error)), 2), 5)
    return f"{mean:.{decimals}f} ± {error:.{decimals}f}"


def _printed(value: Printed, measure: str) -> str:
    mean, spread = getattr(value, measure), getattr(value, f"{measure}_spread")
    return f"{mean:.2f}" if spread is None else f"{mean:.2f} ± {spread:.2f}"


def draw_figure(found: Results) -> Figure:
    """Draw one row per set, one column per measure; bars are one standard error over splits (printed: as printed)."""
    titles = _titles(found)
    figure, axes = canvas(920, 70 + 96 * len(found), rows=len(found), columns=2, text=11)
    for row, name in zip(axes, found, strict=True):
        for panel, measure in zip(row, COLUMNS, strict=True):
            _panel(panel, found, name, measure, list(titles))
        row[0].set_yticks(range(len(titles)), list(titles.values()), color=INK)
        row[1].set_yticks([])
        row[0].set_title(SETS[name].title, loc="left", fontsize=11, fontweight="bold", color=INK, pad=3)
    for panel, label in zip(axes[-1], COLUMNS.values(), strict=True):
        panel.set_xlabel(label)
    dot: dict[str, Any] = {"marker": "o", "linestyle": "none", "markersize": 6}
    ours = axes[0][0].errorbar([], [], color=INK, label="ours", **dot)
    handles = [ours, axes[0][0].errorbar([], [], color=MUTED, markerfacecolor=PAPER, label="as printed", **dot)]
    figure.legend(handles=handles, loc="outside upper right", ncols=2, frameon=False)
    return figure


def _panel(panel: Axes, found: Results, name: str, measure: str, methods: list[str]) -> None:
    for number, method in enumerate(methods):
        color = mark(number).color
        printed = PUBLISHED[name][method]
        panel.errorbar(
            [getattr(printed, measure)], [number + 0.16], xerr=getattr(printed, f"{measure}_spread"), marker="o",
            color=color, markerfacecolor=PAPER, markersize=6, linewidth=1, alpha=0.75,
        )  # fmt: skip
        if method in found[name]:
            mean, error = mean_and_error(found[name][method], measure)
            panel.errorbar([mean], [number - 0.16], xerr=error, marker="o", color=color, markersize=6, zorder=3)
    panel.set_ylim(len(methods) - 0.5, -0.5)
    panel.tick_params(axis="y", length=0)
    panel.spines["left"].set_visible(False)
    panel.xaxis.set_major_locator(MaxNLocator(5))
    panel.grid(axis="x", color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)


class Printed(NamedTuple):
    """A mean and what follows its ± (None: not printed), for the log-likelihood and the RMSE."""

    log_likelihood: float
    log_likelihood_spread: float | None
    rmse: float
    rmse_spread: float | None


# Table 2 of the 2019 paper, which took the deep ensembles from Lakshminarayanan et al. 2017 and the other two from
# Mukhoti et al. 2018. Kept as printed, impossible values included (docs/uci.md).
_TABLE = {
    # set: dropout, variational, ensemble
    "boston": ((-2.46, 0.25, 2.97, 0.85), (-2.58, 0.06, 3.42, 0.23), (-2.41, 0.25, 3.28, 1.00)),
    "concrete": ((-3.04, 0.09, 5.23, 0.53), (-5.08, 0.01, 5.71, 0.15), (-3.06, 0.18, 6.03, 0.58)),
    "energy": ((-1.99, 0.09, 1.66, 0.19), (-1.05, 0.01, 0.81, 0.08), (-1.38, 0.22, 2.09, 0.29)),
    "kin8nm": ((0.95, 0.03, 0.10, 0.00), (1.08, 0.01, 0.37, 0.00), (1.20, 0.02, 0.09, 0.00)),
    "naval": ((3.80, 0.05, 0.01, 0.00), (-1.57, 0.01, 0.01, 0.00), (5.63, 0.05, 0.00, 0.00)),
    "power": ((-2.80, 0.05, 4.02, 0.18), (-7.54, 0.00, 4.02, 0.04), (-2.79, 0.04, 4.11, 0.17)),
    "protein": ((-2.89, 0.01, 4.36, 0.04), (-3.67, 0.00, 4.40, 0.02), (-2.83, 0.02, 4.71, 0.06)),
    "wine": ((-0.93, 0.06, 0.62, 0.04), (-3.15, 0.01, 0.65, 0.01), (-0.94, 0.12, 0.64, 0.04)),
    "yacht": ((-1.55, 0.12, 1.11, 0.38), (-4.20, 0.05, 1.75, 0.42), (-1.18, 0.21, 1.58, 0.48)),
}
PUBLISHED: dict[str, dict[str, Printed]] = {
    name: {method: Printed(*row) for method, row in zip(("dropout", "variational", "ensemble"), rows, strict=True)}
    for name, rows in _TABLE.items()
}

# The grid search of the released MC dropout code, many more epochs than Table 2's.
GRID_SEARCH: dict[str, Printed] = {
    name: Printed(likelihood, None, rmse, None)
    for name, (likelihood, rmse) in {
        "boston": (-2.40, 2.90), "concrete": (-2.93, 4.82), "energy": (-1.21, 0.54), "kin8nm": (1.14, 0.08),
        "naval": (4.45, 0.00), "power": (-2.80, 4.01), "protein": (-2.87, 4.27), "wine": (-0.93, 0.62),
        "yacht": (-1.25, 0.67),
    }.items()
}  # fmt: skip
