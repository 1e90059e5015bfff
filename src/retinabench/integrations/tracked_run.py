"""A run folder as trackers show it: settings, one row of numbers per epoch, and final scores.

Reads `run.json`, `metrics.jsonl` (rewritten after every epoch) and `predictions.parquet`. The last two are optional: a run
in training has no scores yet, and an ensemble has no epochs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from retinabench.core.errors import InputError
from retinabench.core.settings import flat
from retinabench.metrics.scoring import Rules, score
from retinabench.predictions.io import read_predictions

Setting = str | float | bool


@dataclass(frozen=True)
class TrackedRun:
    """One run.

    Attributes:
        name: Name of its folder.
        settings: Value by dotted key.
        rows: Per epoch its number and the values by tag, such as `loss`, `lr` and `validation/auroc`.
        scores: Value by `score/SET/NAME`, undefined ones left out.
        began: Time at which the run was first started, in seconds since 1970.
    """

    name: str
    settings: Mapping[str, Setting]
    rows: tuple[tuple[int, Mapping[str, float]], ...]
    scores: Mapping[str, float]
    began: float


def read_run(folder: Path, rules: Rules = "corrected") -> TrackedRun:
    """Read a run folder, scored by some rules."""
    about = folder / "run.json"
    try:
        content = json.loads(about.read_text())
        # Paths of the data are not settings, and would tell a server about the machine.
        run = {key: value for key, value in content["run"].items() if key not in ("data", "shifted")}
        settings = {key: _setting(value) for key, value in flat(run) if value is not None}
        settings["fingerprint"] = content["fingerprint"]
        began = about.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        hint = "Name run folders, such as runs/*."
        raise InputError("is not a run folder (run.json is missing)", file=folder, hint=hint) from None
    except (ValueError, TypeError, KeyError, AttributeError):
        raise InputError("does not describe a run", file=about, hint="Train the run again.") from None
    predictions = folder / "predictions.parquet"
    scores = _scores(predictions, rules) if predictions.is_file() else {}
    return TrackedRun(folder.resolve().name, settings, tuple(_rows(folder / "metrics.jsonl")), scores, began)


def _rows(file: Path) -> Iterator[tuple[int, dict[str, float]]]:
    if not file.is_file():
        return
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        try:
            row = json.loads(line)
            epoch = int(row.pop("epoch"))
            values = {_tag(key): float(value) for key, value in row.items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            raise InputError("is not an epoch of a training", file=file, row=number) from None
        yield epoch, values


def _tag(key: str) -> str:
    """Return `validation/auroc` for `validation_auroc`: trackers group by the part before the slash."""
    group, _, name = key.partition("_")
    return f"{group}/{name}" if name and group in ("validation", "loss") else key


def _scores(file: Path, rules: Rules) -> dict[str, float]:
    sets = score(read_predictions(file), rules, bootstrap=0).sets
    return {
        f"score/{name}/{key}": entry.value
        for name, one in sets.items()
        for key, entry in one.scores.items()
        if math.isfinite(entry.value)
    }


def _setting(value: object) -> Setting:
    """Return a value as trackers take it: lists become their JSON."""
    return value if isinstance(value, (str, bool, int, float)) else json.dumps(value)
