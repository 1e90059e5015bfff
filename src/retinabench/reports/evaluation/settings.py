"""`EvaluationSettings`: how the predictions of a page are scored."""

from __future__ import annotations

from dataclasses import dataclass

from retinabench.core.errors import InputError
from retinabench.metrics.clinical.decision_threshold import DEFAULT, DecisionThreshold
from retinabench.metrics.score import Rules


@dataclass(frozen=True)
class EvaluationSettings:
    """How predictions are scored; all but `referred` are arguments of `retinabench.score`.

    Attributes:
        rules: "corrected" or "published", for the scores; what a page adds always follows the corrected rules.
        bootstrap: Number of replicates over patients for every interval.
        seed: Seed of the bootstrap.
        referred: Share of the images that statements and figures refer, 0.01 to 0.95.
        threshold: The decision threshold; a rule chooses it for each file.
        uncertainty: What orders the referral.

    Raises:
        InputError: The share referred is outside its limits.
    """

    rules: Rules = "corrected"
    bootstrap: int = 1000
    seed: int = 0
    referred: float = 0.5
    threshold: DecisionThreshold | float | str = DEFAULT
    uncertainty: str = "auto"

    def __post_init__(self) -> None:
        if not 0.01 <= self.referred <= 0.95:
            raise InputError(
                f"the share referred is {self.referred:g}",
                hint="Give a share between 0.01 and 0.95, such as 0.1.",
            )


DEFAULTS = EvaluationSettings()
