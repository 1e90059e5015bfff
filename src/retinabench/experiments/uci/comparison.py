"""Every set by every method: one file per pair, whole or absent, so that a stopped comparison continues.

The folder holds `comparison.json` (what its numbers depend on), `results/SET-METHOD.json`, and the tables and figure of
all results that are there.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from retinabench.core.atomic_files import claim, write_json
from retinabench.core.errors import InputError, WorkError
from retinabench.core.progress import QUIET, Progress
from retinabench.core.version import __version__
from retinabench.data.datasets.uci import SETS, Regression, available, known_set, read
from retinabench.experiments.uci import dropout, ensemble, variational
from retinabench.experiments.uci.figure import write_figure
from retinabench.experiments.uci.likelihood import measure
from retinabench.experiments.uci.tables import write_tables

# A method is a module with TITLE, VERSION (raised with every change of a number), TRAININGS and `compute`.
METHODS: dict[str, ModuleType] = {"dropout": dropout, "variational": variational, "ensemble": ensemble}
SCHEMA = "retinabench.uci/1"


def compare_methods(
    source: Path, sets: Sequence[str], out: Path, *, epochs: int, seed: int, progress: Progress = QUIET
) -> list[Path]:
    """Compute what is missing of `sets` (none: all that `source` holds) below `out`; return the written files.

    Raises `InputError` where a set is unknown, missing or damaged, or where `out` holds a comparison by other settings
    or of other data.
    """
    for name in sets:
        known_set(name)
    names = [name for name in SETS if name in sets] or available(source)
    if not names:
        hint = "Expected folders such as energy/data.txt or UCI_Datasets/energy/data/data.txt."
        raise InputError("holds none of the UCI sets", file=source, hint=hint)
    loaded = [read(source, name) for name in names]  # all are checked before the long work begins
    settings = {
        "schema": SCHEMA,
        "epochs": epochs,
        "seed": seed,
        "methods": {name: method.VERSION for name, method in METHODS.items()},
    }
    claim(out / "comparison.json", settings)
    if _read(out / "comparison.json") != settings:
        raise InputError(
            "holds a comparison by other settings or another version", file=out, hint="Choose another --out."
        )
    for data in loaded:
        for name in METHODS:
            _compute(data, name, out, epochs, seed, progress)
    found = results(out)
    return [*write_tables(found, epochs, out), *write_figure(found, out)]


def results(out: Path) -> dict[str, dict[str, Any]]:
    """Return the results in a folder, {set: {method: content of its file}}, in the order of the paper's table."""
    found: dict[str, dict[str, Any]] = {}
    for name in SETS:
        for method in METHODS:
            file = out / "results" / f"{name}-{method}.json"
            if file.is_file():
                found.setdefault(name, {})[method] = _read(file)
    return found


def _compute(data: Regression, name: str, out: Path, epochs: int, seed: int, progress: Progress) -> None:
    method, file = METHODS[name], out / "results" / f"{data.name}-{name}.json"
    if file.is_file():
        if _read(file).get("data") != data.fingerprint:
            hint = "Choose another --out."
            raise InputError("was computed from other data or other splits", file=file, hint=hint)
        progress.say(f"{SETS[data.name].title}, {method.TITLE}: done before")
        return
    began = time.perf_counter()
    with progress.track(
        f"{SETS[data.name].title}, {method.TITLE}", method.TRAININGS * epochs, unit="epochs"
    ) as tell:
        means, variances, chosen = method.compute(data, SETS[data.name].hidden, epochs, seed, tell)
    splits = [
        measure(data.targets[rows], means[:, k], variances[:, k]) | chosen[k]
        for k, rows in enumerate(data.test)
    ]
    if not all(math.isfinite(value) for split in splits for value in split.values()):
        raise WorkError(
            f"{data.name}: {method.TITLE} predicts values that are no numbers: its training diverged."
        )
    content = {
        "schema": SCHEMA,
        "set": data.name,
        "method": name,
        "title": method.TITLE,
        "data": data.fingerprint,
        "points": len(data.targets),
        "splits": splits,
        "seconds": round(time.perf_counter() - began, 1),
        "version": __version__,
        "torch": torch.__version__,
    }
    write_json(file, content)


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError):
        hint = "Delete it; it is then computed again."
        raise InputError("is no JSON", file=file, hint=hint) from None
