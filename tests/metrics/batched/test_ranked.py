"""Batched AUROC and average precision against scikit-learn on repeated images."""

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

from retinabench.metrics.batched import ranked
from retinabench.metrics.batched.batch import Batch
from retinabench.metrics.sorted_images import Cases
from support.repeated import weighted_and_repeated


def test_of_the_probability_and_of_the_uncertainty():
    batch, copies = weighted_and_repeated()
    for name, oracle, columns in (
        ("auroc", roc_auc_score, (0, 1)),
        ("auprc", average_precision_score, (0, 1)),
        ("ood_auroc", roc_auc_score, (3, 2)),
        ("ood_auprc", average_precision_score, (3, 2)),
    ):
        expected = [oracle(copy[columns[0]], copy[columns[1]]) for copy in copies]
        np.testing.assert_allclose(getattr(ranked, name)(batch), expected, rtol=1e-12, err_msg=name)


def test_one_class_and_one_domain_are_undefined():
    cases = Cases([1, 1, 0], [0.2, 0.5, 0.7])
    batch = Batch(cases, np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])[:, cases.order])
    assert np.isnan(ranked.auroc(batch)).tolist() == [True, False]
    assert np.isnan(ranked.ood_auroc(batch)).all()
    assert np.isnan(ranked.ood_auprc(batch)).all()
