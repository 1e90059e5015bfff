"""Class weights and the reweighted loss, against the reference's outputs and against their definition."""

import math

import numpy as np
import pytest
import torch

from retinabench.data.loader import ArraySource, Batches
from retinabench.methods.training.gradients import describe_batch
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.losses import BatchInfo, class_weights, cross_entropy


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
