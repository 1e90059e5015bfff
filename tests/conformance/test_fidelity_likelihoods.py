"""Every method takes part in the fidelity benchmark by either likelihood, or refuses in one line."""

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.targets.data import load
from retinabench.methods.registry import METHODS
from support import tiny_target

TARGETS = {"gaussian": tiny_target.regression_target, "categorical": tiny_target.classification_target}
QUICK = ("batch_size=20", "lr=0.001")


@pytest.mark.parametrize("likelihood", [pytest.param("categorical", marks=pytest.mark.slow), "gaussian"])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_submits_or_refuses_in_one_line(name, likelihood, tmp_path):
    target = TARGETS[likelihood]()
    members = ["method.members=2"] if "members" in METHODS[name].Config.model_fields else []
    try:
        file = run_entry(
            name, target, budget=40, out=tmp_path, track="open", over_budget="mark",
            overrides=[*(f"optimizer.{one}" for one in QUICK), "optimizer.epochs=2", *members],
        )  # fmt: skip
    except InputError as error:
        problem = error
    else:
        problem = None
    if problem is not None:
        assert "\n" not in str(problem)
        assert problem.hint
        return
    data = load(target)
    found = read_submission(file, target, len(data.test), data.sha256)
    values = found.probs if likelihood == "categorical" else found.draws
    assert np.isfinite(values).all()
    assert found.about.implied is not None
