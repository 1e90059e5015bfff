"""The answer of a set: each kind from data that have it, and sentences whose numbers are those of the report."""

from __future__ import annotations

import numpy as np
import pytest

import retinabench as rb
from retinabench.reports.clinic.answer import answer_sets
from retinabench.reports.toolkit.pages import macros
from support.screened import screened

SAY = macros("say.html.j2", package="retinabench.reports.clinic")


def kind(predictions, **arguments):
    return answer_sets(rb.clinic(predictions, **arguments))[0].kind


def flat(label, prob, **columns):
    return rb.Predictions(np.arange(len(label)), label, prob, **columns)


def test_every_kind_of_answer():
    rng = np.random.default_rng(0)
    label = rng.random(2000) < 0.2
    good = 1 / (1 + np.exp(-(3.2 * (label - 0.5) + rng.normal(size=2000))))
    assert kind(flat(np.zeros(50, int), rng.random(50)), referral_rate=0.2) == "one class"
    assert kind(flat(label, 0.3 * rng.random(2000)), referral_rate=0.2) == "never"
    assert kind(flat(label, rng.random(2000)), referral_rate=0.2) == "blind"
    assert kind(flat(~label, good)) == "inverted"
    assert "labels or probabilities look inverted" in " ".join(rb.clinic(flat(~label, good)).notes)
    assert kind(flat(label, good)) == "no referral"
    assert (
        kind(flat(label, np.where(label, 0.8, 0.2) + 0.1 * rng.random(2000)), referral_rate=0.2)
        == "nothing missed"
    )
    assert kind(flat(label, good), referral_rate=0.1) == "yes"
    assert (
        kind(flat(label, good), threshold="sensitivity=.9@test", referral_rate=0.1, uncertainty="margin")
        == "partly"
    )
    # An uncertainty that is certain about the missed: the probability's distance from one half, turned round.
    turned = np.abs(good - 0.5)
    assert kind(flat(label, good, uncertainty=turned), referral_rate=0.3) == "worse"
    assert kind(flat(label, good, uncertainty=rng.random(2000)), referral_rate=0.3) == "unclear"


def test_the_sentences_state_the_numbers_of_the_report():
    report = rb.clinic(screened(camera_drop=2.5), "sensitivity=.85@validation", referral_rate=0.2)
    first, second = answer_sets(report)
    assert (first.name, second.name) == ("in_domain", "shifted")
    missed = SAY.missed(first).striptags()
    assert missed.split()[0] == str(len(first.one.missed.images))
    assert f"of {first.positives} referable images" in missed
    assert f"{first.severe} images with severe disease" in missed
    whom = SAY.whom(first).striptags()
    assert "Sensitivity is lower for “camera: B”" in whom
    assert "566" not in SAY.thresholds(report, first)
    assert f"{report.threshold.images} images of the validation split" in SAY.thresholds(report, first)
    cost = SAY.cost(first).striptags()
    assert f"{first.one.workload.hours:.1f} hours" in cost
    assert "imageability" in SAY.ungradable(first)
    assert "net benefit" in SAY.worth(first)


@pytest.mark.parametrize("columns", [True, False])
def test_useful_thresholds_are_those_of_the_intervals(columns):
    found = answer_sets(rb.clinic(screened(columns=columns), referral_rate=0.2))[0]
    curve = found.one.decision_curve
    better = (curve.low > 0) & (curve.over_all_low > 0)
    low, high = found.useful
    inside = (curve.threshold >= low) & (curve.threshold <= high)
    assert better[inside].all()
    assert (found.worst is None) == (not columns)


def test_names_from_the_file_are_escaped():
    part = screened(60)
    camera = np.where(part.subgroups["camera"] == "A", "<script>alert(1)</script>", "B")
    changed = rb.Predictions(
        part.image_id, part.label, part.prob, patient_id=part.patient_id, subgroups={"<b>": camera}
    )
    found = answer_sets(rb.clinic(changed, referral_rate=0.2))[0]
    assert "<script>" not in SAY.whom(found)
