"""Any training set, any test set: two prepared folders as one, the second as the shifted domain."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from retinabench.core.errors import InputError
from retinabench.data.prepared import Prepared, Records, join, open_prepared

RECIPE = ("preprocess", "blur", "published")


def open_data(folder: str | Path, shifted: str | Path | None = None) -> Prepared:
    """Open a prepared folder, and join the images of another one to it as its domain 'shifted'.

    Ids stay as they are, unless both folders use one for different images or patients: then the second's get its name
    in front. Raises `InputError` where the pictures differ in size or preprocessing, or are the same data.
    """
    first = open_prepared(folder)
    if shifted is None:
        return first
    second = open_prepared(shifted)
    if first.fingerprint == second.fingerprint:
        raise InputError("holds the same data as --data", file=shifted, hint="Name another data set.")
    if first.size != second.size:
        raise InputError(
            f"holds pictures of {second.size} px, {folder} of {first.size} px",
            file=shifted,
            hint=f"Prepare it again with --size {first.size}.",
        )
    ours, theirs = recipe_of(first.folder), recipe_of(second.folder)
    if different := [key for key in RECIPE if ours.get(key) != theirs.get(key)]:
        raise InputError(
            f"was prepared with another {', '.join(different)} than {folder}",
            file=shifted,
            hint="Prepare both in the same way.",
        )
    digest = hashlib.sha256(f"{first.fingerprint}+{second.fingerprint}".encode())
    return replace(
        first,
        name=f"{first.name}+{second.name}",
        fingerprint=digest.hexdigest(),
        records=join([first.records, _as_shifted(second, first.records)]),
        shards=first.shards + second.shards,
        graded=first.graded and second.graded,
        shifted=second.folder,
    )


def _as_shifted(second: Prepared, first: Records) -> Records:
    mine = replace(second.records, domain=np.full(len(second.records), "shifted"))
    for column in ("image_id", "patient_id"):
        ids = getattr(mine, column)
        if np.isin(ids, getattr(first, column)).any():
            mine = replace(mine, **{column: np.char.add(f"{second.name}:", ids)})
    return mine


def recipe_of(folder: Path) -> dict[str, Any]:
    """Return the settings that decide the pixels; of folders made by hand none are known."""
    settings: dict[str, Any] = json.loads((folder / "dataset.json").read_text()).get("settings", {})
    return settings
