"""Tells whether a deep model knows when it does not know: the public interface.

    >>> import retinabench as rb
    >>> predictions = rb.Predictions(["a", "b"], [0, 1], [0.1, 0.8])
    >>> predictions.samples
    1

Names are imported on first use: `import retinabench` stays quick and never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from retinabench.core.version import __version__

if TYPE_CHECKING:
    from retinabench.data.tasks import load_task
    from retinabench.metrics.clinical.screening_report import clinic
    from retinabench.metrics.clinical.threshold_transfer import transfer
    from retinabench.metrics.comparison.compare import compare
    from retinabench.metrics.comparison.ranking import rank
    from retinabench.metrics.estimator import evaluate
    from retinabench.metrics.score import Scores, referral_curve, score
    from retinabench.predictions.io import read_predictions, write_predictions
    from retinabench.predictions.table import Predictions

__all__ = [
    "Predictions",
    "Scores",
    "__version__",
    "clinic",
    "compare",
    "evaluate",
    "load_task",
    "rank",
    "read_predictions",
    "referral_curve",
    "score",
    "transfer",
    "write_predictions",
]

_HOME = {
    "Predictions": "retinabench.predictions.table",
    "Scores": "retinabench.metrics.score",
    "clinic": "retinabench.metrics.clinical.screening_report",
    "compare": "retinabench.metrics.comparison.compare",
    "evaluate": "retinabench.metrics.estimator",
    "load_task": "retinabench.data.tasks",
    "rank": "retinabench.metrics.comparison.ranking",
    "read_predictions": "retinabench.predictions.io",
    "referral_curve": "retinabench.metrics.score",
    "score": "retinabench.metrics.score",
    "transfer": "retinabench.metrics.clinical.threshold_transfer",
    "write_predictions": "retinabench.predictions.io",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'retinabench' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
