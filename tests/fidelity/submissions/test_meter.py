import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn.functional import cross_entropy, linear

from retinabench.core.errors import WorkError
from retinabench.data.loader import array_batches
from retinabench.fidelity.submissions.meter import EXAMPLES, GradientMeter


def network():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


@pytest.fixture
def metered():
    meter = GradientMeter(examples=10, limit=None)
    return meter, meter.watch(network())


def test_passes_are_counted_without_gradients_too_and_predictions_are_not(metered):
    meter, model = metered
    x = torch.ones(7, 3)
    model(x)
    with torch.no_grad():
        model(x[:3])
    assert meter.used == 1
    meter.stopped = True
    model(x)
    assert meter.used == 1


def test_copies_that_run_at_once_are_counted_one_by_one(metered):
    meter, model = metered
    weights = {name: p.detach() for name, p in model.named_parameters()}

    def loss(weights, x):
        return functional_call(model, weights, (x,)).square().sum()

    chains = {name: torch.stack([p] * 6) for name, p in weights.items()}
    vmap(grad(loss), in_dims=(0, None))(chains, torch.ones(5, 3))
    assert meter.counts[EXAMPLES] == 6 * 5
    # One Jacobian per example, the examples at once: one forward pass each.
    vmap(jacrev(lambda w, x: functional_call(model, w, (x[None],))[0]), in_dims=(None, 0))(weights, torch.ones(9, 3))
    assert meter.counts[EXAMPLES] == 6 * 5 + 9


def test_a_method_that_takes_more_than_it_planned_is_stopped():
    meter = GradientMeter(examples=10, limit=2)
    model = meter.watch(network())
    for _ in range(4):
        model(torch.ones(5, 3))
    with pytest.raises(WorkError, match="more than the 2 gradient evaluations"):
        model(torch.ones(1, 3))


@pytest.fixture
def handed_out():
    """A meter, and the inputs (10, 3) and targets that a method is handed by it."""
    meter = GradientMeter(examples=10, limit=None)
    meter.watch(nn.Linear(3, 2))
    whole = array_batches(np.ones((10, 3), np.float32), np.zeros(10, int), 10, 0, torch.device("cpu"))
    batches = meter.handed_out(whole)
    return meter, *next(batches.rows(batches.train))


W = torch.zeros(2, 3, requires_grad=True)


@pytest.mark.parametrize(
    ("evaluate", "evaluations"),
    [
        (lambda x, y: cross_entropy(linear(x, W), y).backward(), 1),  # with its gradient, past the network
        (lambda x, y: [cross_entropy(linear(part, W), y[:5]) for part in x.split(5)], 1),
        (lambda x, y: x @ W.T, 1),
        (lambda x, y: torch.cat([x, torch.ones_like(x[:, :1])], dim=1).double() @ torch.zeros(4, 2).double(), 1),
        (lambda x, y: (x * W[0]).sum(dim=1), 1),  # the same without a product of matrices
        (lambda x, y: torch.zeros(7 * 2, 3) @ x.T, 7),  # seven chains at once
        (lambda x, y: torch.baddbmm(torch.zeros(7, 1, 2), x.expand(7, -1, -1), torch.zeros(7, 3, 2)), 7),
        (lambda x, y: vmap(lambda w: linear(x, w))(torch.zeros(7, 2, 3)), 7),
        (lambda x, y: x.numpy(), 1),  # what is computed with the copy is not seen
        (lambda x, y: (x.shape, x.T, x[:3], x.to(torch.float64), (x - 1) / 2, len(x), x.reshape(-1)), 0),
    ],
)  # fmt: skip
def test_inputs_count_outside_the_network_too(evaluate, evaluations, handed_out):
    meter, x, y = handed_out
    evaluate(x, y)
    assert meter.used == evaluations
    with torch.no_grad():
        linear(x, W)
    assert meter.used == evaluations + 1  # without a gradient too


def test_inputs_that_pass_the_network_count_once(handed_out):
    _, x, _ = handed_out
    meter = x.meter
    model = meter.watch(nn.Linear(3, 2))
    model(2 * x).log_softmax(dim=1)
    assert meter.used == 1
