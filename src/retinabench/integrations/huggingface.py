"""Scores in the evaluations of a Hugging Face `Trainer`.

    trainer = transformers.Trainer(..., compute_metrics=compute_metrics())

The trainer logs them as `eval_auroc` and so on; `metric_for_best_model="referral_accuracy_area"` selects by one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from retinabench.integrations.outputs import DEFAULT_SCORES, check_scores, predictions_of, scores_of


def compute_metrics(
    scores: Sequence[str] = DEFAULT_SCORES, referable_from: int | None = None
) -> Callable[[Any], dict[str, float]]:
    """Return the function that a `Trainer` calls with the outputs and labels of an evaluation.

    Args:
        scores: Names of scores, as in docs/scores.md.
        referable_from: As in `predict_torch`.

    Returns:
        A function from an `EvalPrediction`, with `predictions` (N, C) of logits, or a tuple that begins with them, and
        `label_ids` (N,), to the scores by name.

    Raises:
        InputError: A score is unknown.
    """
    names = check_scores(scores)

    def compute(evaluated: Any) -> dict[str, float]:
        logits = evaluated.predictions
        logits = logits[0] if isinstance(logits, tuple) else logits
        return scores_of(
            predictions_of(logits, {"label": evaluated.label_ids}, referable_from=referable_from), names
        )

    return compute
