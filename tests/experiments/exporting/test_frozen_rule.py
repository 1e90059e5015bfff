"""What becomes of an image by a frozen threshold or by zones, at the limits too, and which files are refused."""

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.experiments.exporting.frozen_rule import FrozenRule, read_rule, rule_content
from retinabench.metrics.clinical.decision_threshold import FrozenThreshold

P = [0.1, 0.3, 0.5, 0.8]


def predictions(uncertainty=None):
    return rb.Predictions(list("abcd"), [0, 0, 1, 1], P, uncertainty=uncertainty)


def test_an_image_is_referred_above_the_threshold_not_at_it():
    rule = FrozenRule("h", "w", uncertainty="own", threshold=2.0)
    values, decided = rule.decide(predictions([1.0, 2.0, 2.1, 9.0]))
    assert values.tolist() == [1, 2, 2.1, 9]
    assert decided.tolist() == ["keep", "keep", "refer", "refer"]


@pytest.mark.parametrize(
    ("negative", "positive", "expected"),
    [
        (0.3, 0.8, ["negative", "negative", "refer", "positive"]),
        (None, 0.5, ["refer", "refer", "positive", "positive"]),
        (0.1, None, ["negative", "refer", "refer", "refer"]),
    ],
)
def test_zones_hold_their_limits(negative, positive, expected):
    rule = FrozenRule("h", "w", negative=negative, positive=positive)
    assert rule.decide(predictions())[1].tolist() == expected


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (FrozenThreshold(), [0, 0, 0, 1]),
        (FrozenThreshold(0.5, "youden"), [0, 0, 1, 1]),
        (FrozenThreshold(0.3), [0, 1, 1, 1]),
    ],
)
def test_the_model_calls_an_image_from_the_decision_threshold_on(decision, expected):
    found = FrozenRule("h", "w", threshold=1.0, decision=decision).calls(predictions())
    assert found.tolist() == [("not referable", "referable")[k] for k in expected]


def test_an_uncertainty_that_the_model_does_not_state_is_refused():
    with pytest.raises(InputError, match="it states none"):
        FrozenRule("h", "w", uncertainty="own", threshold=0.5).decide(predictions())


def written(folder, schema="transfer", **changes):
    content = {"schema": f"retinabench.{schema}/2", "model": {"config_hash": "h", "weights": "w"}, **changes}
    (folder / "threshold.json").write_text(json.dumps(content))
    return folder


REFERRAL = {"uncertainty": "total", "threshold": 0.4, "decision_threshold": {"value": 0.3, "rule": None}}


def zones(negative, positive):
    return {"zones": {"negative": {"threshold": negative}, "positive": {"threshold": positive}}}


def test_both_kinds_are_read(tmp_path):
    assert read_rule(tmp_path) is None
    assert read_rule(written(tmp_path, **REFERRAL)) == FrozenRule(
        "h", "w", "total", 0.4, FrozenThreshold(0.3)
    )
    found = read_rule(written(tmp_path, "triage", **zones(0.2, None)))
    assert found == FrozenRule("h", "w", negative=0.2)


@pytest.mark.parametrize(
    ("schema", "content", "says"),
    [
        ("triage", zones(None, None), "both zones are empty"),
        ("triage", zones(0.5, 0.5), "the zones overlap"),  # an image at 0.5 would be in both
        ("triage", zones(0.6, 0.5), "the zones overlap"),
        ("triage", zones(1.5, None), "is damaged"),
        ("transfer", REFERRAL | {"threshold": "nan"}, "not a number"),
        ("scores", REFERRAL, "neither a threshold nor zones"),
    ],
)
def test_what_no_rule_says_is_refused(tmp_path, schema, content, says):
    with pytest.raises(InputError, match=says):
        read_rule(written(tmp_path, schema, **content))


def test_the_content_names_the_model_that_it_was_chosen_for():
    class Found:
        def to_dict(self):
            return {"schema": "retinabench.transfer/2"}

    found = rule_content(Found(), "h", "w")
    assert found == {"schema": "retinabench.transfer/2", "model": {"config_hash": "h", "weights": "w"}}
    assert np.isclose(FrozenRule("h", "w").decision.value, 0.5)
