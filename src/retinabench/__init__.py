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
    from retinabench.metrics.clinical.screening import ScreeningReport, clinic
    from retinabench.metrics.comparison import Comparison, Difference, Ranking, SetComparison, compare, rank
    from retinabench.metrics.decisions import by_patient
    from retinabench.metrics.grades import grade_sets
    from retinabench.metrics.guarantees.goals import Per
    from retinabench.metrics.guarantees.threshold import Realised
    from retinabench.metrics.guarantees.transfer import Transfer, transfer
    from retinabench.metrics.guarantees.triage import Triage, triage
    from retinabench.metrics.image_sets import Scores, SetScores
    from retinabench.metrics.monitoring import monitor
    from retinabench.metrics.planning import plan
    from retinabench.metrics.recalibration import recalibrate
    from retinabench.metrics.referral_curves import Curve, Metric
    from retinabench.metrics.registry import ScoreValue
    from retinabench.metrics.scoring import Rules, evaluate, referral_curve, score
    from retinabench.predictions.io import read_predictions, write_predictions
    from retinabench.predictions.table import Predictions
    from retinabench.reports.evaluation.write import report

__all__ = [
    "Comparison",
    "Curve",
    "Difference",
    "ExportedModel",
    "Metric",
    "Outputs",
    "Per",
    "Predictions",
    "Problem",
    "Ranking",
    "Realised",
    "Rules",
    "ScoreValue",
    "Scores",
    "ScreeningReport",
    "SetComparison",
    "SetScores",
    "Trained",
    "Transfer",
    "Triage",
    "__version__",
    "apply",
    "by_patient",
    "clinic",
    "compare",
    "evaluate",
    "evaluate_torch",
    "grade_sets",
    "load_model",
    "load_task",
    "monitor",
    "plan",
    "predict_torch",
    "rank",
    "read_predictions",
    "recalibrate",
    "referral_curve",
    "report",
    "score",
    "train",
    "transfer",
    "triage",
    "write_predictions",
]

_MODULES = {
    "Comparison": "metrics.comparison",
    "Curve": "metrics.referral_curves",
    "ExportedModel": "experiments.exporting.model",
    "load_model": "experiments.exporting.model",
    "Predictions": "predictions.table",
    "Problem": "fidelity.problems",
    "Ranking": "metrics.comparison",
    "ScoreValue": "metrics.registry",
    "Scores": "metrics.image_sets",
    "ScreeningReport": "metrics.clinical.screening",
    "SetScores": "metrics.image_sets",
    "Trained": "experiments.dataset_runs",
    "Transfer": "metrics.guarantees.transfer",
    "Triage": "metrics.guarantees.triage",
    "apply": "metrics.actions",
    "by_patient": "metrics.decisions",
    "clinic": "metrics.clinical.screening",
    "compare": "metrics.comparison",
    "evaluate": "metrics.scoring",
    "evaluate_torch": "integrations.pytorch",
    "grade_sets": "metrics.grades",
    "load_task": "data.tasks",
    "monitor": "metrics.monitoring",
    "plan": "metrics.planning",
    "predict_torch": "integrations.pytorch",
    "rank": "metrics.comparison",
    "read_predictions": "predictions.io",
    "recalibrate": "metrics.recalibration",
    "referral_curve": "metrics.scoring",
    "score": "metrics.scoring",
    "train": "experiments.dataset_runs",
    "transfer": "metrics.guarantees.transfer",
    "triage": "metrics.guarantees.triage",
    "write_predictions": "predictions.io",
    "Difference": "metrics.comparison",
    "SetComparison": "metrics.comparison",
    "Realised": "metrics.guarantees.threshold",
    "report": "reports.evaluation.write",
    "Rules": "metrics.scoring",
    "Metric": "metrics.referral_curves",
    "Per": "metrics.guarantees.goals",
    "Outputs": "integrations.pytorch",
}


def __getattr__(name: str) -> Any:
    if name == "fidelity":  # `retinabench.fidelity.problem`
        return importlib.import_module("retinabench.fidelity")
    if name not in _MODULES:
        raise AttributeError(f"module 'retinabench' has no attribute '{name}'")
    return getattr(importlib.import_module(f"retinabench.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
