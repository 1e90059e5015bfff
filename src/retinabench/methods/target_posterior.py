"""Which posterior a run stands for: the temperature and the prior that its settings imply.

    π(w) ∝ p(D | w)^(1/T) N(w; 0, s² I)

The exam asks for T = 1 and the target's s². A method may reach it exactly, in a limit, or only its own best fit; that
is its `how`. Where no T and s² say what a run tends to, they are None, and `how` says why.
"""

from __future__ import annotations

from typing import NamedTuple

from retinabench.methods.settings import MethodConfig, TrainingRun


class Implied(NamedTuple):
    """temperature: T of the likelihood alone. prior_variance: s²; infinite without an L2 term."""

    temperature: float | None
    prior_variance: float | None
    how: str


ANCHORED = {
    "prior": "minimisers around anchors of the prior: narrower, of a linear-Gaussian model too",
    "matched": "minimisers of randomised losses: draws, of a linear-Gaussian model",
}
# The same, with noise that samples exp(-U / T): the prior is tempered like the likelihood.
BY_NOISE = {
    "sgld": "draws, up to the error of the step",
    "sghmc": "draws, up to the error of the step",
    "csghmc": "draws, up to the error of the step",
}
# Gaussians of precision λ (h + δ), λ = N / T, λ δ being the prior's: tempered alike.
BY_NATURAL_GRADIENTS = {
    "ivon": "the best independent Gaussian",
    "vogn": "an independent Gaussian, as wide as squared gradients say",
}
OTHERS = {
    "swag": "around a mode of the loss, as wide as the noise of SGD",
    "dropout": "no density of the weights is stated: noise on activations",
    "radial": "the noise's law is not the one whose divergence from the prior is taken",
    "rank1": "random factors of two vectors per layer; the weights themselves are points",
    "fsvi": "a prior over functions; the weights below the last layer are points",
    "temperature": "logits are divided after training",
}


def implied(run: TrainingRun, points: int) -> Implied:
    """Return what a run on N = `points` training points targets."""
    method, settings = run.method, run.optimizer
    if settings.reweight != "none":
        return Implied(None, None, "a likelihood reweighted by class (optimizer.reweight)")
    if settings.augment != "none":
        return Implied(None, None, "a likelihood of pictures that were never taken (optimizer.augment)")
    member = getattr(method, "member", None)
    if method.name == "ensemble" and isinstance(member, MethodConfig):
        inner = implied(run.model_copy(update={"method": member}), points)
        return inner._replace(how=f"mixture: {inner.how}")
    variance = 1 / (2 * points * settings.l2) if settings.l2 else float("inf")
    temperature = float(getattr(method, "temperature", 1.0))
    if method.name in BY_NATURAL_GRADIENTS:
        return Implied(temperature, temperature * variance, BY_NATURAL_GRADIENTS[method.name])
    if method.name == "gaussian_vi":
        return Implied(temperature, variance, "the best independent Gaussian")
    if method.name in OTHERS:
        return Implied(None, None, OTHERS[method.name])
    if settings.l2_on != "everything":
        return Implied(None, None, f"a prior on {settings.l2_on.replace('_', ' ')} only (optimizer.l2_on)")
    if method.name == "map":
        return Implied(1.0, variance, "its mode")
    if method.name in ("anchored", "sequential_anchored"):
        return Implied(1.0, variance, ANCHORED[getattr(method, "anchors", "prior")])
    if method.name == "multiswag":
        if getattr(method, "path", "sgd") == "sgd":
            return Implied(None, None, OTHERS["swag"])
        return Implied(1.0, variance, "Gaussians fitted to draws of Langevin dynamics")
    if method.name in BY_NOISE:
        return Implied(temperature, temperature * variance, BY_NOISE[method.name])
    if method.name == "laplace":
        return _laplace(method, variance)
    if method.name == "mfvi":
        return _mfvi(method, variance)
    return Implied(None, None, "not stated")


def _laplace(method: MethodConfig, variance: float) -> Implied:
    """The mode has the prior of the L2 term, the width its own."""
    precision = getattr(method, "prior_precision", None)
    if not isinstance(precision, float):
        return Implied(None, None, "the prior of its width is chosen after the training")
    if abs(precision * variance - 1) > 1e-6:
        return Implied(
            None, None, f"two priors: variance {variance:.3g} at the mode, {1 / precision:.3g} around it"
        )
    random = "the last layer's weights" if getattr(method, "weights", "") == "last_layer" else "all weights"
    return Implied(1.0, variance, f"a Gaussian at the mode, {random}, by the curvature")


def _mfvi(method: MethodConfig, variance: float) -> Implied:
    """The weights' prior is in the divergence, that of biases and norms in the L2 term."""
    options = method.model_dump()
    deviation, temperature = options["prior_stddev"], options["kl_temperature"]
    if options["prior_mean"] != "zero" or deviation is None:
        return Implied(None, None, "a prior that follows the means, or the width of a layer")
    if options["annealing"] == "linear_released":
        return Implied(None, None, "the weight of the divergence depends on the number of epochs")
    if abs(deviation**2 / variance - 1) > 1e-6:
        return Implied(
            None, None, f"two priors: variance {deviation**2:.3g} of weights, {variance:.3g} of biases"
        )
    return Implied(
        temperature, variance, "the best independent Gaussian of the weights, biases and norms as points"
    )
