"""`EvaluationSettings`: how the predictions of a page are scored."""

from __future__ import annotations

from dataclasses import dataclass

from retinabench.core.errors import InputError
from retinabench.metrics.score import ScoreSettings


@dataclass(frozen=True)
class EvaluationSettings(ScoreSettings):
    """How the predictions of a page are scored; what a page adds to the scores always follows the corrected rules.

    Attributes:
        referred: Share of the images that statements and figures refer, 0.01 to 0.95.

    Raises:
        InputError: The share referred is outside its limits, or another setting is wrong.
    """

    referred: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.01 <= self.referred <= 0.95:
            raise InputError(
                f"the share referred is {self.referred:g}",
                hint="Give a share between 0.01 and 0.95, such as 0.1.",
            )


DEFAULTS = EvaluationSettings()
