"""Configurations that come with the package, by name: TOML files, and the rows of one table of published values."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent / "presets"
TABLE = HERE / "published.toml"


def presets(optimizer_keys: Collection[str]) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Return every preset's file and its content, by name: `demo/map`, `published/mfvi/country/joint`.

    `optimizer_keys` are the options that belong to the optimiser; the table's rows hold them beside the method's.
    """
    files = {
        str(path.relative_to(HERE).with_suffix("")): (path, _read(path))
        for path in sorted(HERE.glob("*/*.toml"))
    }
    table = dict(_read(TABLE))
    shared = table.pop("shared")
    rows = {
        f"{kind}/{method}/{task}/{criterion}": (
            TABLE,
            {"task": name, **_run(method, {**block[behaviour], **values}, shared, optimizer_keys)},
        )
        for kind, behaviour in (("published", "released"), ("corrected", "corrected"))
        for method, block in table.items()
        for task, name in shared[f"{behaviour}_task"].items()
        for criterion, values in block[task].items()
    }
    return files | rows


def canonical(name: str) -> str:
    """Return the name that `presets` knows for an earlier one: `published/map-country-joint` and its like."""
    return name.replace("-", "/") if name.startswith("published/") else name


def _run(
    method: str, row: Mapping[str, Any], shared: Mapping[str, Any], optimizer_keys: Collection[str]
) -> dict[str, Any]:
    """Put one row of the table into the shape of a Run's tables."""
    optimizer = dict(shared["optimizer"]) | {key: row[key] for key in row if key in optimizer_keys}
    # Published as 1 - momentum; rounded to what was printed.
    optimizer["momentum"] = round(1 - row["one_minus_momentum"], 10)
    own = {key: row[key] for key in row if key not in optimizer_keys and key != "one_minus_momentum"}
    return {
        "model": dict(shared["model"]),
        "method": {"name": method, **own},
        "optimizer": optimizer,
    }


@cache
def _read(path: Path) -> dict[str, Any]:
    return tomllib.loads(path.read_text(encoding="utf-8"))
