"""The result of a plan: the question that decides it, and its JSON."""

from __future__ import annotations

import json
import math

from retinabench.metrics.planning.assumptions import Assumptions
from retinabench.metrics.planning.study_plan import Aims, Requirement, StudyPlan


def test_the_question_with_the_most_patients_decides():
    needs = {
        "sensitivity": Requirement("sensitivity", 2468, 1234, 250, 1.2, "Wilson 1927"),
        "auroc": Requirement("AUROC", 400, 200, 40, math.nan, "Hanley 1982"),
    }
    plan = StudyPlan(Assumptions(0.1), Aims(), needs, ("a note",))
    assert (plan.patients, plan.decisive) == (1234, "sensitivity")
    assert plan["auroc"].images == 400
    content = json.loads(json.dumps(plan.to_dict(), allow_nan=False))
    assert content["requirements"]["auroc"]["design_effect"] is None
    assert content["requirements"]["sensitivity"]["design_effect"] == 1.2
    assert (content["schema"], content["notes"]) == ("retinabench.plan/1", ["a note"])
    assert [row["name"] for row in plan.records()] == ["sensitivity", "auroc"]
