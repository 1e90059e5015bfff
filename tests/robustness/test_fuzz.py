"""The short form of the fuzzing campaigns: 150 inputs, read in this process by the readers alone."""

import json
import sys
from pathlib import Path

import numpy as np

from retinabench.core.errors import InputError
from retinabench.predictions.io import read_predictions
from torture.campaigns import fuzz_predictions
from torture.fuzz import case
from torture.outcomes import Verdict


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
