"""The short form of the campaign of laws: some laws, by one command each, on one table of 1,000 rows."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from retinabench.cli import main
from retinabench.core.errors import InputError
from retinabench.predictions.io import read_predictions
from torture.campaigns import fuzz_predictions, laws
from torture.fuzz import case
from torture.outcomes import Verdict

SHORT = {
    "uncertainty x 1e-13": "monitor", "codes with other separators": "clinic", "long codes": "clinic",
    "cells of a group emptied": "clinic", "dates moved by 52 weeks": "monitor", "ids between blanks": "monitor", "one patient known": "transfer",
    "split over three files": "monitor", "rows permuted": "score", "rows doubled": "score", "columns permuted": "compare",
    "a column of noise": "score", "patients renamed": "compare", "decimal commas": "score", "blanks behind commas": "compare",
    "cube of the uncertainty": "apply", "semicolons": "examine", "Parquet": "score", "NPZ": "compare", "a data frame": "score", "arrays": "transfer",
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("laws")


@pytest.mark.parametrize(("name", "command"), SHORT.items())
def test_a_law_is_kept(name, command, folder, monkeypatch):
    monkeypatch.setattr(main, "print_table", lambda table: None)  # no law reads it
    assert laws.broken(name, command, 0, folder) == ""


@pytest.mark.parametrize(
    ("found", "place"),
    [
        ({"x": [1.0, {"threshold": 1e-13}]}, ".x[1].threshold is 1e-13"),
        ({"x": [1.0 + 1e-8, {"threshold": 2e-13}]}, ".x[0] is 1.00000001"), ({"x": [1.0]}, ".x is [1.0]"),
        ({}, ".x is missing"), ({"x": [1.0, {"threshold": 2e-13}], "b c": 0}, ".b c is new"),
    ],
)  # fmt: skip
def test_a_difference_is_found(found, place):
    assert laws.difference(found, {"x": [1.0, {"threshold": 2e-13}]}).startswith(place)


def read_alone(arguments):
    """Stand in for `retinabench score`: read the file, and write what the plain reader knows as well."""
    table, out = Path(arguments[1]), Path(arguments[-1])
    try:
        found = read_predictions(table)
    except InputError as error:
        print(f"retinabench: error: {error}", file=sys.stderr)
        return 2
    print("\n".join(found.notes), file=sys.stderr)
    sets = {}
    for name, domain in (("in_domain", "in_domain"), ("shifted", "shifted"), ("joint", None)):
        part = found.select(domain=domain, split="test")
        if part is not None and (domain or len(sets) == 2):
            sets[name] = counted(part)
    if not sets:
        print(f"retinabench: error: {table}: holds no rows of the test split", file=sys.stderr)
        return 2
    out.write_text(json.dumps({"sets": sets}))
    return 0


def counted(part):
    above = part.prob[part.label == 1][:, None] - part.prob[part.label == 0]
    auroc = float(np.mean((above > 0) + 0.5 * (above == 0))) if above.size else None
    return {
        "images": len(part),
        "patients": None if part.patient_id is None else len(set(part.patient_id.tolist())),
        "positives": int(part.label.sum()),
        "scores": {"accuracy": {"value": float(np.mean((part.prob > 0.5) == part.label))}, "auroc": {"value": auroc}},
    }


def test_predictions_are_refused_in_one_line_or_read_right(tmp_path, monkeypatch):
    monkeypatch.setattr(case, "run", read_alone)
    failed = []
    for number, one in enumerate(case.cases(fuzz_predictions.STRATEGY, 2026, 150)):
        verdict, detail = case.perform(one, tmp_path / str(number))
        if verdict is Verdict.FAILED:
            failed.append(f"{one.reader}: {one.what}: {detail}")
    assert not failed
