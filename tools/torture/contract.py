"""What a campaign yields, and where campaigns are found."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from torture import campaigns


class Verdict(StrEnum):
    """How a trial ended."""

    REFUSED = "refused"  # in one line that names the place and a hint
    EQUAL = "equal"  # accepted, with the result of an independent reading or of an undisturbed run
    SURVIVED = "survived"  # the work failed with one clear line, and nothing was damaged
    SKIPPED = "skipped"  # not possible on this machine; the detail says why
    FAILED = "FAILED"  # traceback, hang, too much memory, wrong acceptance, other result, leftover


@dataclass(frozen=True)
class Outcome:
    """The result of one trial.

    Args:
        campaign: The row of the table that counts it: the campaign's name, with its part where it has several: ``kills at random times``.
        case: What was tried, enough to repeat it with the batch's seed: ``"byte 812 of predictions.parquet"``.
        verdict: How it ended.
        detail: The error line, or how it failed.
    """

    campaign: str
    case: str
    verdict: Verdict
    detail: str = ""


class Campaign(Protocol):
    """A module of `torture.campaigns`."""

    UNIT: str

    def campaign(self, seed: int, scratch: Path) -> Iterator[Outcome]:
        """Run one batch of trials."""


def campaign_names() -> list[str]:
    """The names of all campaigns."""
    return sorted(found.name for found in pkgutil.iter_modules(campaigns.__path__))


def load(name: str) -> Campaign:
    """Import one campaign."""
    module: Campaign = importlib.import_module(f"torture.campaigns.{name}")
    return module
