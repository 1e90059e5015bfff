import numpy as np
import pytest
import torch

from retinabench.core.errors import WorkError
from retinabench.data.loader import ArraySource, Batches, BatchLimits, array_batches
from retinabench.experiments.config import load_run
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, cross_entropy, describe_batch, gradients, probe_limit
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.loop import likelihood_only
from retinabench.models.build import build_model
from retinabench.models.stochastic.drawing import use_generator
from support.trainings import ridge, trained


@pytest.mark.parametrize("case", ["mixed", "no_pos", "all_pos", "one_pos"])
def test_minibatch_reweighting_is_the_reference(shared, case):
    golden = np.load(shared("golden", "retina", "loss_minibatch_reweight.npz"))
    labels = torch.from_numpy(golden[f"in_{case}_labels"].astype(np.float32))
    logits = torch.from_numpy(golden[f"in_{case}_logits"])[:, None]
    # The reference computes in float32; so do we: seven digits.
    batch = BatchInfo.of(labels)
    reweighted = cross_entropy(logits, labels, Bernoulli(), batch._replace(reweight="minibatch"))
    assert float(reweighted) == pytest.approx(float(golden[f"out_{case}_mean"]), rel=1e-5)
    plain = float(golden[f"out_{case}_plain_bce_mean"])
    assert float(cross_entropy(logits, labels, Bernoulli(), batch)) == pytest.approx(plain, rel=1e-5)


def test_constant_weights_are_those_of_the_training_set_whatever_the_batch():
    labels = torch.tensor([1.0, 0, 0, 0, 1, 0, 0, 0, 0, 0])
    source = ArraySource(torch.zeros(10, 1), labels)
    batches = Batches(source, np.arange(8), np.arange(8, 10), batch_size=4, seed=0)  # a quarter of the 8 are 1
    some = torch.tensor([1.0, 1, 1, 0])
    assert float(describe_batch(some, 0, batches, "minibatch").positive_share) == 0.75
    batch = describe_batch(some, 0, batches, "constant")
    assert float(batch.positive_share) == 0.25
    logits = torch.tensor([[0.5], [-1.0], [2.0], [0.3]])
    losses = torch.log1p(torch.exp(torch.where(some > 0.5, -logits[:, 0], logits[:, 0])))
    expected = (losses * torch.tensor([2, 2, 2, 2 / 3])).mean()  # 1 / (2 p(k))
    assert float(cross_entropy(logits, some, Bernoulli(), batch)) == pytest.approx(float(expected))


def test_a_loss_that_starts_broken_points_at_the_data(prepared):
    def broken(model, step):
        return ridge(model, step) * float("nan")

    with pytest.raises(WorkError, match=r"at step 1 \(epoch 1\).*No step was taken yet.*bfloat16"):
        trained(prepared, "optimizer.precision=bfloat16", penalty=broken)


CPU = torch.device("cpu")


def a_batch(images=16):
    random = np.random.default_rng(0)
    inputs = random.normal(size=(images, 3, 16, 16)).astype(np.float32)
    return array_batches(inputs, (np.arange(images) % 3 == 0).astype(np.float32), images, 0, CPU)


class Scarce:
    """An objective that runs out of memory in so many calls, or beyond so many images."""

    def __init__(self, objective, most=10**9, failing=()):
        self.objective, self.most, self.failing, self.calls, self.sizes = objective, most, failing, 0, []

    def __call__(self, images, labels, batch):
        self.calls += 1
        terms = self.objective(images, labels, batch)  # fails when noise is drawn and statistics are moved
        if len(images) > self.most or self.calls in self.failing:
            raise torch.OutOfMemoryError("CUDA out of memory")
        self.sizes.append(len(images))
        return terms


def taken(method, limits, *, net="lenet", images=16, most=10**9, failing=(), words=()):
    """Gradients, buffers and sizes of the parts of one step."""
    words = [f"model.name={net}", "model.width=8", f"method.name={method}", "optimizer.l2=1e-3", *words]
    run = load_run(None, words, data="none")
    batches = a_batch(images)
    posterior = METHODS[method].build(build_model(run.model, 0), run, Bernoulli())
    model = posterior.model.train()
    objective = Scarce(likelihood_only(model, batches, run, Bernoulli()), most, failing)
    noise = torch.Generator().manual_seed(1)
    use_generator(model, noise)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    images, labels = next(batches.epoch(0))
    gradients(objective, model, optimizer, images, labels, describe_batch(labels, 0, batches, "none"), noise, limits, 1)
    found = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return found, [buffer.clone() for buffer in model.buffers()], objective.sizes


@pytest.mark.parametrize("most", [1, 6])
def test_a_step_that_runs_out_of_memory_has_the_gradient_of_the_whole_batch(most):
    """Without batch norm and noise; float32 sums in another order."""
    whole, _, _ = taken("map", BatchLimits())
    limits = BatchLimits()
    cut, _, sizes = taken("map", limits, most=most)
    assert torch.allclose(whole, cut, atol=1e-6)
    assert sum(sizes) == 16
    assert max(sizes) == limits.training <= most


def test_a_step_begins_again_with_the_noise_and_statistics_that_it_began_with():
    """The second part fails after the first one has left gradients; then all are as if the limit had been known."""
    for method, net in (("dropout", "lenet"), ("map", "resnet18")):
        known, statistics, sizes = taken(method, BatchLimits(training=4), net=net)
        found, after, again = taken(method, BatchLimits(training=8), net=net, failing=(2,))
        assert torch.equal(known, found)
        assert all(torch.equal(a, b) for a, b in zip(statistics, after, strict=True))
        assert (sizes, again) == ([4] * 4, [8, *[4] * 4])


@pytest.mark.parametrize("method", ["ivon", "vogn"])
def test_what_a_method_accumulates_beside_the_gradients_begins_again(method, monkeypatch):
    """Two steps of a run whose first part of the first step fails late are those of a run that knew the limit."""
    run = load_run(None, ["model.name=lenet", f"method.name={method}", "optimizer.epochs=2", "optimizer.augment=none",
                          "optimizer.select=last", "method.std=0.01"], data="none")  # fmt: skip
    module, states = METHODS[method], []
    original = module.objective
    for limit, failing in ((4, ()), (8, (2,))):
        batches = a_batch()
        batches.limits.training = limit
        scarce = lambda *given, failing=failing: Scarce(original(*given), failing=failing)  # noqa: E731
        monkeypatch.setattr(module, "objective", scarce)
        posterior = module.fit(build_model(run.model, 0), batches, run, Checkpoint(), Bernoulli())
        states.append(posterior.state())
    for name in states[0]:
        assert torch.equal(states[0][name], states[1][name]), name


class Formula:
    """A card whose memory is a formula of the images of the largest pass."""

    def __init__(self, free, per_image, objective):
        self._free, self._per_image, self._objective = free, per_image, objective

    def free(self):
        return self._free

    def peak(self, work):
        work()
        return self._per_image * self._objective.sizes[-1]


def test_a_probe_sets_the_limit_and_leaves_no_trace():
    run = load_run(None, ["model.name=resnet18", "model.width=4", "optimizer.l2=1e-3"], data="none")
    batches = a_batch()
    model = build_model(run.model, 0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    objective = Scarce(likelihood_only(model, batches, run, Bernoulli()))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    parameters = sum(p.nbytes for p in model.parameters())
    card = Formula(int((100 * 6 + 2 * parameters) / 0.9) + 10, 100, objective)
    probe_limit(objective, model, optimizer, batches, run, 0, card)
    assert batches.limits.probed == ["training"]
    assert batches.limits.training == 6
    assert "6 of 16 images of a batch fit the memory of cpu" in batches.limits.history[0]
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    probe_limit(objective, model, optimizer, batches, run, 0, Formula(10, 100, objective))
    assert batches.limits.training == 6  # known already
    batches = a_batch()
    probe_limit(objective, model, optimizer, batches, run, 0, Formula(10**9, 100, objective))
    assert (batches.limits.probed, batches.limits.training) == (["training"], None)  # the whole batch fits
