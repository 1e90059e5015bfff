"""P(referable) from classes and logits, by hand."""

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.predictions.class_probabilities import class_probabilities, referable_probability
from retinabench.predictions.validation.check import Check

CHECK = Check("t.csv")


def test_the_referable_classes_are_summed_and_printed_digits_divided_by_their_sum():
    probs = np.array([[0.5, 0.2, 0.3], [0.33, 0.33, 0.33]])
    np.testing.assert_allclose(referable_probability(CHECK, probs, 1), [0.5, 2 / 3])
    np.testing.assert_allclose(referable_probability(CHECK, probs[:, None], 2), [[0.3], [1 / 3]])


@pytest.mark.parametrize(
    ("probs", "lowest", "message"),
    [
        ([[0.5, 0.5], [1.0, 3.0]], 1, "row 2, column 'probs': sums to 4 over the classes.*from_logits"),
        ([[0.5, 0.5], [0.5, 0.6]], 1, "row 2, column 'probs': sums to 1.1.*no class probabilities"),
        ([[0.5, 0.5], [0.2, 0.8]], 2, "has 2 classes: none is below, or none from, class 2 on"),
        ([[0.5, 0.5], [0.2, 0.8]], 0, "none is below"),
    ],
)
def test_what_is_no_distribution_is_refused(probs, lowest, message):
    with pytest.raises(InputError, match=message):
        referable_probability(CHECK, probs, lowest)


def test_softmax_and_the_sigmoid_of_a_single_logit():
    np.testing.assert_allclose(
        class_probabilities(CHECK, [[0.0, np.log(3)], [1e4, 0]]), [[0.25, 0.75], [1, 0]]
    )
    two = [[0.25, 0.75], [0.5, 0.5]]
    np.testing.assert_allclose(class_probabilities(CHECK, [np.log(3), 0]), two)
    np.testing.assert_allclose(class_probabilities(CHECK, [[np.log(3)], [0]]), two)
    assert class_probabilities(CHECK, np.zeros((2, 5, 1))).shape == (2, 5, 2)
