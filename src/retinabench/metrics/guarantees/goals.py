"""Goals: what a referral threshold has to reach, as a user states it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject
from retinabench.metrics.guarantees.risks import TARGETS, RatioRisk

ALIASES = {"workload": "referral_rate", "error": "selective_risk"}


@dataclass(frozen=True)
class Goal:
    """A target and the value that it must reach.

    Examples:
        >>> Goal.parse("sensitivity=.9")
        Goal(target='sensitivity', value=0.9)
        >>> str(Goal("workload", 0.5))
        'referral_rate <= 0.5'
    """

    target: str
    value: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", ALIASES.get(self.target, self.target))
        if self.target not in TARGETS:
            raise InputError(f"unknown target '{self.target}'", hint=nearest(self.target, TARGETS))
        if not 0 <= self.value <= 1:
            raise InputError(f"the goal is {self.value:g}", hint="A goal lies between 0 and 1.")

    @classmethod
    def parse(cls, text: str, target: str = "selective_risk") -> Goal:
        """Read `sensitivity=.9`; a number alone is the goal of `target`."""
        name, found, number = text.rpartition("=")
        try:
            return cls(name.strip() if found else target, float(number))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"unknown goal '{text}'", hint="Give 0.05 or sensitivity=0.9.") from None

    @property
    def spec(self) -> RatioRisk:
        """The target's definition."""
        return TARGETS[self.target]

    @property
    def max_risk(self) -> float:
        """The greatest E[num] / E[den]."""
        return 1 - self.value if self.spec.at_least else self.value

    @property
    def text(self) -> str:
        """The goal in words, such as `error of the retained at most 0.05`."""
        return f"{self.spec.heading} at {'least' if self.spec.at_least else 'most'} {self.value:g}"

    def __str__(self) -> str:
        return f"{self.target} {'>=' if self.spec.at_least else '<='} {self.value:g}"

    def to_dict(self) -> JsonObject:
        """Return the goal for JSON."""
        return {"target": self.target, "goal": self.value, "at_least": self.spec.at_least}


def as_goals(target: str, goal: float, goals: Sequence[Goal | str]) -> tuple[Goal, ...]:
    """Return the goals that were asked for, each target once."""
    found = tuple(one if isinstance(one, Goal) else Goal.parse(one, target) for one in goals) or (
        Goal(target, goal),
    )
    names = [one.target for one in found]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"the target '{name}' has two goals", hint="Give each target one goal.")
    return found
