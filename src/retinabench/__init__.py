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

if TYPE_CHECKING:
    from retinabench.data.tasks import load_task
    from retinabench.formats import read_predictions, write_predictions
    from retinabench.predictions import Predictions
    from retinabench.scores.clinic_report import clinic
    from retinabench.scores.compare import compare
    from retinabench.scores.evaluate import evaluate
    from retinabench.scores.evaluation import Scores, score
    from retinabench.scores.leaderboard import rank
    from retinabench.scores.referral import referral_curve
    from retinabench.scores.transfer import transfer

__version__ = "0.1.0"
__all__ = [
    "Predictions",
    "Scores",
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
    "Predictions": "retinabench.predictions",
    "Scores": "retinabench.scores.evaluation",
    "clinic": "retinabench.scores.clinic_report",
    "compare": "retinabench.scores.compare",
    "evaluate": "retinabench.scores.evaluate",
    "load_task": "retinabench.data.tasks",
    "rank": "retinabench.scores.leaderboard",
    "read_predictions": "retinabench.formats",
    "referral_curve": "retinabench.scores.referral",
    "score": "retinabench.scores.evaluation",
    "transfer": "retinabench.scores.transfer",
    "write_predictions": "retinabench.formats",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'retinabench' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
