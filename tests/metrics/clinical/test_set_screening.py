"""The screening numbers of one set: each equals its own function, and edge cases by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.metrics.clinical.decision_curve import net_benefit, predictive_values
from retinabench.metrics.clinical.operating_points import judge_goals, sensitivity_at_specificity, two_by_two
from retinabench.metrics.clinical.screening import patient_level, referral_views
from retinabench.metrics.clinical.screening_report import clinic
from support.screened import two_domains


def test_it_gathers_what_the_functions_say():
    given = two_domains()
    found = clinic(given, 0.4, 0.6).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    for name in ("in_domain", "shifted"):
        part, one = given.select(domain=name), found["sets"][name]
        said = part.prob >= 0.4
        entropy = -(part.prob * np.log(part.prob) + (1 - part.prob) * np.log(1 - part.prob))
        sent = entropy > 0.6
        table, verdicts = judge_goals(part.label, said, part.patient_id)
        assert table == two_by_two(part.label, said)
        assert one["images"]["sensitivity"]["value"] == table.sensitivity
        assert one["images"]["goals"]["nhs"]["bound"][0] == verdicts[0].sensitivity[1]
        assert one["images"]["goals"]["nhs"]["estimate_met"] == verdicts[0].estimate_met
        people = patient_level(part.label, part.prob, part.patient_id, threshold=0.4)
        assert one["patients"]["tp"] == (people.label & people.positive).sum()
        assert one["referred"] == sent.sum()
        for reading, value in referral_views(part.label, said, sent).items():
            assert one["readings"][reading]["specificity"]["value"] == pytest.approx(value.specificity)
        after = patient_level(part.label, part.prob, part.patient_id, threshold=0.4, referred=sent)
        views = referral_views(after.label, after.positive, after.referred)
        assert one["patient_readings"]["reader"]["sensitivity"]["value"] == pytest.approx(
            views["reader"].sensitivity
        )
        ppv = predictive_values(table.sensitivity, table.specificity, 0.05)[0]
        assert one["predictive_values"]["0.05"]["ppv"]["value"] == pytest.approx(ppv)
        point = sensitivity_at_specificity(part.label, part.prob, 0.8)
        assert one["operating_points"]["nhs"]["sensitivity_at_specificity"]["threshold"] == point.threshold
        assert one["decision_curve"]["model"] == net_benefit(part.label, part.prob).model.tolist()
        assert one["pathway"]["sensitivity"]["value"] == pytest.approx((said | sent)[part.label == 1].mean())
        missed = (part.label == 1) & ~said & ~sent
        assert {row["image_id"] for row in one["missed"]["images"]} == set(part.image_id[missed])


def test_a_perfect_model_of_few_patients_has_bounds():
    """60 patients with two eyes, 6 diseased, no error: sensitivity's lower bound is that of 6 of 6, about 0.54."""
    label = np.repeat(np.arange(60) < 6, 2)
    given = rb.Predictions(
        np.arange(120), label, np.where(label, 0.65, 0.3), patient_id=np.repeat(np.arange(60), 2)
    )
    found = clinic(given)["in_domain"]
    assert found.images.sensitivity.value == 1
    assert found.images.sensitivity.low == pytest.approx(0.025 ** (1 / 6))
    verdict = found.images.verdicts[0]
    assert verdict.estimate_met
    assert not verdict.bound_met
    assert found.to_dict()["predictive_values"]["0.1"]["ppv"]["low"] < 0.9


def test_a_model_that_never_says_yes_misses_all():
    rng = np.random.default_rng(1)
    label = rng.random(1000) < 0.03
    given = rb.Predictions(np.arange(1000), label, 0.1 + 0.2 * rng.random(1000))
    found = clinic(given)["in_domain"]
    assert found.images.sensitivity.value == 0
    assert found.missed.referable.value == 1
    assert len(found.missed.images) == label.sum()
