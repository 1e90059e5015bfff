"""Class weights and the reweighted loss, against the reference's outputs and against their definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from retinabench.core.errors import WorkError
from retinabench.data.loader import ArraySource, Batches
from retinabench.methods.training.gradients import describe_batch
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.losses import BatchInfo, class_weights, cross_entropy
from support.helpers import make_prepared
from support.trainings import ridge, trained


@pytest.mark.parametrize("case", ["mixed", "no_pos", "all_pos", "one_pos"])
def test_minibatch_reweighting_is_the_reference(shared, case):
    golden = np.load(shared("golden", "retina", "loss_minibatch_reweight.npz"))
    labels = torch.from_numpy(golden[f"in_{case}_labels"].astype(np.float32))
    logits = torch.from_numpy(golden[f"in_{case}_logits"])[:, None]
    # The reference computes in float32; so do we: seven digits.
    batch = BatchInfo.of(labels)
    reweighted = cross_entropy(logits, labels, Bernoulli(), "minibatch", batch)
    assert float(reweighted) == pytest.approx(float(golden[f"out_{case}_mean"]), rel=1e-5)
    plain = float(golden[f"out_{case}_plain_bce_mean"])
    assert float(cross_entropy(logits, labels, Bernoulli(), "none", batch)) == pytest.approx(plain, rel=1e-5)


def test_the_reweighted_loss_is_the_mean_over_classes_of_their_mean_losses():
    """(1 / Kn) Σ CE / p(k) = ½ Σ_k mean of the losses of class k; a part of a batch takes the shares of the whole."""
    logits = torch.linspace(-3, 2, 12)[:, None]
    labels = (torch.arange(12) % 4 == 0).float()
    losses = [
        math.log1p(math.exp(-z if y else z)) for z, y in zip(logits[:, 0].tolist(), labels, strict=True)
    ]
    by_class = [np.mean([loss for loss, y in zip(losses, labels, strict=True) if y == k]) for k in (0, 1)]
    batch = BatchInfo.of(labels)
    assert float(cross_entropy(logits, labels, Bernoulli(), "minibatch", batch)) == pytest.approx(
        np.mean(by_class)
    )
    parts = [
        cross_entropy(logits[k : k + 4], labels[k : k + 4], Bernoulli(), "minibatch", batch)
        for k in (0, 4, 8)
    ]
    assert float(torch.stack(parts).mean()) == pytest.approx(np.mean(by_class))


def test_class_weights_give_both_classes_half_of_the_mass():
    weights = class_weights(torch.tensor([1.0, 0, 0, 0, 0]), torch.tensor(0.2))
    assert float(weights.sum()) == pytest.approx(5.0)
    assert float(weights[0]) == pytest.approx(2.5)
    assert float(weights[1:].sum()) == pytest.approx(2.5)


def test_constant_weights_are_those_of_the_training_set_whatever_the_batch():
    labels = torch.tensor([1.0, 0, 0, 0, 1, 0, 0, 0, 0, 0])
    source = ArraySource(torch.zeros(10, 1), labels)
    batches = Batches(
        source, np.arange(8), np.arange(8, 10), batch_size=4, seed=0
    )  # a quarter of the 8 are 1
    some = torch.tensor([1.0, 1, 1, 0])
    assert float(describe_batch(some, 0, batches, "minibatch").positive_share) == 0.75
    batch = describe_batch(some, 0, batches, "constant")
    assert float(batch.positive_share) == 0.25
    logits = torch.tensor([[0.5], [-1.0], [2.0], [0.3]])
    losses = torch.log1p(torch.exp(torch.where(some > 0.5, -logits[:, 0], logits[:, 0])))
    expected = (losses * torch.tensor([2, 2, 2, 2 / 3])).mean()  # 1 / (2 p(k))
    assert float(cross_entropy(logits, some, Bernoulli(), "constant", batch)) == pytest.approx(
        float(expected)
    )


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
