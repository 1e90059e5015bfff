"""Layers of K members in one network: rank-1 posteriors, BatchEnsemble, low-rank adapters, and layers of their own."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from retinabench.models.stochastic.drawing import (
    Affine,
    Draw,
    Drawing,
    channels,
    fan_in,
    operation,
    per_channel,
    standard_normal,
)
from retinabench.models.stochastic.variational import gaussian_kl, initial_rho


class OuterProduct(Drawing, ABC):
    """A layer in place of `layer`, whose weight is multiplied by an outer product, W_k = W ∘ (s_k r_kᵀ), for K pairs of vectors.

    y = s ∘ (W (r ∘ x)) + b: a pair per row of a training batch costs two multiplications. In evaluation posterior sample n has the
    pair n mod K, and one weight, multiplied out, for all of its rows.
    """

    def __init__(self, layer: Affine, pairs: int) -> None:
        super().__init__()
        self.weight = layer.weight
        self.pairs = pairs
        self.operation, self.is_linear = operation(layer), isinstance(layer, nn.Linear)

    def forward(self, x: Tensor) -> Tensor:
        return self.each_draw(x, self._own_factors if self.training else self._one_weight)

    def pair_of(self, rows: int, draw: Draw) -> Tensor:
        """Return which pair each row of a training batch has, (rows,): pair n mod K for row n."""
        return torch.arange(rows, device=self.weight.device) % self.pairs

    @abstractmethod
    def factors(self, chosen: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        """Return r (B, inputs) and s (B, outputs). Shapes: `chosen` (B,)."""

    @abstractmethod
    def biases(self, chosen: Tensor) -> Tensor | None:
        """Return the biases (B, outputs), or (1, outputs) where all rows have the same; None without any; `chosen` (B,)."""

    def _own_factors(self, x: Tensor, draw: Draw) -> Tensor:
        """Training: factors for each row, which cannot be folded into one weight."""
        chosen = self.pair_of(len(x), draw)
        into, out = self.factors(chosen, draw)
        y = self.operation(x * per_channel(into, x, self.is_linear).to(x.dtype), self.weight, None)
        y = y * per_channel(out, y, self.is_linear).to(y.dtype)
        bias = self.biases(chosen)
        return y if bias is None else y + per_channel(bias, y, self.is_linear).to(y.dtype)

    def _one_weight(self, x: Tensor, draw: Draw) -> Tensor:
        """Evaluation: one weight W ∘ (s rᵀ) for all rows of the posterior sample."""
        chosen = torch.tensor([draw.number % self.pairs], device=self.weight.device)
        bias = self.biases(chosen)
        weight = self.cached(draw, lambda: self._weight(chosen, draw))
        return self.operation(x, weight, None if bias is None else bias[0])

    def _weight(self, chosen: Tensor, draw: Draw) -> Tensor:
        (into,), (out,) = self.factors(chosen, draw)
        outputs, inputs = self.weight.shape[:2]
        # The outputs of a group see the inputs of that group alone.
        groups = len(into) // inputs
        factors = into.view(groups, inputs).repeat_interleave(outputs // groups, dim=0) * out[:, None]
        weight: Tensor = self.weight * factors.view(outputs, inputs, *[1] * (self.weight.ndim - 2))
        return weight


# The initial std of the multiplicative noise, that of dropout with rate 0.001, and the std of its ρ.
INITIAL_STDDEV = (math.sqrt(0.001 / 0.999), 0.1)


class Rank1Layer(OuterProduct):
    """A layer W ∘ (s_k r_kᵀ) whose r and s have N(mean_k, σ_k²) for each of K components (Dusenberry et al. 2020), W and b points.

    While training, row b belongs to component b mod K, with noise of its own; posterior sample n to component n mod K.
    positive: probability of +1 in the components' initial means, random signs. prior_mean: `sign`, the nearer of +1 and
    -1, or `one`, as released. clip: cuts samples at ± this, or None. Parameters: `weight`, `bias`, and of shape (K,
    inputs) `input_mean`, `input_rho`, (K, outputs) `output_mean`, `output_rho`.
    """

    def __init__(
        self,
        layer: Affine,
        *,
        components: int,
        positive: float,
        prior_mean: Literal["sign", "one"],
        prior_stddev: float,
        clip: float | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(layer, components)
        self.bias = layer.bias
        inputs, outputs = (torch.empty(components, size, device=layer.weight.device) for size in channels(layer))

        def signs(like: Tensor) -> nn.Parameter:  # +1 with probability `positive`
            return _not_decayed(like, torch.where(torch.rand(like.shape, generator=generator) < positive, 1.0, -1.0))

        self.input_mean, self.input_rho = signs(inputs), initial_rho(inputs, INITIAL_STDDEV, generator)
        self.output_mean, self.output_rho = signs(outputs), initial_rho(outputs, INITIAL_STDDEV, generator)
        self.clip = clip
        self.prior_mean, self.prior_stddev = prior_mean, prior_stddev

    def fast_weights(self) -> list[nn.Parameter]:
        return [self.input_mean, self.input_rho, self.output_mean, self.output_rho]

    def kl_terms(self) -> list[Tensor]:
        """Two divergences in nats, of r and of s: the mean over components of KL(q_k ‖ prior).

        KL is convex, so this bounds the mixture's divergence from above; the gap is at most log K.
        """
        return [self._kl(self.input_mean, self.input_rho), self._kl(self.output_mean, self.output_rho)]

    def factors(self, chosen: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        into = self._sample(self.input_mean, self.input_rho, chosen, draw)
        return into, self._sample(self.output_mean, self.output_rho, chosen, draw)

    def biases(self, chosen: Tensor) -> Tensor | None:
        return None if self.bias is None else self.bias[None]

    def _kl(self, mean: Tensor, rho: Tensor) -> Tensor:
        # The prior (N(-1, τ²) + N(1, τ²)) / 2 is, up to log 2, its nearer half: the other one is 2 / τ standard deviations away.
        offset = mean.abs() - 1 if self.prior_mean == "sign" else mean - 1
        return gaussian_kl(offset, functional.softplus(rho), self.prior_stddev) / self.pairs

    def _sample(self, mean: Tensor, rho: Tensor, chosen: Tensor, draw: Draw) -> Tensor:
        mean, stddev = mean[chosen], functional.softplus(rho)[chosen]
        sample = mean + stddev * standard_normal(mean.shape, draw.generator)
        return sample if self.clip is None else sample.clamp(-self.clip, self.clip)


def _not_decayed(like: Tensor, values: Tensor) -> nn.Parameter:
    """Return a parameter on the device of `like`; values are drawn in host memory, so that the device does not matter."""
    parameter = nn.Parameter(torch.empty_like(like).copy_(values))
    parameter.no_decay = True  # type: ignore[attr-defined]
    return parameter


class BatchEnsembleLayer(OuterProduct):
    """A layer in place of `layer`, whose weight the members share.

    Parameters: `weight`, of shape (K, inputs) `input_factors`, (K, outputs) `output_factors`, and K vectors `bias`. The
    factors are never decayed; all learn at the rate of the weight.
    """

    def __init__(self, layer: Affine, members: int, std: float, generator: torch.Generator) -> None:
        super().__init__(layer, members)
        self.input_factors, self.output_factors = (
            _not_decayed(
                layer.weight.new_empty(members, size), 1 + std * torch.randn(members, size, generator=generator)
            )
            for size in channels(layer)
        )
        copies = [layer.bias] * members if layer.bias is not None else []
        self.bias = nn.ParameterList([nn.Parameter(bias.detach().clone()) for bias in copies])
        if (factor := getattr(layer.weight, "lr_factor", None)) is not None:
            for parameter in self.parameters():
                parameter.lr_factor = factor  # type: ignore[attr-defined]

    def pair_of(self, rows: int, draw: Draw) -> Tensor:
        """Return the member of each row: equal shares, one after the other, the first for the member of the draw's number.

        Layers on windows of images have many rows for each image, which all lie in its member's share.
        """
        return (torch.arange(rows, device=self.weight.device) * self.pairs // rows + draw.number) % self.pairs

    def factors(self, chosen: Tensor, draw: Draw) -> tuple[Tensor, Tensor]:
        return self.input_factors[chosen], self.output_factors[chosen]

    def biases(self, chosen: Tensor) -> Tensor | None:
        return torch.stack(list(self.bias))[chosen] if len(self.bias) else None


class LowRank(Drawing):
    """A layer of weights W_k = W + (α / r) B_k A_k (Hu et al. 2021), which starts as the replaced layer for every member.

    Parameters: `weight` and `bias`, frozen; `down`, A of shape (K, r, inputs), N(0, 1 / inputs); `up`, B of shape (K, outputs, r), 0.
    """

    def __init__(self, layer: Affine, members: int, rank: int, alpha: float, generator: torch.Generator) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias
        outputs, inputs = len(layer.weight), fan_in(layer.weight)
        self.scale, self.operation = alpha / rank, operation(layer)
        kept = min(rank, outputs, inputs)
        drawn = torch.randn(members, kept, inputs, generator=generator).div_(math.sqrt(inputs))
        self.down = nn.Parameter(layer.weight.new_empty(drawn.shape).copy_(drawn))
        self.up = nn.Parameter(layer.weight.new_zeros(members, outputs, kept))
        for parameter in layer.parameters():
            if (factor := getattr(parameter, "lr_factor", None)) is not None:
                self.down.lr_factor = self.up.lr_factor = factor  # type: ignore[attr-defined]
            parameter.requires_grad_(False)

    def adapters(self) -> list[nn.Parameter]:
        return [self.down, self.up]

    def forward(self, x: Tensor) -> Tensor:
        def adapted(rows: Tensor, draw: Draw) -> Tensor:
            return self.operation(rows, self.cached(draw, lambda: self._weight(draw)), self.bias)

        return self.each_draw(x, adapted)

    def _weight(self, draw: Draw) -> Tensor:
        member = draw.number % len(self.up)
        update = self.scale * (self.up[member] @ self.down[member])
        return self.weight + update.view(self.weight.shape)


class Members(Drawing):
    """K layers in the place of one: posterior sample n passes through the layer n mod K."""

    def __init__(self, layers: Iterable[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor) -> Tensor:
        """(R * B, D) of R posterior samples -> (R * B, O)."""
        return self.each_draw(x, lambda rows, draw: self.layers[draw.number % len(self.layers)](rows))

    def each(self, x: Tensor, count: int | None = None) -> Tensor:
        """Return what the first `count` layers, by default all, make of the same rows: (B, D) -> (K, B, O)."""
        return torch.stack([layer(x) for layer in list(self.layers)[:count]])
