"""The clinic's numbers of a file: each equals its own function, and all of it is JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.decision_curve import net_benefit, predictive_values
from retinabench.metrics.clinical.operating_points import judge_goals, sensitivity_at_specificity, two_by_two
from retinabench.metrics.clinical.screening import patient_level, referral_views
from retinabench.metrics.clinical.screening_report import clinic


def predictions(n=300, **changes):
    rng = np.random.default_rng(0)
    y = (rng.random(n) < 0.3).astype(int)
    prob = 1 / (1 + np.exp(-(3 * y - 1.5 + rng.normal(size=n))))
    columns = {
        "patient_id": np.arange(n) // 2,
        "domain": np.where(np.arange(n) < 200, "in_domain", "shifted"),
    }
    return rb.Predictions(np.arange(n), y, prob, **{**columns, **changes})


def test_it_gathers_what_the_functions_say():
    given = predictions()
    found = clinic(given, 0.4, 0.6, bootstrap=50).to_dict()
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
        ppv = predictive_values(table.sensitivity, table.specificity, 0.05)[0]
        assert one["predictive_values"]["0.05"]["ppv"]["value"] == ppv
        point = sensitivity_at_specificity(part.label, part.prob, 0.8)
        assert one["operating_points"]["nhs"]["sensitivity_at_specificity"]["threshold"] == point.threshold
        curve = net_benefit(part.label, part.prob)
        assert one["decision_curve"]["model"] == curve.model.tolist()


def test_the_default_threshold_is_that_of_accuracy():
    given = rb.Predictions(["a", "b", "c"], [0, 1, 1], [0.5, 0.5, 0.6], patient_id=["p", "q", "q"])
    found = clinic(given, bootstrap=20).to_dict()["sets"]["in_domain"]
    assert found["images"]["tp"] == 1
    assert found["images"]["fp"] == 0
    assert (found["patients"]["tp"], found["patients"]["tn"]) == (1, 1)


def test_one_class_and_one_row():
    found = clinic(rb.Predictions(["a"], [0], [0.2]), bootstrap=20).to_dict()["sets"]["in_domain"]
    assert json.dumps(found, allow_nan=False)
    assert found["images"]["sensitivity"]["value"] is None
    assert found["operating_points"]["nhs"]["sensitivity_at_specificity"]["sensitivity"] is None
    assert "patients" not in found
    with pytest.raises(InputError, match="test split"):
        clinic(rb.Predictions(["a"], [0], [0.2], split=["validation"]))
