"""`retinabench.report`: the page of `retinabench report`, from predictions in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from retinabench.metrics.clinical.decision_threshold import DEFAULT, DecisionThreshold
from retinabench.metrics.score import Rules
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluation import EvaluationSettings
from retinabench.reports.evaluation.write import TITLE, write_report


def report(
    predictions: Predictions | Mapping[str, Predictions | Sequence[Predictions]],
    out: str | Path = "report",
    *,
    title: str = TITLE,
    rules: Rules = "corrected",
    bootstrap: int = 1000,
    seed: int = 0,
    referred: float = 0.5,
    threshold: DecisionThreshold | float | str = DEFAULT,
    uncertainty: str = "auto",
) -> Path:
    """Write a self-contained page about one model or several, with its numbers as JSON and CSV.

    Args:
        predictions: The predictions of a model; or a name and predictions of each, several of one are its seeds.
        out: A folder; made where it does not exist.
        title: Headline of the page.
        rules: As in `score`.
        bootstrap: As in `score`.
        seed: As in `score`.
        referred: Share of the images that statements and figures refer.
        threshold: As in `score`.
        uncertainty: As in `score`.

    Returns:
        The path of the page.

    Raises:
        InputError: There is no model, or no test image.

    Examples:
        >>> import tempfile
        >>> import retinabench as rb
        >>> predictions = rb.Predictions(["a", "b", "c", "d"], [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rb.report({"ours": predictions}, folder, bootstrap=0).name
        'index.html'
    """
    methods = predictions if isinstance(predictions, Mapping) else {"model": predictions}
    settings = EvaluationSettings(rules, bootstrap, seed, uncertainty, threshold, referred)
    return write_report(methods, out, settings, title=title)
