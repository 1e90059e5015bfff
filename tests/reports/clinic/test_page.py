"""The clinic's page: one file without scripts or links to the network, with the numbers of the report, whatever the file holds."""

from __future__ import annotations

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.reports.clinic.page import FIRST_MISSED, clinic_json, render, write_clinic
from support.reading_pages import without_script
from support.screened import screened


@pytest.fixture(scope="module")
def report():
    return rb.clinic(
        screened(150, camera_drop=2.5), "sensitivity=.85@validation", referral_rate=0.2, referral_cost=0.01
    )


def test_the_page_stands_alone_and_leads_with_missed_disease(report, tmp_path):
    path = write_clinic(report, tmp_path / "clinic")
    page = path.read_text()
    assert "<script" not in without_script(page)
    assert "http:" not in without_script(page)
    assert "https:" not in page
    places = [
        page.index(text)
        for text in ("What is missed", "At which threshold", "What it costs", "For whom it fails")
    ]
    assert places == sorted(places)
    for image in report["in_domain"].missed.images:
        assert image.image_id in page
    found = json.loads((tmp_path / "clinic" / "clinic.json").read_text())
    assert found["schema"] == "retinabench.clinic/1"
    assert set(found["answers"]) == {"in_domain", "shifted"}
    assert len(found["checklist"]) > 15
    assert page == render(report)


def test_many_missed_images_fold(report):
    many = rb.clinic(screened(200, signal=1.0), 0.9, referral_rate=0.05)
    assert len(many["in_domain"].missed.images) > FIRST_MISSED
    assert "further missed images" in render(many)


def test_what_the_file_holds_is_escaped():
    part = screened(40)
    ids = [f"<script>{k}</script>" for k in range(len(part))]
    camera = np.where(part.subgroups["camera"] == "A", "<img src=x>", "B")
    changed = rb.Predictions(
        ids, part.label, part.prob, patient_id=part.patient_id, subgroups={"<i>": camera}
    )
    page = render(rb.clinic(changed, 0.9))
    assert "<script" not in without_script(page)
    assert "<img src" not in page


@pytest.mark.parametrize("label", [[0, 0, 0, 0], [0, 1, 0, 1]])
def test_tiny_files_have_a_page(label):
    report = rb.clinic(rb.Predictions(list("abcd"), label, [0.1, 0.9, 0.2, 0.4]), referral_rate=0.25)
    assert "These images cannot show it" in render(report) or "not shown" in render(report)
    assert json.dumps(clinic_json(report), allow_nan=False)
