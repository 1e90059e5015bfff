"""The table of a plan: the most demanding question first, and the number that answers all."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

from rich.console import Console

from retinabench.metrics.planning.study_plan import Requirement, StudyPlan
from retinabench.reports.clinic.plan_terminal import plan_table


def test_the_most_demanding_question_comes_first():
    needs = {
        "auroc": Requirement("AUROC within .05", 400, 200, 40, 1.5, "Hanley 1982"),
        "sensitivity": Requirement("sensitivity within .05", 2468, 1234, 250, 1.2, "Wilson 1927"),
    }
    plan = StudyPlan(SimpleNamespace(prevalence=0.1), None, needs)
    out = io.StringIO()
    Console(file=out, width=100).print(plan_table(plan))
    text = out.getvalue()
    assert "1,234 patients answer every question (prevalence 0.1)" in text
    rows = [re.sub(r"\s{2,}", "|", one.strip()) for one in text.splitlines()]
    assert rows.index("sensitivity within .05|1,234|2,468|250|1.20") < rows.index(
        "AUROC within .05|200|400|40|1.50"
    )
    assert "Formulas: Hanley 1982; Wilson 1927." in " ".join(text.split())
