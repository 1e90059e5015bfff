import csv
import io
import json
import math

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.actions import COLUMNS, FrozenRule, called, read_rule, referral_list
from retinabench.metrics.image_sets import FrozenThreshold

PROB = np.array([0.1, 0.5, 0.9, 0.4, 0.6, 0.3])
SPLIT = ["test"] * 5 + ["validation"]
FILE = rb.Predictions(list("fedcba"), [0, 1, 1, 0, 1, 0], PROB, patient_id=list("ppqqrr"), split=SPLIT)
HOSPITAL, EXPERT, NOTHING = "refer to hospital", "expert reads", "no referral"


def test_the_csv_has_one_row_per_image_the_most_uncertain_first_and_ties_by_id():
    found = referral_list(FILE, share=0.4)
    assert found.images.image_id.tolist() == ["e", "b", "c", "d", "f"]
    assert found.read.tolist() == [True, True, False, False, False]
    assert found.actions.tolist() == [EXPERT, EXPERT, NOTHING, HOSPITAL, NOTHING]
    equal = "1 of 2 equally uncertain images are read: those whose ids come first"
    assert found.notes == (equal, "the expert reads 2 of 5 images")
    rows = list(csv.DictReader(io.StringIO(referral_list(FILE, share=0.2).to_csv().decode())))
    assert tuple(rows[0]) == COLUMNS
    assert [row["rank"] for row in rows] == list("12345")
    assert [row["read_by_expert"] for row in rows] == ["yes", "no", "no", "no", "no"]
    assert [float(row["prob"]) for row in rows] == [0.5, 0.6, 0.4, 0.9, 0.1]
    assert {row["action"] for row in csv.DictReader(io.StringIO(referral_list(FILE).to_csv().decode()))} == {""}


def test_what_is_refused():
    with pytest.raises(InputError, match=r"share of 1\.5"):
        referral_list(FILE, share=1.5)
    with pytest.raises(InputError, match="no image of the test split"):
        referral_list(FILE.select(split="validation"))


P = [0.1, 0.3, 0.5, 0.8]


def of_images(found):
    return dict(sorted(zip(found.images.image_id.tolist(), found.actions.tolist(), strict=True)))


def test_an_image_is_read_above_the_threshold_not_at_it():
    images = rb.Predictions(list("abcd"), [0] * 4, P, uncertainty=[1.0, 2.0, 2.1, 9.0])
    found = FrozenRule("own", 2.0, FrozenThreshold(0.3)).apply(images)
    assert of_images(found) == {"a": NOTHING, "b": HOSPITAL, "c": EXPERT, "d": EXPERT}


@pytest.mark.parametrize(
    ("negative", "positive", "expected"),
    [
        (0.3, 0.8, [NOTHING, NOTHING, EXPERT, HOSPITAL]),
        (None, 0.5, [EXPERT, EXPERT, HOSPITAL, HOSPITAL]),
        (0.1, None, [NOTHING, EXPERT, EXPERT, EXPERT]),
    ],
)
def test_zones_hold_their_limits(negative, positive, expected):
    found = FrozenRule(negative=negative, positive=positive).apply(rb.Predictions(list("abcd"), [0] * 4, P))
    assert list(of_images(found).values()) == expected


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (FrozenThreshold(), [0, 0, 0, 1]),
        (FrozenThreshold(0.5, "youden"), [0, 0, 1, 1]),
        (FrozenThreshold(0.3), [0, 1, 1, 1]),
    ],
)
def test_the_model_calls_an_image_from_the_decision_threshold_on(decision, expected):
    assert called(np.array(P), decision).tolist() == [("not referable", "referable")[k] for k in expected]


def test_the_worst_eye_decides_for_the_patient_and_the_expert_reads_what_cannot_be_graded():
    images = rb.Predictions(
        list("abcdefg"), [0] * 7, [0.9, 0.5, 0.5, 0.1, 0.1, 0.1, 0.9], patient_id=list("ppqqrss"),
        subgroups={"gradable": ["1", "1", "1", "1", "1", "1", "0"]},
    )  # fmt: skip
    found = rb.apply(images, FrozenRule(negative=0.2, positive=0.8))
    action = dict(zip(found.images.patient_id, found.patient_actions, strict=True))
    assert action == {"p": HOSPITAL, "q": EXPERT, "r": NOTHING, "s": EXPERT}
    assert of_images(found)["g"] == EXPERT


REFERRAL = {
    "schema": "retinabench.transfer/2", "uncertainty": "total", "threshold": 0.4,
    "decision_threshold": {"value": 0.3, "rule": None},
}  # fmt: skip


def zones(negative, positive):
    side = {"negative": {"threshold": negative}, "positive": {"threshold": positive}}
    return {"schema": "retinabench.triage/1", "zones": side}


def test_both_kinds_are_read(tmp_path):
    file = tmp_path / "t.json"
    goals = [{"goal": {"target": "npv", "goal": 0.9}}]
    file.write_text(json.dumps(REFERRAL | {"certificate": {"most_images": 2, "goals": goals}, "threshold": "inf"}))
    found = read_rule(file)
    assert (found.threshold, found.decision.value, found.most_images) == (math.inf, 0.3, 2)
    assert found.to_dict()["threshold"] == "inf"
    assert [str(one) for one in found.goals] == ["npv >= 0.9"]
    file.write_text(json.dumps(zones(0.2, None)))
    assert (read_rule(file).negative, read_rule(file).positive, read_rule(file).goals) == (0.2, None, ())


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (zones(None, None), "holds no threshold"),
        (zones(0.5, 0.5), "the zones overlap"),  # an image at 0.5 would be in both
        (zones(0.6, 0.5), "the zones overlap"),
        (zones(1.5, None), "is damaged"),
        (REFERRAL | {"threshold": "nan"}, "not a number"),
        (REFERRAL | {"threshold": None}, "holds no threshold"),
        (REFERRAL | {"schema": "retinabench.scores/2"}, "neither a threshold nor zones"),
        ([], "neither a threshold nor zones"),
        (REFERRAL | {"per": "eye"}, "is damaged"),
        (REFERRAL | {"uncertainty": {}}, "is damaged"),
        (REFERRAL | {"decision_threshold": {"value": 10**400}}, "is damaged"),
        ({key: value for key, value in REFERRAL.items() if key != "uncertainty"}, "is damaged"),
    ],
)
def test_what_no_rule_says_is_refused(tmp_path, content, says):
    (tmp_path / "t.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match=says):
        read_rule(tmp_path / "t.json")


def test_a_refuted_certificate_is_not_applied(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps(REFERRAL | {"sets": {"in_domain": {"guarantee": "broken"}}}))
    with pytest.raises(InputError, match="the labels of in-domain refute it"):
        rb.apply(FILE, tmp_path / "t.json")
