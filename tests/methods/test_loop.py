import copy

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError, WorkError
from retinabench.methods import map as map_method
from retinabench.methods.settings import Optimizer
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, cross_entropy
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.loop import learning_rate, likelihood_only, make_optimizer, restore_optimizer, train
from retinabench.methods.training.posterior import precision
from retinabench.models.build import build_model
from support.trainings import CPU, LENET, ridge, trained


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_l2_acts_on_weights_alone_and_equals_the_penalty_in_the_loss(name):
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    l2 = 0.05
    groups = make_optimizer(net, Optimizer(name=name, l2=l2)).param_groups
    assert [group["weight_decay"] for group in groups] == [2 * l2, 0.0]
    assert [p.ndim for p in groups[0]["params"]] == [2]
    # The gradient of l2 * Σ w² is 2 * l2 * w: what weight_decay adds.
    weight = net[0].weight
    (gradient,) = torch.autograd.grad(l2 * weight.square().sum(), weight)
    assert torch.allclose(gradient, groups[0]["weight_decay"] * weight)


@pytest.mark.parametrize(("acts_on", "decayed"), [("weights", [2]), ("norms_and_biases", [1, 1, 1]), ("nothing", [])])
def test_what_the_released_l2_acts_on_is_a_named_option(acts_on, decayed):
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    groups = make_optimizer(net, Optimizer(l2=0.05, l2_on=acts_on)).param_groups
    assert [p.ndim for group in groups if group["weight_decay"] for p in group["params"]] == decayed
    assert sum(len(group["params"]) for group in groups) == 4


def test_a_parameter_may_be_exempt_from_the_l2_term():
    net = nn.Linear(3, 2)
    net.rho = nn.Parameter(torch.zeros(2, 3))
    net.rho.no_decay = True
    groups = make_optimizer(net, Optimizer(l2=0.05)).param_groups
    assert [p.shape for p in groups[0]["params"]] == [(2, 3)]
    assert groups[0]["params"][0] is net.weight
    assert any(p is net.rho for p in groups[1]["params"])


@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (lambda s: s["state"][0].update(momentum_buffer=torch.zeros(7)), r"momentum_buffer .* has shape \(7,\)"),
        (lambda s: s["state"][0].update(momentum_buffer={"a": 1}), "momentum_buffer of the optimiser is {'a': 1}"),
        (lambda s: s["state"][0].update(momentum_buffer=3.0), "momentum_buffer of the optimiser is 3.0"),
    ],
)
def test_the_state_of_another_optimiser_is_refused(forge, says):
    net = nn.Linear(3, 2)
    optimizer = make_optimizer(net, Optimizer())
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    state["param_groups"][0].update(momentum="x", weight_decay=float("nan"))  # settings stay those of the run
    restored = make_optimizer(nn.Linear(3, 2), Optimizer())
    restore_optimizer(restored, copy.deepcopy(state))
    assert restored.param_groups[0]["momentum"] == Optimizer().momentum
    forge(state)
    with pytest.raises(ValueError, match=says):
        restore_optimizer(make_optimizer(nn.Linear(3, 2), Optimizer()), state)


def test_step_and_linear_schedules_are_the_reference_and_cosine_rises_then_falls_to_nothing(shared):
    golden = np.load(shared("golden", "retina", "lr_schedules.npz"))
    step = Optimizer(lr=0.03, schedule="step", epochs=90, warmup=1)
    linear = Optimizer(lr=0.023072, schedule="linear", epochs=90, warmup=1, final_lr=0.01)
    for at, in_steps, in_linear in zip(golden["in_steps"], golden["out_step"], golden["out_linear"], strict=True):
        assert learning_rate(int(at), 100, step) == pytest.approx(in_steps, rel=1e-6, abs=1e-12)
        assert learning_rate(int(at), 100, linear) == pytest.approx(in_linear, rel=1e-6, abs=1e-12)
    config = Optimizer(lr=1.0, schedule="cosine", epochs=10, warmup=1)
    rates = [learning_rate(step, 20, config) for step in range(201)]
    assert rates[0] == 0
    assert rates[20] == 1
    assert rates[110] == pytest.approx(0.5)
    assert rates[200] == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("reweight", ["minibatch", "none"])
def test_a_batch_in_parts_is_the_batch(prepared, reweight):
    """Class weights of the whole batch, a penalty once; float32 sums in another order differ near 1e-7."""
    words = [f"optimizer.reweight={reweight}", "optimizer.select=last"]
    whole, *cut = (trained(prepared, *words, f"optimizer.accumulate={parts}", penalty=ridge) for parts in (1, 3, 16))
    for history, weights in cut:
        for one, other in zip(whole[0], history, strict=True):
            for term in ("loss", "loss_cross_entropy", "loss_penalty", "validation_nll"):
                assert one[term] == pytest.approx(other[term], rel=1e-6), term
        for name, tensor in whole[1].items():
            assert torch.allclose(tensor, weights[name], atol=1e-6), name


@pytest.mark.parametrize("parts", [1, 3])
def test_losses_of_images_are_weighed_and_averaged_by_the_loop(opened, parts):
    """An objective that returns losses (B,) trains as MAP does, bit for bit: an author cannot forget the class weights."""
    run, batches = opened(*LENET, "optimizer.reweight=minibatch", f"optimizer.accumulate={parts}")

    def losses(images, labels, batch):
        return {"losses": Bernoulli().negative_log_likelihood(ours.model(images), labels)}

    ours, theirs = (map_method.build(build_model(run.model, run.seed), run, Bernoulli()) for _ in range(2))
    train(ours, batches, run, Checkpoint(), objective=losses)
    train(theirs, batches, run, Checkpoint())
    assert all(torch.equal(tensor, theirs.state()[name]) for name, tensor in ours.state().items())


@pytest.mark.parametrize("method", ["map", "dropout"])
def test_losses_are_float32_under_bfloat16(opened, method):
    run, batches = opened(*LENET, f"method={method}", "optimizer.precision=bfloat16")
    model = build_model(run.model, run.seed)
    images, labels = next(batches.epoch(0))
    with precision(run, CPU):
        assert model(images).dtype == torch.bfloat16
    terms = likelihood_only(model, batches, run, Bernoulli())(images, labels, BatchInfo.of(labels))
    assert {name: term.dtype for name, term in terms.items()} == {"cross_entropy": torch.float32}
    # Eight significant bits of the logits, none of the loss's: 2^-8 of a loss near 0.7.
    full = cross_entropy(model(images), labels, Bernoulli(), BatchInfo.of(labels, reweight="minibatch")).detach()
    assert float(terms["cross_entropy"].detach()) == pytest.approx(float(full), rel=4e-3)


class Overflow(nn.Module):
    """Finite in training, and broken when it predicts."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * (1.0 if self.training else float("nan"))


def test_predictions_that_are_no_numbers_end_the_training(opened):
    run, batches = opened(*LENET)
    posterior = map_method.build(Overflow(build_model(run.model, run.seed)), run, Bernoulli())
    with pytest.raises(WorkError, match="after epoch 1 the network predicts values that are not finite"):
        train(posterior, batches, run, Checkpoint())


def test_an_auroc_that_is_undefined_cannot_choose(prepared, monkeypatch):
    monkeypatch.setattr("retinabench.methods.training.prediction.auroc_of", lambda images: float("nan"))
    with pytest.raises(InputError, match=r"one class only.*optimizer\.select=nll"):
        trained(prepared)
    history, _ = trained(prepared, "optimizer.select=nll")
    assert len(history) == 2
