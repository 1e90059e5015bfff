import numpy as np
import pytest

from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluation import EvaluationSettings, evaluate_methods
from retinabench.reports.evaluation.write import MOST_METHODS, pathways, policy_grids, policy_records


def ten_images():
    """Four of ten images are referable, graded 2 to 4; three of them are missed, the surest last."""
    prob = [0.9, 0.45, 0.3, 0.02, 0.1, 0.12, 0.4, 0.6, 0.05, 0.15]
    grade = [2, 3, 4, 2, 0, 1, 0, 1, 0, 0]
    return Predictions([f"i{k}" for k in range(10)], np.array(grade) >= 2, prob, grade=grade)


@pytest.fixture(scope="module")
def found():
    methods = {f"m{k}": ten_images() for k in range(MOST_METHODS + 1)}
    evaluation = evaluate_methods(methods, EvaluationSettings(bootstrap=0, referred=0.3))
    return evaluation, policy_grids(evaluation)


def test_the_stated_pair_by_hand(found):
    """The three images nearest to 0.5 are referred (0.45, 0.4 and 0.6): one of three missed images is caught."""
    evaluation, grids = found
    [one] = pathways(evaluation, grids)
    outcome = one.pop("outcome")
    assert one == {"set": "in_domain", "positives": 4, "severe": 2, "alone": 3, "severe_alone": 2}
    assert outcome.referred.value == pytest.approx(0.3)
    assert outcome.missed.value * 4 == pytest.approx(2)  # retained, and called not referable


def test_the_leader_and_the_next_ones_have_grids(found):
    evaluation, grids = found
    assert list(grids) == [evaluation.leader, *(i for i in range(5) if i != evaluation.leader)][:MOST_METHODS]
    records = policy_records(evaluation, grids)
    assert records["schema"] == "retinabench.policies/1"
    assert [one["entry"] for one in records["entries"]] == [f"m{i}" for i in grids]
