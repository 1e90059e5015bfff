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
    """The result of one trial."""

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
