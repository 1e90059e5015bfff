"""Two tables of the board beside closeness: whether the posterior itself is useful, and how entries fare under damage.

The first compares the reference with MAP and with the uniform distribution by the negative log-likelihood of the true classes, or the CRPS of
y; differences have 95 % intervals over test points. The second is that of the competition's paper: mean and std over all kinds and strengths of
corruption.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from retinabench.fidelity import distances
from retinabench.fidelity.leaderboard.results import FidelityEntry, TaskBoard
from retinabench.fidelity.leaderboard.scores import WHY_UNDEFINED
from retinabench.fidelity.scoring import utility
from retinabench.fidelity.scoring.measures import MEASURES
from retinabench.fidelity.scoring.resampling import ALL, mean_of
from retinabench.fidelity.submissions.submission import Submission
from retinabench.reports.toolkit.number_format import NumberFormat, Quantity
from retinabench.reports.toolkit.tables import UNDEFINED, Cell, Column, Row, Table

MAP = "map"  # the entry
_FORM = NumberFormat(3)
Values = NDArray[np.float64]


def usefulness_table(tasks: Sequence[TaskBoard]) -> Table | None:
    """Return how well posterior, MAP and no knowledge predict, by task and group; None where no labels are known.

    Args:
        tasks: The boards of all tasks and divisions; of a task's entries of MAP that of the largest budget counts.
    """
    rows = []
    for name in dict.fromkeys(task.target.name for task in tasks):
        boards = [task for task in tasks if task.target.name == name]
        if boards[0].evaluator.truth is None:
            continue
        points = [entry for task in boards for entry in task.competitors if _is_map(entry)]
        known = max(points, key=lambda entry: entry.budget.used if entry.budget else 0, default=None)
        rows += _rows(boards[0], known)
    if not rows:
        return None
    columns = [Column(title, direction="lower") for title in ("posterior", "MAP", "uniform")]
    columns += [Column("posterior less MAP"), Column("posterior less uniform")]
    note = (
        "Negative log-likelihood in nats; of a regression the CRPS, and instead of uniform the distribution of y over the training points. "
        "Differences below 0: the posterior predicts better; 95 % intervals over test points."
    )
    return Table.of(
        "Does the posterior predict better than MAP and than no knowledge?", columns, rows, note=note
    )


def _rows(task: TaskBoard, known: FidelityEntry | None) -> list[Row]:
    evaluator, reference = task.evaluator, task.evaluator.reference
    gaussian = task.target.likelihood == "gaussian"
    own = Submission(draws=reference.draws) if gaussian else Submission(reference.probs)
    losses: list[Values | None] = [_losses(task, [own])]
    losses.append(None if known is None else _losses(task, known.submissions))
    nothing = next(entry for entry in task.entries if entry.title in ("uniform", "marginal of y"))
    losses.append(_losses(task, nothing.submissions))
    first, found = losses[0], []
    assert first is not None
    for group, points in evaluator.resampling.groups.items():
        if group[-1:].isdigit():
            continue
        cells = [UNDEFINED if one is None else _cell(Quantity(float(one[points].mean()))) for one in losses]
        for one in losses[1:]:
            if one is None:
                cells.append(UNDEFINED)
                continue
            with np.errstate(invalid="ignore"):
                term = mean_of((first - one)[points])
            estimate = evaluator.resampling.estimate({"difference": term}, group)["difference"]
            cells.append(_cell(Quantity(estimate.value, *estimate.interval())))
        label = f"{task.target.name}: {'all test points' if group == ALL else group.replace('_', '-')}"
        found.append(Row(label, cells))
    return found


def _cell(loss: Quantity) -> Cell:
    """Return the cell of a loss, or of a difference, with the reason where it is infinite."""
    return Cell(loss, _FORM, why="" if loss.defined else WHY_UNDEFINED["nll"])


def _losses(task: TaskBoard, submissions: Sequence[Submission]) -> Values:
    """Return the loss of each test point, (N,), the mean over seeds."""
    truth = task.evaluator.truth
    assert truth is not None
    kind = "crps" if task.target.likelihood == "gaussian" else "nll"
    found = []
    for one in submissions:
        if kind == "crps":
            assert one.draws is not None
            found.append(utility.crps(one.draws, np.asarray(truth, np.float64)))
        else:
            assert one.probs is not None
            found.append(utility.classification(one.probs, truth)[kind].terms[:, 0])
    return np.asarray(np.mean(found, axis=0), np.float64)


def _is_map(entry: FidelityEntry) -> bool:
    return entry.submissions[0].about.method == MAP


def corruption_table(task: TaskBoard) -> Table | None:
    """Return the ranked measures over all kinds and strengths of corruption; None where the task has no kinds."""
    groups, kinds = task.evaluator.data.test.groups, task.target.groups
    cells = [np.flatnonzero(groups == cell) for cell in sorted(set(groups.tolist())) if cell.count("-") == 2]
    if task.target.likelihood != "categorical" or len(cells) < 2:
        return None
    names = (*task.ranked_measures, *(["accuracy"] if task.evaluator.truth is not None else []))
    rows = []
    for entry in task.ordered:
        of_seeds = [_of_cells(task, one, cells, names) for one in entry.submissions]
        mean = np.mean(of_seeds, axis=0)  # (cells, measures)
        shown = [
            Cell.number(float(mean[:, k].mean()), error=float(mean[:, k].std(ddof=1)), form=_FORM)
            for k in range(len(names))
        ]
        rows.append(Row(entry.title, shown, entry.baseline))
    columns = [
        Column(MEASURES[name].label, direction="higher" if MEASURES[name].higher else "lower")
        for name in names
    ]
    division = "" if task.division is None else f"; {task.division.label}"
    note = f"Mean ± standard deviation over {len(cells)} cells, each kind of {kinds[1]} at each strength."
    return Table.of(f"{task.target.title}: all kinds and strengths{division}", columns, rows, note=note)


def _of_cells(
    task: TaskBoard, submission: Submission, cells: Sequence[NDArray[np.intp]], names: Sequence[str]
) -> Values:
    """Return the mean of each measure in each cell, (cells, measures)."""
    probs, reference, truth = submission.probs, task.evaluator.reference.probs, task.evaluator.truth
    assert probs is not None
    terms = {
        "agreement": distances.agreement(probs, reference),
        "total_variation": distances.total_variation(probs, reference),
    }
    if truth is not None:
        terms["accuracy"] = probs.argmax(axis=1) == truth
    return np.array([[float(np.mean(terms[name][rows])) for name in names] for rows in cells])
