"""Helpers for tests of the trackers: the rows of a run folder, and the end of its training."""

import json
import shutil
from pathlib import Path
from typing import Any


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """The rows of `metrics.jsonl`, one per epoch."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def finish(unfinished: Path, trained: Path) -> None:
    """Complete an unfinished run with the files of the finished one."""
    for name in ("metrics.jsonl", "predictions.parquet"):
        shutil.copy(trained / name, unfinished)
