"""What every verb says besides its result, on standard error: progress and notes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from retinabench.core.progress import QUIET, Bars, Progress


def progress_of(quiet: bool) -> Progress:
    """Return what tells of long work; nothing with `--quiet`."""
    return QUIET if quiet else Bars()


def print_notes(found: Sequence[Mapping[str, Any]]) -> None:
    """Print the `notes` of all results, each one once."""
    for note in dict.fromkeys(note for one in found for note in one["notes"]):
        print(f"note: {note}", file=sys.stderr)
