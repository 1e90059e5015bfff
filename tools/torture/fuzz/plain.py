"""What `score` must say of a table that is known, by counting; nothing of retinabench."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torture.fuzz.tables import Truth

TOLERANCE = 1e-9


def auroc(label: Sequence[int], score: Sequence[float]) -> float:
    """Area under the ROC curve by counting pairs."""
    pairs = [
        (p > q) + 0.5 * (p == q)
        for p, y in zip(score, label, strict=True)
        if y
        for q, z in zip(score, label, strict=True)
        if not z
    ]
    return math.fsum(pairs) / len(pairs) if pairs else math.nan


def numbers(truth: Truth) -> dict[str, dict[str, Any]]:
    """Return what `score` must find on the test images of each domain and of both."""
    prob = [math.fsum(row) / len(row) for row in truth.samples]
    rows = [k for k in range(len(truth)) if truth.split is None or truth.split[k] == "test"]
    domain = truth.domain or ["in_domain"] * len(truth)
    sets = {name: [k for k in rows if domain[k] == name] for name in ("in_domain", "shifted")}
    if all(sets.values()):
        sets["joint"] = rows
    found = {}
    for name, chosen in sets.items():
        if chosen:
            label, score = [truth.label[k] for k in chosen], [prob[k] for k in chosen]
            found[name] = {
                "images": len(chosen),
                "patients": None if truth.patient_id is None else len({truth.patient_id[k] for k in chosen}),
                "positives": sum(label),
                "accuracy": sum((p > 0.5) == bool(y) for p, y in zip(score, label, strict=True)) / len(chosen),
                "auroc": auroc(label, score),
            }
    return found


def score_differs(truth: Truth) -> Callable[[Path, str], str]:
    """Return the check that `scores.json` agrees with a table."""

    def check(folder: Path, printed: str) -> str:
        found = json.loads((folder / "scores.json").read_text())["sets"]
        wanted = numbers(truth)
        for name, numbers_ in wanted.items():
            if name not in found:
                return f"there is no set '{name}'"
            for key, value in numbers_.items():
                scores = found[name]["scores"]
                said = found[name][key] if key in found[name] else scores.get(key, {}).get("value")
                # An empty column of patients is read as absent, or makes each image its own patient.
                no_patients = key == "patients" and value is None
                if not same(said, value) and not (no_patients and said == numbers_["images"]):
                    return f"{name} {key} is {said}, not {value}"
        if extra := set(found) - set(wanted) - {"joint", "balanced"}:
            return f"there is a set {extra}"
        return ""

    return check


def same(found: Any, wanted: Any) -> bool:
    """Whether two numbers agree; undefined ones are null or NaN."""
    if found is None or wanted is None or wanted != wanted:
        return found is None and (wanted is None or wanted != wanted)
    return bool(abs(found - wanted) <= TOLERANCE)
