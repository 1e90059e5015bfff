"""Deep ensembles: seeds of the members, and their pooled predictions."""

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.methods.ensembles.ensemble import combine, member_runs


def member(seed, samples=2, uncertainty=None, **columns):
    probs = np.random.default_rng(seed).random((4, samples)) / 2
    given = {"image_id": ["a", "b", "c", "d"], "label": [0, 1, 0, 1], **columns}
    return rb.Predictions(
        **given, probs=probs, uncertainty=uncertainty, metadata={"members": 1, "seed": seed}
    )


def test_ensembles_of_other_seeds_share_no_member():
    runs = [load_run(None, ["method.name=ensemble"], data="d", seed=seed) for seed in (0, 1, 2)]
    seeds = [one.seed for run in runs for one in member_runs(run)]
    assert sorted(seeds) == list(range(9))
    nested = load_run(None, ["method.name=ensemble", "method.member.name=ensemble"], data="d")
    with pytest.raises(InputError, match=r"Raise method\.members"):
        member_runs(nested)


def test_samples_are_pooled_member_by_member():
    one, two = member(0), member(1)
    found = combine([one, two])
    np.testing.assert_array_equal(found.probs, np.hstack([one.probs, two.probs]))
    assert found.metadata["members"] == 2
    assert found.uncertainty is None


def test_an_uncertainty_of_the_members_own_is_averaged_where_all_have_one():
    a, b = np.arange(4.0), np.full(4, 2.0)
    found = combine([member(0, uncertainty=a), member(1, uncertainty=b)])
    np.testing.assert_array_equal(found.uncertainty, (a + b) / 2)
    assert combine([member(0, uncertainty=a), member(1)]).uncertainty is None


@pytest.mark.parametrize(
    "columns", [{"image_id": ["a", "b", "d", "c"]}, {"label": [0, 1, 1, 1]}, {"samples": 3}]
)
def test_members_that_do_not_go_together_are_refused(columns):
    with pytest.raises(InputError, match="other images, labels or numbers of samples"):
        combine([member(0), member(1, **columns)])
