"""Prediction of networks whose every pass is a posterior sample: several samples in one pass, where memory allows."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from retinabench.methods.posteriors.draw_cache import DrawCache, fits_cache
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.posterior import NetworkOnly, sample_seeds
from retinabench.models.stochastic.drawing import Draw, use_draws

# Input values in one pass. A processor's cache is small: one sample per pass is fastest but for the smallest images. A
# GPU needs large passes: 40 images of 512 px, or 2,700 of 64 px. A larger batch fills one pass per sample.
PASS_VALUES = {"cpu": 2**18, "cuda": 2**25}


@dataclass
class SampledPosterior(NetworkOnly):
    """One network with layers that draw: weights, of which each sample is one function for all images, or units, which
    every image draws on its own (`per_image`).
    """

    model: nn.Module
    likelihood: Likelihood
    per_image: bool = False
    cache: DrawCache[Draw] = field(default_factory=DrawCache, repr=False)

    @torch.no_grad()
    def predict(self, images: Tensor, samples: int, generator: torch.Generator) -> Tensor:
        """Return probabilities (S, B, C) of images: S draws of the network's noise."""
        if self.per_image:
            return predict_samples(self.model, self.likelihood, images, samples, generator)
        cached, weights = fits_cache(samples, self.model), list(self.model.parameters())
        draws = self.cache.samples(
            generator,
            samples,
            weights,
            lambda start: _sample_draws(samples, start, cache=cached),
            cache=cached,
        )
        return _predict_draws(self.model, self.likelihood, images, list(draws))


def predict_samples(
    model: nn.Module,
    likelihood: Likelihood,
    images: Tensor,
    samples: int,
    generator: torch.Generator,
    pass_values: int | None = None,
) -> Tensor:
    """Return class probabilities (S, B, C) of S posterior samples, fresh draws of `generator`'s stream.

    Args:
        model: A network with stochastic layers.
        likelihood: What the outputs of the network mean.
        images: (B, 3, H, W).
        samples: Number S of samples.
        generator: Source of the seeds of the samples; it is advanced.
        pass_values: Input values in one pass; default: by device.
    """
    return _predict_draws(model, likelihood, images, _sample_draws(samples, generator), pass_values)


def _sample_draws(samples: int, generator: torch.Generator, *, cache: bool = False) -> list[Draw]:
    """Return S posterior samples, each with a generator of its own, seeded from `generator`."""
    return [
        Draw(torch.Generator(generator.device).manual_seed(seed), number, {} if cache else None)
        for number, seed in enumerate(sample_seeds(samples, generator))
    ]


def _predict_draws(
    model: nn.Module,
    likelihood: Likelihood,
    images: Tensor,
    draws: list[Draw],
    pass_values: int | None = None,
) -> Tensor:
    """Return class probabilities (S, B, C) of the samples `draws`, with as many in one pass as `pass_values` allows.

    Default: by device. How many share a pass changes no draw, only the rounding of the batched kernels.
    """
    model.eval()
    pass_values = pass_values or PASS_VALUES.get(images.device.type, 2**18)
    together = max(1, pass_values // images.numel())
    probs = []
    for first in range(0, len(draws), together):
        chunk = draws[first : first + together]
        use_draws(model, chunk)
        drawn = likelihood.predictive(model(torch.cat([images] * len(chunk))))
        probs.append(drawn.view(len(chunk), len(images), -1))
    return torch.cat(probs)
