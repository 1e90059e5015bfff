"""Methods that combine the predictions of other runs: ensemble and temperature scaling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from retinabench.core.errors import InputError
from retinabench.methods.base import ADAM, as_config, fidelity_entry, log_range
from retinabench.methods.settings import Optimizer, TargetPosterior, TrainingRun, WithMember, member_run
from retinabench.metrics.classification import nll
from retinabench.predictions.table import Predictions

RANGE = (0.05, 20.0)  # of temperatures
SMALLEST = 2.0**-53  # a probability of 1 stands for one that float64 cannot tell from it


class Ensemble:
    """Ensemble: K members of any method, trained apart; their samples are pooled (Lakshminarayanan et al. 2017).

    **Idea.** K members, trained apart from other initial weights and another order of images; their samples are pooled.

        p(y | x) = 1/K Σ_k 1/S Σ_s p_{k,s}(y | x)

    The members may be of any method: MAP gives the deep ensemble, SWAG gives MultiSWAG, IVON a mixture of Gaussians,
    `temperature` an ensemble of calibrated members.

        retinabench train --config demo/map method.name=ensemble method.members=3 method.member.name=swag

    **Settings.** `members` (K), `member` (a method with its own settings). Seeds are K·seed … K·seed + K - 1: two
    ensembles of different seeds share no member, so that their standard error is right.

    **Cost.** K trainings, K times a member's prediction. Members are runs of their own: shared with single runs of the
    same seed, resumed alone, computed anywhere.

    **When it fails.** When the members agree for a reason that all of them share: the same data, the same shortcut. K =
    3 shows little disagreement.

    **Source.** Lakshminarayanan et al. 2017; Wilson & Izmailov 2020 (MultiSWAG); Shen et al. 2024 (mixtures of IVON).
    """

    class Config(WithMember):
        """members: K. member: the method of every member. Its samples are the members' own, pooled."""

        pools_seeds = True

        name: Literal["ensemble"] = "ensemble"
        members: int = Field(3, ge=2)

        def describe(self, *, titles: bool = True) -> str:
            """Return the method in a few words, its members included."""
            return f"ensemble of {self.members} {self.member.describe(titles=titles)}"

        def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
            """Return the target posterior of the members, of which this is a mixture."""
            inner = self.member.target_posterior(optimizer, points)
            return inner._replace(how=f"mixture: {inner.how}")

    @staticmethod
    def member_runs(run: TrainingRun) -> list[TrainingRun]:
        """Return the K runs of an ensemble: seeds K*seed … K*seed + K - 1, so that ensembles share no member."""
        options: Ensemble.Config = as_config(run, Ensemble.Config)
        if isinstance(options.member, Ensemble.Config):
            raise InputError("an ensemble of ensembles is one larger ensemble", hint="Raise method.members.")
        member, first = member_run(run), options.members * run.seed
        return [member.model_copy(update={"seed": first + k}) for k in range(options.members)]

    @staticmethod
    def combine(members: Sequence[Predictions]) -> Predictions:
        """Pool the predictions of K members. Shapes: `members` (N, S)."""
        first = members[0]
        for other in members[1:]:
            same = np.array_equal(other.image_id, first.image_id) and np.array_equal(other.label, first.label)
            if not same or other.samples != first.samples:
                problem = "holds other images, labels or numbers of samples than the first member"
                raise InputError(problem, file=other.source)
        own = [m.uncertainty for m in members if m.uncertainty is not None]
        return replace(
            first,
            probs=np.concatenate([m.probs for m in members], axis=1),
            uncertainty=np.mean(own, axis=0) if len(own) == len(members) else None,
            metadata={**first.metadata, "members": sum(m.metadata["members"] for m in members)},
            source=None,
        )

    FIDELITY = (
        fidelity_entry(
            "ensemble",
            "deep ensemble",
            {"members": 10, "member": "map"},
            ADAM,
            tuned={"optimizer.lr": ({100: 0.22, 1000: 0.0068, "large": 0.0068}, 0.0085), "method.members": (None, 5)},
            searched={
                "method.members": {"choices": [5, 10, 20]},
                "optimizer.lr": (log_range(0.0003, 0.01), log_range(0.002, 0.03)),
            },
        ),
    )


class Temperature:
    """Temperature scaling (Guo et al. 2017) of any method: its logits divided by T, chosen on the validation split.

    **Idea.** A network's logits are too large after long training. Divide them by one number, chosen where it can
    be judged: on the in-domain validation images.

        p_s(y = 1 | x) = sigmoid(logit_s(x) / T),   T = argmin NLL(validation; mean_s p_s)

    The member is any other method, an ensemble included; nothing is trained, and the member's run is shared.
    `temperature` of an `ensemble` has one T for the pool, an `ensemble` of `temperature` one T for each member: the
    second is the usual choice where members differ in how overconfident they are, the first where their average is
    what must be calibrated.

    **Settings.** `member`. T is found by Brent's method on log T in [0.05, 20].

    **Cost.** None beside the member's.

    **When it fails.** T is that of the validation images. Under shift it stays what it was, and a T below 1 there makes bad
    predictions worse. The order of the images within one sample does not change: AUROC and accuracy of MAP stay as they were. A
    class-reweighted training shifts the logits by a constant, which no T undoes (`rb.score` offers prior correction).

    **Source.** Guo et al. 2017, On Calibration of Modern Neural Networks.
    """

    class Config(WithMember):
        """member: the method whose logits are scaled; its samples are kept."""

        without_target = "logits are divided after training"
        likelihoods = ("bernoulli",)
        needs_validation_labels = True

        name: Literal["temperature"] = "temperature"

        def describe(self, *, titles: bool = True) -> str:
            """Return the method in a few words, its member included."""
            return f"tempered {self.member.describe(titles=titles)}"

        def supported(self) -> tuple[str, ...]:
            return self.likelihoods

    @staticmethod
    def member_runs(run: TrainingRun) -> list[TrainingRun]:
        if isinstance(as_config(run, Temperature.Config).member, Temperature.Config):
            raise InputError("a temperature of a temperature is one temperature", hint="Name another member.")
        return [member_run(run)]

    @staticmethod
    def combine(members: Sequence[Predictions]) -> Predictions:
        (member,) = members
        held = member.select(domain="in_domain", split="validation")
        if held is None or len(set(held.label)) < 2:
            hint = "Hold some out, or use the member itself."
            raise InputError("a temperature needs validation images of both classes", hint=hint)
        return replace(member, probs=scaled(member.probs, best_temperature(held.label, held.probs)), source=None)


def scaled(probs: NDArray[np.float64], temperature: float) -> NDArray[np.float64]:
    """sigmoid(logit(p) / T) of probabilities of any shape."""
    return np.asarray(expit(logit(np.clip(probs, SMALLEST, 1 - SMALLEST)) / temperature))


def best_temperature(label: NDArray[np.int8], probs: NDArray[np.float64]) -> float:
    """Return the T in `RANGE` that minimises the NLL of the predictive mean, 1 where nothing is better: label (N,), probs (N, S)."""

    def loss(log_temperature: float) -> float:
        return float(nll(label, scaled(probs, math.exp(log_temperature)).mean(axis=1)))

    low, high = (math.log(end) for end in RANGE)
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6})
    return math.exp(found.x) if found.fun < loss(0.0) else 1.0
