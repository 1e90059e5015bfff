"""The strategies after the same number of questions."""

import numpy as np

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.report.snapshot import snapshot
from support.examinees import CONCEPTS, examinee


def test_the_snapshot_shows_the_commonest_and_the_rarest_that_occurs(bank):
    state = snapshot(bank, examinee(bank), ("random", "precision"), seed=1)
    assert state.questions == 100
    assert state.concepts == [
        max(("common", "twin"), key=lambda c: bank.truth[:, CONCEPTS.index(c)].sum()),
        "rare",
    ]
    for bins in state.bins.values():
        assert 0 < sum(map(sum, bins.values())) <= 100
    small = Bank(None, ["a", "b"], np.eye(6, 2, dtype=np.int8))
    assert snapshot(small, lambda sample, concept: 0.5, ("random",)).questions == 4
    alone = Bank(None, ["a"], np.eye(6, 1, dtype=np.int8))
    assert snapshot(alone, lambda sample, concept: 0.5, ("random",)) is None
