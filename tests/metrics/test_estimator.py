import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.estimator import Arrays, evaluate, predict

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (150, 4, 4, 3), dtype=np.uint8)
LABEL = (IMAGES.mean((1, 2, 3)) + RNG.normal(0, 10, 150) > 127).astype(int)


def estimator(images):
    assert images.dtype == np.float32
    assert images.max() <= 1
    mean = 1 / (1 + np.exp(-20 * (images.mean((1, 2, 3)) - 0.5)))
    return mean, np.sqrt(mean * (1 - mean))


def test_it_is_score_of_the_predictions():
    patient = np.arange(150) // 2
    split = Arrays(IMAGES, LABEL, patient_id=patient, batch_size=64)
    mean, spread = estimator(IMAGES.astype(np.float32) / np.float32(255))
    mean, spread = mean.astype(np.float64), spread.astype(np.float64)
    by_hand = rb.Predictions(np.arange(150), LABEL, mean, patient_id=patient, uncertainty=spread)
    found = evaluate(estimator, split, bootstrap=50)
    assert found.to_dict() == rb.score(by_hand, bootstrap=50).to_dict()
    assert found.uncertainty == "own"
    assert found.value("auroc") > 0.6


def test_a_split_of_ones_own():
    class Mine:
        image_id = ("a", "b", "c")
        label = (0, 1, 1)
        domain = ("in_domain", "shifted", "shifted")

        def batches(self):
            yield np.zeros((2, 1, 1, 3))
            yield [[[[1.0, 1.0, 1.0]]]]

    found = predict(lambda x: (x.mean((1, 2, 3))[:, None], np.arange(len(x))), Mine())
    assert found.prob.tolist() == [0, 0, 1]
    assert found.uncertainty.tolist() == [0, 1, 0]
    assert found.domain.tolist() == ["in_domain", "shifted", "shifted"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda x: x.mean((1, 2, 3)), "returned ndarray for batch 1.*mean, uncertainty"),
        (lambda x: (np.zeros((len(x), 2)), np.zeros(len(x))), r"mean has shape \(64, 2\) for batch 1 of 64 images"),
        (lambda x: (np.zeros(len(x)), 0.0), r"uncertainty has shape \(\) for batch 1"),
        (lambda x: (np.full(len(x), 3.0), np.zeros(len(x))), "outside"),
        (lambda x: (np.full(len(x), 0.5), np.full(len(x), np.nan)), "column 'uncertainty': is nan"),
    ],
)
def test_wrong_estimators(wrong, message):
    with pytest.raises(InputError, match=message):
        evaluate(wrong, Arrays(IMAGES, LABEL))


def test_batches_and_labels_must_fit():
    with pytest.raises(InputError, match="hold 150 images, the split has 149 labels"):
        evaluate(estimator, Arrays(IMAGES, LABEL[:-1]))
    with pytest.raises(InputError, match="no images"):
        evaluate(estimator, Arrays(IMAGES[:0], []))
