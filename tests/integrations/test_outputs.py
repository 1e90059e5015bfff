"""Predictions of raw outputs of every shape, and their scores."""

import numpy as np
import pytest
from scipy.special import expit, softmax

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.integrations.outputs import check_scores, predictions_of, scores_of

RNG = np.random.default_rng(0)
LABEL = np.arange(20) % 2


@pytest.mark.parametrize("shape", [(20,), (20, 1)])
def test_single_logits_and_probabilities(shape):
    logits = RNG.normal(size=20)
    found = predictions_of(logits.reshape(shape), {"label": LABEL})
    np.testing.assert_allclose(found.prob, expit(logits))
    again = predictions_of(expit(logits).reshape(shape), {"label": LABEL}, "probabilities")
    np.testing.assert_allclose(again.prob, found.prob)


def test_of_five_classes_the_label_is_the_grade_and_of_another_number_the_class():
    grade, five, three = np.arange(20) % 5, RNG.normal(size=(20, 5)), RNG.normal(size=(20, 3))
    found = predictions_of(five, {"label": grade})
    assert found.label.tolist() == (grade >= 2).tolist()
    np.testing.assert_allclose(found.prob, softmax(five, axis=1)[:, 2:].sum(axis=1))
    found = predictions_of(three, {"label": grade % 3}, referable_from=1)
    assert found.label.tolist() == (grade % 3 >= 1).tolist()
    np.testing.assert_allclose(found.prob, softmax(three, axis=1)[:, 1:].sum(axis=1))


def test_columns_of_another_length_and_unknown_scores_are_refused():
    with pytest.raises(InputError, match="label has 3 values for 20 images"):
        predictions_of(np.zeros(20), {"label": [0, 1, 1]})
    with pytest.raises(InputError, match=r"unknown score 'aurocc'.*'auroc'"):
        check_scores(("aurocc",))
    assert check_scores(["auroc", "nll"]) == ("auroc", "nll")


def test_scores_are_those_of_score():
    predictions = predictions_of(RNG.normal(size=20), {"label": LABEL})
    found = scores_of(predictions, ["auroc", "nll"])
    expected = rb.score(predictions, bootstrap=0)
    assert found == {name: expected.value(name) for name in ("auroc", "nll")}
