"""A training that diverges ends with its step and term."""

from __future__ import annotations

import pytest

from retinabench.core.errors import WorkError
from support.helpers import make_prepared
from support.trainings import ridge, trained


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return str(make_prepared(tmp_path_factory.mktemp("data") / "prepared"))


def test_a_rate_that_is_too_high_is_named_with_step_and_term(prepared):
    with pytest.raises(WorkError) as caught:
        trained(prepared, "optimizer.lr=1e12", "optimizer.warmup=0", "optimizer.momentum=0.5")
    said = str(caught.value)
    assert "'cross_entropy'" in said
    # The first step is still finite; the second or third is not.
    assert "at step 2 " in said or "at step 3 " in said
    assert "Lower optimizer.lr" in said
    assert "bfloat16" not in said


def test_a_penalty_that_breaks_first_is_named(prepared):
    def breaks_at_five(model, step):
        return ridge(model, step) * (float("inf") if step == 5 else 1.0)

    with pytest.raises(
        WorkError, match=r"'penalty' is not finite at step 6 \(epoch 2\).*penalty of the method"
    ):
        trained(prepared, penalty=breaks_at_five)


def test_a_loss_that_starts_broken_points_at_the_data(prepared):
    def broken(model, step):
        return ridge(model, step) * float("nan")

    with pytest.raises(WorkError, match=r"at step 1 \(epoch 1\).*No step was taken yet.*bfloat16"):
        trained(prepared, "optimizer.precision=bfloat16", penalty=broken)


def test_a_long_epoch_is_not_waited_for_on_a_cpu(prepared):
    seen = []

    def broken(model, step):
        seen.append(step)
        return ridge(model, step) * float("nan")

    with pytest.raises(WorkError, match="at step 1 "):
        trained(prepared, "optimizer.batch_size=1", penalty=broken)
    assert len(seen) == 50  # of 64
