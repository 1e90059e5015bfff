"""The scores of predictions files as JSON and as CSV."""

from __future__ import annotations

from collections.abc import Sequence

from retinabench.core.results import JsonObject
from retinabench.core.untrusted.paths import shown
from retinabench.core.untrusted.text import csv_text
from retinabench.metrics.inference.interval import finite_or_none
from retinabench.metrics.results import Scores

LIST_SCHEMA = "retinabench.scores-list/1"

_CSV_COLUMNS = ("file", "entry", "rules", "set", "score", "value", "low", "high", "version")


def scores_json(found: Sequence[Scores], names: Sequence[str]) -> JsonObject:
    """Return what `retinabench score --json` writes of one file, or of several as a list.

    Args:
        found: The scores of each file.
        names: What each file is called.

    Returns:
        Plain dictionaries, lists, text, finite numbers and None.
    """
    files = [{**one.to_dict(), "entry": name} for one, name in zip(found, names, strict=True)]
    return files[0] if len(files) == 1 else {"schema": LIST_SCHEMA, "files": files}


def scores_csv(found: Sequence[Scores], names: Sequence[str]) -> bytes:
    """Return a CSV with one row per file, set and score.

    Args:
        found: The scores of each file.
        names: What each file is called.

    Returns:
        The UTF-8 text; an undefined number is an empty cell.
    """
    rows: list[Sequence[object]] = [_CSV_COLUMNS]
    for scores, entry in zip(found, names, strict=True):
        for set_name, one in scores.sets.items():
            for name, value in one.scores.items():
                numbers = [*map(finite_or_none, (value.value, value.low, value.high)), value.version]
                rows.append(
                    [scores.source and shown(scores.source), entry, scores.rules, set_name, name, *numbers]
                )
    return csv_text(rows).encode()
