"""The terminal's summary: within its width, nothing cut."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace

import pytest
from rich.console import Console

import retinabench as rb
from retinabench.metrics.planning.study_plan import Requirement, StudyPlan
from retinabench.reports.clinic.terminal import clinic_summary, plan_table
from support.screened import screened


@pytest.mark.parametrize("width", [80, 60])
def test_nothing_is_cut(width):
    report = rb.clinic(screened(150, camera_drop=2.5), referral_rate=0.1)
    out = io.StringIO()
    Console(file=out, width=width).print(clinic_summary(report))
    shown = out.getvalue()
    assert max(map(len, shown.splitlines())) <= width
    assert "…" not in shown.replace(" … ", "")
    for image in report["in_domain"].missed.images[:10]:
        assert image.image_id in shown
    assert "camera: B" in shown
    assert "prevalences, per image" in " ".join(shown.split())


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
