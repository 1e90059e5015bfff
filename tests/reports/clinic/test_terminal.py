"""The terminal's summary: within its width, nothing cut."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

import retinabench as rb
from retinabench.reports.clinic.terminal import clinic_summary
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
