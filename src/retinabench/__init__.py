"""Tells whether a deep model knows when it does not know: the public interface.

    >>> import retinabench as rb
    >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
    >>> rb.score(predictions, bootstrap=0)["in_domain"].auroc.value
    0.75

Names are imported on first use: `import retinabench` is quick and never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from retinabench.core.version import __version__

if TYPE_CHECKING:
    from retinabench.data.tasks import load_task
    from retinabench.experiments.dataset_runs import Trained, train
    from retinabench.experiments.exporting.model import ExportedModel, load_model
    from retinabench.fidelity.problems import Problem
    from retinabench.integrations.pytorch import Outputs, evaluate_torch, predict_torch
    from retinabench.metrics.actions import apply
    from retinabench.metrics.arrays import evaluate, referral_curve
    from retinabench.metrics.clinical.screening import ScreeningReport, clinic
    from retinabench.metrics.comparison import Comparison, Difference, Ranking, SetComparison, compare, rank
    from retinabench.metrics.grades import grade_sets
    from retinabench.metrics.guarantees.goals import Per
    from retinabench.metrics.guarantees.transfer import Realised, Transfer, transfer
    from retinabench.metrics.guarantees.triage import Triage, triage
    from retinabench.metrics.monitoring import monitor
    from retinabench.metrics.patients import by_patient
    from retinabench.metrics.planning import plan
    from retinabench.metrics.recalibration import recalibrate
    from retinabench.metrics.referral_curves import Curve, Metric
    from retinabench.metrics.registry import ScoreValue
    from retinabench.metrics.scoring import Rules, Scores, SetScores, score
    from retinabench.predictions.io import read_predictions, write_predictions
    from retinabench.predictions.table import Predictions
    from retinabench.reports.evaluation.write import report

__all__ = [
    "Comparison", "Curve", "Difference", "ExportedModel", "Metric", "Outputs", "Per", "Predictions", "Problem",
    "Ranking", "Realised", "Rules", "ScoreValue", "Scores", "ScreeningReport", "SetComparison", "SetScores",
    "Trained", "Transfer", "Triage", "__version__", "apply", "by_patient", "clinic", "compare", "evaluate",
    "evaluate_torch", "grade_sets", "load_model", "load_task", "monitor", "plan", "predict_torch", "rank",
    "read_predictions", "recalibrate", "referral_curve", "report", "score", "train", "transfer", "triage",
    "write_predictions",
]  # fmt: skip

# Module -> names that are imported from it on first use.
_NAMES = {
    "data.tasks": ("load_task",),
    "experiments.dataset_runs": ("Trained", "train"),
    "experiments.exporting.model": ("ExportedModel", "load_model"),
    "fidelity.problems": ("Problem",),
    "integrations.pytorch": ("Outputs", "evaluate_torch", "predict_torch"),
    "metrics.actions": ("apply",),
    "metrics.arrays": ("evaluate", "referral_curve"),
    "metrics.clinical.screening": ("ScreeningReport", "clinic"),
    "metrics.comparison": ("Comparison", "Difference", "Ranking", "SetComparison", "compare", "rank"),
    "metrics.grades": ("grade_sets",),
    "metrics.guarantees.goals": ("Per",),
    "metrics.guarantees.transfer": ("Realised", "Transfer", "transfer"),
    "metrics.guarantees.triage": ("Triage", "triage"),
    "metrics.monitoring": ("monitor",),
    "metrics.patients": ("by_patient",),
    "metrics.planning": ("plan",),
    "metrics.recalibration": ("recalibrate",),
    "metrics.referral_curves": ("Curve", "Metric"),
    "metrics.registry": ("ScoreValue",),
    "metrics.scoring": ("Rules", "Scores", "SetScores", "score"),
    "predictions.io": ("read_predictions", "write_predictions"),
    "predictions.table": ("Predictions",),
    "reports.evaluation.write": ("report",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "fidelity":  # `retinabench.fidelity.problem`
        return importlib.import_module("retinabench.fidelity")
    if name not in _MODULES:
        raise AttributeError(f"module 'retinabench' has no attribute '{name}'")
    return getattr(importlib.import_module(f"retinabench.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
