"""IVON and VOGN: independent Gaussians over all weights, trained by natural gradients.

q(θ) = N(m, 1 / (λ (h + δ))), with h an estimate of the diagonal of the mean loss's Hessian, λ = N / temperature, and λ δ
the precision of the Gaussian prior. Both methods move the mean by m ← m - rate · (ḡ + δ m) / (h + δ), ḡ the moving average
of the gradient; they differ in how they estimate h.

Two conventions of a cold posterior are in use. Here the precision is λ (h + δ) with λ = N / T: the power of the likelihood is λ / N = 1 / T, the
precision of the prior λ δ = 1 / (T s²). Likelihood and prior are cooled alike, as when U / T is sampled. In `gaussian_vi` and `mfvi` T
stands before the divergence: the likelihood alone has the power 1 / T. The winners of 2021 took λ by itself: their 2024 settings have
λ / N = 4, 2.9 and 11.7 with prior precisions λ δ of 40 (the task's: 20), 100 (100) and 30 (30). Such a run has `method.temperature` = N / λ
and `optimizer.l2` = λ δ / (2 λ).
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from pydantic import AliasChoices, Field
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.modules.batchnorm import _BatchNorm

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.methods.base import as_config, fidelity_entry, log_range
from retinabench.methods.map import PointPosterior
from retinabench.methods.posteriors import WeightPosterior
from retinabench.methods.settings import MethodConfig, Optimizer, TargetPosterior, TrainingRun
from retinabench.methods.training import distributed
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo, Objective, class_weights, cross_entropy
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import Uncompiled, select_last_epoch, train
from retinabench.methods.training.posterior import precision

GRADIENT_VALUES = 2**28  # of single gradients in memory together: 1 GiB of float32
FALLING_RATE = {"momentum": 0.9, "schedule": "cosine"}


class NaturalGradientConfig(MethodConfig):
    """samples: weight draws per prediction. std: of every weight under q at the start, which sets h0 = 1 / (λ std²) - δ.

    beta2: decay of h's moving average. temperature: of the whole posterior, λ = N / temperature.
    The rest is the optimiser's: δ = 2 `l2`, on every parameter; beta1 = `momentum`; the learning rate is `lr` over
    1 - `momentum`, so that at h = h0 a step is as long as that of SGD in the same run.
    """

    samples: int = Field(5, ge=1)
    std: float = Field(0.005, gt=0, validation_alias=AliasChoices("std", "deviation"))
    beta2: float = Field(0.9995, ge=0, lt=1)
    temperature: float = Field(1.0, gt=0)

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the target posterior; δ acts on every parameter, whatever `l2_on` is."""
        return TargetPosterior(self.temperature, self.temperature * optimizer.prior_variance(points), self.approximates)


class NaturalGradientOptimizer(Uncompiled):
    """The state (ḡ, h, number of steps) of every parameter, and its std under q.

    lr: before `lr_factor`, both of which the training loop multiplies. ess: λ. delta: δ. hessian: h at the start. beta1, beta2:
    decay of ḡ and of h. clip: largest |(ḡ + δ m) / (h + δ)|, 0 for no limit.
    """

    def __init__(self, parameters: list[nn.Parameter], **options: float) -> None:
        super().__init__(parameters, {"clip": 0.0, **options})
        for parameter in parameters:
            h = torch.full_like(parameter, options["hessian"])
            self.state[parameter] = {"momentum": torch.zeros_like(parameter), "hessian": h, "step": 0}

    def std(self, parameter: nn.Parameter) -> Tensor:
        """Return the standard deviation 1 / √(λ (h + δ)) of one parameter, in its shape."""
        group, h = self.param_groups[0], self.state[parameter]["hessian"]
        return torch.rsqrt(group["ess"] * (h + group["delta"]))

    def move(self, parameter: nn.Parameter, hessian: Tensor) -> None:
        """Take one step of a parameter with its gradient and its new h, in its shape."""
        group, state = self.param_groups[0], self.state[parameter]
        assert parameter.grad is not None
        state["step"] += 1
        state["momentum"] = group["beta1"] * state["momentum"] + (1 - group["beta1"]) * parameter.grad
        state["hessian"] = hessian
        rate = group["lr"] * (group["hessian"] + group["delta"])
        debias = 1 - group["beta1"] ** state["step"]
        parameter.copy_(next_mean(parameter, state["momentum"], hessian, rate, group["delta"], debias, group["clip"]))


def next_mean(
    mean: Tensor, momentum: Tensor, h: Tensor, rate: float, delta: float, debias: float, clip: float
) -> Tensor:
    """Return mean - rate · (ḡ / debias + δ m) / (h + δ), the fraction clipped to [-clip, clip] where clip > 0."""
    direction = (momentum / debias + delta * mean) / (h + delta)
    return mean - rate * (direction.clamp(-clip, clip) if clip else direction)


def initial_hessian(std: float, ess: float, delta: float) -> float:
    """Return h0 > 0 with 1 / √(λ (h0 + δ)) = std."""
    hessian = 1 / (ess * std**2) - delta
    if hessian <= 0:
        hint = "Lower method.std or optimizer.l2."
        raise InputError(f"method.std {std:g} is wider than the prior, {(ess * delta) ** -0.5:.3g}", hint=hint)
    return hessian


class NaturalGradient:
    """What both methods share: they train q and use the last epoch, since h converges last."""

    optimizer: ClassVar[type[NaturalGradientOptimizer]]

    @staticmethod
    def objective(model: nn.Module, optimizer: Any, run: TrainingRun, likelihood: Likelihood) -> Objective:
        """Return the loss at weights drawn from q; the noise of a step depends on seed and step alone."""
        raise NotImplementedError

    build = WeightPosterior.build

    @classmethod
    def fit(
        cls, model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> WeightPosterior:
        """Train q and return it. The checkpoint's validation is that of the mean."""
        optimizer = cls.make_optimizer(model, run, len(batches.train))
        train(
            PointPosterior(model, likelihood), batches, select_last_epoch(run), checkpoint,
            objective=cls.objective(model, optimizer, run, likelihood), optimizer=optimizer,
        )  # fmt: skip
        posterior = cls.build(model, run, likelihood)
        for name, p in model.named_parameters():
            if p.requires_grad:
                posterior.stds[name] = optimizer.std(p).detach()
        return posterior

    @classmethod
    def make_optimizer(cls, model: nn.Module, run: TrainingRun, points: int) -> NaturalGradientOptimizer:
        """Return the optimiser of a run on N = `points` training points; `InputError` where q starts wider than the prior."""
        options: NaturalGradientConfig = as_config(run, NaturalGradientConfig)
        settings = run.optimizer
        ess, delta = points / options.temperature, 2 * settings.l2
        return cls.optimizer(
            [p for p in model.parameters() if p.requires_grad], lr=settings.lr,
            lr_factor=1 / (1 - settings.momentum), ess=ess, delta=delta,
            hessian=initial_hessian(options.std, ess, delta), beta1=settings.momentum, beta2=options.beta2,
            clip=getattr(options, "clip", 0.0),
        )  # fmt: skip


def next_hessian(h: Tensor, estimate: Tensor, beta2: float, delta: float) -> Tensor:
    """Return β₂ h + (1 - β₂) f + ½ (1 - β₂)² (h - f)² / (h + δ); the last term keeps h + δ positive."""
    rest = 1 - beta2
    return beta2 * h + rest * estimate + 0.5 * rest**2 * (h - estimate).square() / (h + delta)


class IvonOptimizer(NaturalGradientOptimizer):
    """IVON's step: `perturbed` returns the weights at which the loss is taken, `step` moves m and h.

    The gradient of a loss averaged over several perturbed weights is handled as well: each draw is m + t ⊙ noise at
    t = 1, and the gradient with respect to t is Σ noise ⊙ g, the sum that Price's theorem asks for. Several processes
    draw the same noise, so that their sums add up to that of the whole batch.
    """

    def __init__(self, parameters: list[nn.Parameter], **options: float) -> None:
        super().__init__(parameters, **options)
        self._factors: dict[nn.Parameter, Tensor] = {}

    def perturbed(self, named: dict[str, nn.Parameter], generator: torch.Generator) -> dict[str, Tensor]:
        """Draw weights of q by name; the loss's gradient through them reaches the mean."""
        return {
            name: p + self._factor(p) * (torch.randn(p.shape, generator=generator, device=p.device) * self.std(p))
            for name, p in named.items()
        }

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self._factors.clear()

    def _factor(self, parameter: nn.Parameter) -> Tensor:
        return self._factors.setdefault(parameter, torch.ones_like(parameter, requires_grad=True))

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # the loss is taken outside
        group = self.param_groups[0]
        if distributed.current().count > 1:  # of a last small batch this process may have had no image
            distributed.sum_gradients([self._factor(p) for p in group["params"]])
        for p in group["params"]:
            factor = self._factors.pop(p, None)
            if p.grad is not None and factor is not None and factor.grad is not None:
                h = self.state[p]["hessian"]
                estimate = group["ess"] * (h + group["delta"]) * factor.grad
                self.move(p, next_hessian(h, estimate, group["beta2"], group["delta"]))


class Ivon(NaturalGradient):
    """IVON: a Gaussian over all weights, learnt by natural gradients (Shen et al. 2024; Lin, Schmidt & Khan 2020).

    **Idea.** Variational inference with a Gaussian over all weights at the cost of Adam. Each step draws the weights,
    takes one gradient there, and estimates the curvature from the same gradient (Price's theorem).

        q(θ) = N(m, 1 / (λ (h + δ))),   λ = N / temperature,   prior precision λ δ,   δ = 2 l2
        θ = m + ε / √(λ (h + δ)),  g = ∇ℓ(θ),  f = λ (h + δ) (θ - m) g
        ḡ ← β₁ ḡ + (1 - β₁) g
        h ← β₂ h + (1 - β₂) f + ½ (1 - β₂)² (h - f)² / (h + δ)
        m ← m - α (h₀ + δ) (ḡ / (1 - β₁ᵗ) + δ m) / (h + δ)

    **Settings.** `std` of a weight at the start, which sets h₀; `beta2`; `temperature` below 1 for a cold posterior
    (the authors' settings for the 2021 competition have λ = 3 N to 12 N); `clip`; `train_samples`, `samples`. β₁ is
    `optimizer.momentum`, and α = `lr` / (1 - β₁), so that a step is as long as SGD's in the same run.

    Which posterior that is, in numbers: `run.target_posterior(points)`, and the table in `docs/beliefs.md`. A mixture
    of K Gaussians, with which IVON won in 2021, is `ensemble` with K members `ivon`.

    **Cost.** A step: one pass and one random number per weight. Three numbers per weight. A prediction: S passes, the
    draws serving all its batches.

    **When it fails.** h needs 1 / (1 - β₂) steps to converge: in a short training q stays as wide as `std` made it. Too wide a start
    (0.01 and more with a thousand images) drowns the gradient. At temperature 1 with few images every weight has the right width by
    itself and the network as a whole underfits. The last epoch is used; `metrics.jsonl` shows the scores of the mean.

    **Source.** Shen et al. 2024, Variational Learning is Effective for Large Deep Networks; Lin, Schmidt & Khan
    2020. Written from the papers.
    """

    class Config(NaturalGradientConfig):
        """train_samples: weight draws per step. clip: largest |g / (h + δ)| taken in a step, 0 for none.

        The paper sets h0 instead of `std`, and its `beta2` of 0.99999 is for 100,000 steps and more. The other options are those
        of `NaturalGradientConfig`.
        """

        title = "IVON"
        approximates = "the best independent Gaussian"

        name: Literal["ivon"] = "ivon"
        train_samples: int = Field(1, ge=1)
        clip: float = Field(0.0, ge=0)

    optimizer = IvonOptimizer

    @staticmethod
    def objective(model: nn.Module, optimizer: IvonOptimizer, run: TrainingRun, likelihood: Likelihood) -> Objective:
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}

        def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
            generator = torch_generator(images.device, run.seed, "ivon", batch.step)
            losses = []
            for _ in range(as_config(run, Ivon.Config).train_samples):
                with precision(run, images.device):
                    logits = functional_call(model, optimizer.perturbed(named, generator), (images,))
                losses.append(cross_entropy(logits, labels, likelihood, batch))
            return {"cross_entropy": torch.stack(losses).mean()}

        return objective

    FIDELITY = (
        fidelity_entry(
            "ivon",
            "IVON",
            {"samples": 100, "train_samples": 1},
            FALLING_RATE,
            tuned={
                "optimizer.lr": ({100: 0.03, 1000: 0.003, "large": 0.03}, 0.0012),
                "method.std": (0.011, 0.021),
                "method.beta2": (0.9995, 0.998),
            },
            searched={
                "method.std": log_range(0.01, 0.1),
                "method.beta2": {"choices": [0.998, 0.9995]},
                "optimizer.lr": (log_range(0.002, 0.1), log_range(0.0005, 0.02)),
            },
        ),
        fidelity_entry(
            "ivon-mixture",
            "mixture of IVON",
            {
                "name": "ensemble",
                "members": 16,
                "member": {"name": "ivon", "samples": 64, "train_samples": 1, "beta2": 0.9995},
            },
            FALLING_RATE,
            tuned={
                "optimizer.lr": ({100: 0.38, 1000: 0.12, "large": 0.012}, 0.012),
                "method.members": (None, 6),
                "method.member.std": (0.017, 0.012),
            },
            searched={
                "method.members": {"choices": [6, 10, 16]},
                "method.member.std": log_range(0.01, 0.1),
                "optimizer.lr": (log_range(0.002, 0.1), log_range(0.0005, 0.02)),
            },
        ),
    )


class VognOptimizer(NaturalGradientOptimizer):
    """VOGN's step; before it, `add` takes the squared gradients of every part of the batch."""

    def __init__(self, parameters: list[nn.Parameter], **options: float) -> None:
        super().__init__(parameters, **options)
        self._squares: dict[nn.Parameter, Tensor] = {}

    def add(self, parameter: nn.Parameter, squares: Tensor) -> None:
        """Add Σ c_n g_n² of a part of the batch, over the size of the whole batch."""
        self._squares[parameter] = self._squares.get(parameter, 0) + squares

    def zero_grad(self, set_to_none: bool = True) -> None:
        super().zero_grad(set_to_none)
        self._squares.clear()

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # the loss is taken outside
        beta2 = self.param_groups[0]["beta2"]
        for p in self.param_groups[0]["params"]:
            if p.grad is not None:
                # Of a last small batch this process may have had no image.
                squares = distributed.total(self._squares.pop(p, torch.zeros_like(p)))
                self.move(p, beta2 * self.state[p]["hessian"] + (1 - beta2) * squares)


class Vogn(NaturalGradient):
    """VOGN: variational online Gauss-Newton (Khan et al. 2018; Osawa et al. 2019), the predecessor of IVON.

    **Idea.** The predecessor of IVON: a Gaussian over all weights, whose width follows the squared gradients of single
    images. Each step draws the weights, takes the gradient of every image there, and averages their squares.

        q(θ) = N(m, 1 / (λ (h + δ))),   λ = N / temperature,   prior precision λ δ,   δ = 2 l2
        θ = m + ε / √(λ (h + δ)),  g_n = ∇ℓ_n(θ),  g = mean c_n g_n
        ḡ ← β₁ ḡ + (1 - β₁) g
        h ← β₂ h + (1 - β₂) mean c_n g_n²
        m ← m - α (h₀ + δ) (ḡ / (1 - β₁ᵗ) + δ m) / (h + δ)

    c_n is 1, or the weight of the image's class where the likelihood is reweighted (`optimizer.reweight`): as in
    Laplace's curvature, it counts once.

    **Settings.** `std` of a weight at the start, which sets h₀; `beta2`; `temperature` below 1 for a cold posterior;
    `samples`. β₁ is `optimizer.momentum`, and α = `lr` / (1 - β₁), so that a step is as long as SGD's in the same run.

    **Cost.** The gradient of every image, in float32, at most 1 GiB of them at once. Their mean is the gradient, so
    that one pass gives both; with batch norm, whose statistics tie the images of a batch together, the gradient has a
    second pass, and the squares are taken with the running statistics. Three numbers per weight. A prediction: S
    passes.

    **When it fails.** The mean of g_n² is the Hessian only where the labels are drawn from the model: images that are fitted too
    well make q too wide, outliers too narrow (`tests/methods/test_known_posteriors.py` has the fixed point). h needs 1 / (1 - β₂)
    steps to converge. With batch norm the first fifty steps take their squares with statistics that have not converged yet.
    The last epoch is used.

    **Source.** Khan et al. 2018, Fast and Scalable Bayesian Deep Learning by Weight-Perturbation in Adam; Osawa et al.
    2019, Practical Deep Learning with Bayesian Principles. Written from the papers.
    """

    class Config(NaturalGradientConfig):
        """The options of `NaturalGradientConfig`, and no other."""

        title = "VOGN"
        approximates = "an independent Gaussian, as wide as squared gradients say"

        name: Literal["vogn"] = "vogn"

    optimizer = VognOptimizer

    @staticmethod
    def objective(model: nn.Module, optimizer: VognOptimizer, run: TrainingRun, likelihood: Likelihood) -> Objective:
        """Return the cross-entropy at weights drawn from q, and pass the squares of single gradients to the optimiser (see the card)."""
        named = {name: p for name, p in model.named_parameters() if p.requires_grad}
        tied = any(isinstance(module, _BatchNorm) for module in model.modules())

        def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
            generator = torch_generator(images.device, run.seed, "vogn", batch.step)
            weights = {
                name: p + optimizer.std(p) * torch.randn(p.shape, generator=generator, device=p.device)
                for name, p in named.items()
            }
            if tied:
                with precision(run, images.device):
                    outputs = functional_call(model, weights, (images,))
                loss = cross_entropy(outputs, labels, likelihood, batch)
            fixed = {name: w.detach() for name, w in weights.items()}
            shares = torch.ones(len(labels), device=labels.device)
            if run.optimizer.reweight != "none":
                shares = class_weights(labels, batch.positive_share)
            squares, gradients, total = single_gradients(model, fixed, images, labels, shares, likelihood)
            for name, p in named.items():
                optimizer.add(p, squares[name] / batch.size)
            if not tied:
                # A value whose derivative by the mean is known already.
                slopes = [((p - p.detach()) * gradients[name]).sum() for name, p in named.items()]
                loss = (total + torch.stack(slopes).sum()) / len(labels)
            return {"cross_entropy": loss}

        return objective

    FIDELITY = (
        fidelity_entry(
            "vogn",
            "VOGN",
            {"samples": 100, "beta2": 0.9995},
            FALLING_RATE,
            tuned={"optimizer.lr": ({100: 0.016, 1000: 0.0016, "large": 0.016}, 0.00079), "method.std": (0.011, 0.025)},
            searched={
                "method.std": log_range(0.01, 0.1),
                "optimizer.lr": (log_range(0.002, 0.1), log_range(0.0005, 0.02)),
            },
        ),
    )


def single_gradients(
    model: nn.Module, weights: dict[str, Tensor], images: Tensor, labels: Tensor, shares: Tensor, likelihood: Likelihood
) -> tuple[dict[str, Tensor], dict[str, Tensor], Tensor]:
    """Return Σ_n c_n g_n² and Σ_n c_n g_n by name, and Σ_n c_n ℓ_n; ℓ_n = -log p(y_n | x_n), g_n = ∂ℓ_n / ∂θ.

    Taken in float32, by the network in the mode in which it predicts.
    Shapes: `images` (B, ...), `labels` (B,), `shares` (B,).
    """

    def loss(weights: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
        outputs = functional_call(model, weights, (image[None],))
        return likelihood.negative_log_likelihood(outputs, label[None]).squeeze()

    squares = {name: torch.zeros_like(w) for name, w in weights.items()}
    gradients = {name: torch.zeros_like(w) for name, w in weights.items()}
    total = torch.zeros((), device=images.device)
    single = vmap(grad_and_value(loss), in_dims=(None, 0, 0))
    training = model.training
    model.eval()
    together = max(1, GRADIENT_VALUES // sum(w.numel() for w in weights.values()))
    for start in range(0, len(images), together):
        some = slice(start, start + together)
        found, losses = single(weights, images[some], labels[some])
        for name, g in found.items():
            weighted = torch.einsum("n,n...->n...", shares[some], g)
            gradients[name] += weighted.sum(dim=0)
            squares[name] += (weighted * g).sum(dim=0)
        total = total + shares[some] @ losses
    model.train(training)
    return squares, gradients, total
