"""Invalid columns are refused with row, column and hint."""

from __future__ import annotations

import re

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError

GOOD = {"image_id": ["a", "b", "c"], "label": [0, 1, 1], "probs": [0.1, 0.8, 0.4]}

BAD = {
    "nan": ({"probs": [0.1, np.nan, 0.4]}, "row 2, column 'prob': is nan"),
    "infinity": ({"probs": [np.inf, 0.2, np.inf]}, "row 1, column 'prob': is inf (the first of 2 such rows)"),
    "logits": ({"probs": [-2.0, 3.0, 0.4]}, "row 1, column 'prob': is -2, outside [0, 1]. These look like logits"),
    "percent": ({"probs": [10, 80, 40]}, "These look like percentages: divide by 100"),
    "a little too large": ({"probs": [0.1, 1.2, 0.4]}, "A probability lies between 0 and 1"),
    "rounding": ({"probs": [0.1, 1 + 1e-7, 0.4]}, "is 1.0000001, outside [0, 1]. This looks like rounding"),
    "rounding below": ({"probs": [0.1, -1e-9, 0.4]}, "is -1e-09, outside [0, 1]. This looks like rounding"),
    "a bad sample": ({"probs": [[0.1, 0.2], [0.3, 2.0], [0.4, 0.5]]}, "row 2, column 'prob_1': is 2"),
    "no samples": ({"probs": np.empty((3, 0))}, "column 'probs': has shape (3, 0)"),
    "too many axes": ({"probs": np.zeros((3, 1, 1))}, "column 'probs': has shape (3, 1, 1)"),
    "mixed sample counts": ({"probs": [[0.1], [0.2, 0.3], [0.4]]}, "row 2, column 'probs': holds 2 values where row 1 holds 1"),
    "complex": ({"probs": np.array([0.1j, 0, 0])}, "has type complex128, needed are numbers"),
    "dates": ({"probs": np.zeros(3, "datetime64[s]")}, "needed are numbers"),
    "words": ({"probs": ["a", "b", "c"]}, "holds values that are not numbers"),
    "none": ({"probs": [0.1, None, 0.4]}, "row 2, column 'prob': is nan"),
    "masked": ({"probs": np.ma.array([0.1, 0.2, 0.3], mask=[0, 0, 1])}, "row 3, column 'probs': is masked"),
    "grades": ({"label": [0, 4, 2]}, "row 2, column 'label': is 4, not 0 or 1. These look like severity grades"),
    "other labels": ({"label": [0, -1, 1]}, "A label is 0 (not referable) or 1"),
    "label matrix": ({"label": [[0], [1], [1]]}, "column 'label': has shape (3, 1)"),
    "short labels": ({"label": [0, 1]}, "column 'label': has 2 rows where image_id has 3"),
    "one label for all": ({"label": 1}, "has a single value"),
    "grade 5": ({"grade": [0, 5, 2]}, "row 2, column 'grade': is 5, not one of 0, 1, 2, 3, 4"),
    "duplicate": ({"image_id": ["a", "b", "a"]}, "row 3, column 'image_id': repeats 'a' of row 1"),
    "empty id": ({"image_id": ["a", "", "c"]}, "row 2, column 'image_id': is empty"),
    "id with a line break": ({"image_id": ["a", "b\nc", "c"]}, "row 2, column 'image_id': holds a line break"),
    "no rows": ({"image_id": [], "label": [], "probs": []}, "holds no rows"),
    "missing patient": ({"patient_id": np.array(["p", None, "q"], object)}, "row 2, column 'patient_id': is missing"),
    "NaN patient": ({"patient_id": [1.0, 2.0, np.nan]}, "row 3, column 'patient_id': is missing"),
    "bytes": ({"patient_id": np.array([b"p", b"\xff", b"q"])}, "column 'patient_id': holds bytes that are not UTF-8"),
    "domain": ({"domain": ["in_domain", "ood", "shifted"]}, "row 2, column 'domain': is 'ood'. Valid: in_domain, shifted"),
    "split": ({"split": ["test", "test", "train"]}, "row 3, column 'split': is 'train'. Valid: validation, test"),
    "own score": ({"uncertainty": [0, np.inf, 1]}, "row 2, column 'uncertainty': is inf"),
    "members": ({"metadata": {"members": 2}}, "1 samples cannot be shared by 2 members"),
    "members of no kind": ({"metadata": {"members": "two"}}, "cannot be shared by 'two' members"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_names_row_column_and_hint(name):
    changed, message = BAD[name]
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        rb.Predictions(**{**GOOD, **changed})
    assert "\n" not in str(caught.value)
