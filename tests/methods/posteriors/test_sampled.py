"""Prediction by samples: how many share a pass changes nothing; one sample is one network; nothing is lost on disk."""

import pytest
import torch
from torch import nn

from retinabench.experiments.config import load_run
from retinabench.methods.posteriors.sampled import predict_samples
from retinabench.methods.registry import METHODS
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.posterior import precision
from retinabench.models.build import build_model
from retinabench.models.stochastic.drawing import Drawing, use_generator

NOISY = ["dropout", "mfvi", "radial", "rank1"]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def run(name, *words):
    tiny = ["model.name=resnet18", "model.width=4", "model.stem=small"]
    spread = {"mfvi": ["method.stddev_mean_init=0.05"], "radial": ["method.stddev_mean_init=0.5"]}
    return load_run(None, [*tiny, f"method.name={name}", *spread.get(name, []), *words], data="d")


def posterior(name, *words, seed=3):
    settings = run(name, *words)
    return METHODS[name].build(build_model(settings.model, seed), settings, Bernoulli())


def pictures(count=6, seed=5):
    return torch.rand(count, 3, 16, 16, generator=generator(seed)).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", NOISY)
def test_the_number_of_samples_in_a_pass_changes_only_rounding(name):
    model, images = posterior(name).model, pictures()
    probs = [
        predict_samples(model, Bernoulli(), images, 7, generator(1), pass_values=together * images.numel())
        for together in (1, 2, 7)
    ]
    assert probs[0].shape == (7, 6, 2)
    assert len(probs[0][:, 0, 1].unique()) == 7
    for other in probs[1:]:
        # The convolution kernels may add in another order for another batch size.
        assert torch.allclose(probs[0], other, atol=1e-6, rtol=0)


class Recorder(Drawing):
    """Keeps the noise that each posterior sample was given."""

    def __init__(self):
        super().__init__()
        self.noise = {}

    def forward(self, x):
        return self.each_draw(x, self._record)

    def _record(self, x, draw):
        self.noise[draw.number] = torch.rand(x.shape, generator=draw.generator)
        return x


def test_the_noise_itself_is_exactly_the_same():
    seen = []
    for together in (1, 3, 5):
        model = nn.Sequential(Recorder(), nn.Flatten(), nn.Linear(3 * 16 * 16, 1), Recorder())
        predict_samples(
            model, Bernoulli(), pictures(), 5, generator(2), pass_values=together * pictures().numel()
        )
        seen.append([model[place].noise[number] for place in (0, 3) for number in range(5)])
    for other in seen[1:]:
        assert all(torch.equal(a, b) for a, b in zip(seen[0], other, strict=True))


@pytest.mark.parametrize("name", ["mfvi", "radial", "rank1"])
def test_a_sample_is_one_network_for_all_images(name):
    """A coherent function: a picture's answers do not depend on which other pictures are asked."""
    model, images = posterior(name).model, pictures()
    together = predict_samples(model, Bernoulli(), images, 5, generator(1))
    apart = torch.cat(
        [predict_samples(model, Bernoulli(), image[None], 5, generator(1)) for image in images], dim=1
    )
    assert torch.allclose(together, apart, atol=1e-6, rtol=0)
    twice = predict_samples(model, Bernoulli(), torch.cat([images[:1], images[:1]]), 5, generator(1))
    assert torch.allclose(twice[:, 0], twice[:, 1], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", NOISY)
def test_a_restored_posterior_predicts_the_same_bits(name):
    one, other = posterior(name), posterior(name, seed=4)
    before = other.predict(pictures(), 5, generator(1))
    other.restore(one.state())
    expected = one.predict(pictures(), 5, generator(1))
    assert torch.equal(other.predict(pictures(), 5, generator(1)), expected)
    assert not torch.equal(before, expected)


@pytest.mark.parametrize("name", NOISY)
def test_bfloat16_is_near_float32(name):
    subject = posterior(name)
    exact = subject.predict(pictures(), 5, generator(1))
    with precision(run(name, "optimizer.precision=bfloat16"), torch.device("cpu")):
        rough = subject.predict(pictures(), 5, generator(1))
        subject.model.train()
        use_generator(subject.model, generator(2))
        subject.model(pictures()).float().sum().backward()
    # bfloat16 keeps 8 bits; the networks are 18 layers deep, their logits of order one.
    assert rough.dtype == torch.float32
    assert torch.allclose(exact, rough, atol=0.03)
    assert all(torch.isfinite(p.grad).all() for p in subject.model.parameters() if p.grad is not None)


def test_a_mixture_predicts_the_average_over_its_components():
    """With no noise within a component, S = 2K samples are each of the K networks twice."""
    model = posterior("rank1", "method.components=3", "method.samples=3").model
    for name, parameter in model.named_parameters():
        if name.endswith(("input_rho", "output_rho")):
            parameter.data.fill_(-40.0)
    probs = predict_samples(model, Bernoulli(), pictures(), 6, generator(1))
    assert torch.allclose(probs[:3], probs[3:], atol=1e-6, rtol=0)
    networks = []
    for component in range(3):
        plain = build_model(run("map").model, 3).eval()
        for name, layer in plain.named_modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                made = model.get_submodule(name)
                outer = torch.outer(made.output_mean[component], made.input_mean[component]).detach()
                layer.weight.data = made.weight.data * outer.view(
                    *outer.shape, *[1] * (layer.weight.ndim - 2)
                )
        networks.append(plain(pictures()).sigmoid().squeeze(1).detach())
    # Another order of multiplication: single precision through 18 layers.
    assert torch.allclose(probs[..., 1].mean(dim=0), torch.stack(networks).mean(dim=0), atol=1e-5)
