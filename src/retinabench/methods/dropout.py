"""MC dropout, and its deterministic control: the same weights without dropout."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator
from torch import nn

from retinabench.data.loader import Batches
from retinabench.methods.base import ADAM, as_config, fidelity_entry, log_range
from retinabench.methods.map import PointPosterior
from retinabench.methods.posteriors import SampledPosterior
from retinabench.methods.settings import AnyMethod, MethodConfig, TrainingRun, WithMember, member_run, method_config
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import TrainedByObjective
from retinabench.models.stochastic.dropout import Dropout, add_dropout


class McDropout(TrainedByObjective):
    """MC dropout (Gal & Ghahramani 2016): dropout that stays on; every forward pass is one posterior sample.

    **Idea.** A network trained with dropout is taken as a posterior: dropout stays on at prediction, and every pass
    is a sample.

    **Equation.** h ← h ∘ m / (1 - rate), m ~ Bernoulli(1 - rate) for every activation of every image. Trained as
    MAP, cross-entropy and L2; p(y | x) is the mean over S passes. Batch norm predicts with its running statistics:
    only the dropout is random.

    **Settings.** `rate` 0.1, rounded to a multiple of 2^-16, `samples` 5. The places are the network's
    `dropout_sites` (ResNet-50: 37, behind every activation that no sum precedes and behind the norm of each
    projection, as published), or every activation of a network that names none.

    **Cost.** Sixteen random bits per activation, and a multiplication: a tenth to a fifth more than a pass of
    ResNet-18 on one core, more where the network is narrow. A prediction is S passes.

    **When it fails.** The noise does not shrink with data: its amount is a hyper-parameter, to be tuned on
    validation NLL. Each image has masks of its own, so a sample is no function: samples of different images are
    independent. Small networks and short trainings learn late with a high rate.

    **Source.** Gal & Ghahramani 2016; Filos et al. 2019.
    """

    class Config(MethodConfig):
        """rate: share of activations dropped at each site. samples: forward passes per prediction."""

        without_target = "no density of the weights is stated: noise on activations"
        loss_is_log_posterior = True
        title = "MC dropout"

        name: Literal["dropout"] = "dropout"
        rate: float = Field(0.1, ge=0, lt=1)
        samples: int = Field(5, ge=1)

    @classmethod
    def build(cls, model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> SampledPosterior:
        return SampledPosterior(add_dropout(model, as_config(run, McDropout.Config).rate), likelihood, per_image=True)

    FIDELITY = (
        fidelity_entry(
            "dropout",
            "MC dropout",
            {"samples": 100},
            ADAM,
            tuned={"optimizer.lr": ({1000: 0.018, "large": 0.00057}, 0.0068), "method.rate": (0.28, 0.0035)},
            searched={
                "method.rate": (log_range(0.02, 0.4), log_range(0.003, 0.2)),
                "optimizer.lr": (log_range(0.0003, 0.005), log_range(0.002, 0.02)),
            },
        ),
    )


class DropoutOff:
    """Deterministic baseline of 2019: a network trained with dropout, whose dropout is off when it predicts (Srivastava et al. 2014).

    **Idea.** The control of Filos et al. 2019: *the same* trained weights as MC dropout, which tells what sampling the masks
    adds, apart from what training with them does.

        p(y | x) = softmax f_θ(x) with every mask at its mean, 1, and θ of the run of `member`

    **Settings.** `member`: MC dropout, with its own settings. The run of the member is computed, or found done, and its weights
    are used: nothing is trained twice.

    **Cost.** One pass per prediction, S = 1.

    **When it fails.** As MAP: it has no epistemic uncertainty. `map` trains without dropout and is another network.

    **Source.** Filos et al. 2019, section 3.3; Srivastava et al. 2014, Dropout, JMLR 15.
    """

    class Config(WithMember):
        """member: MC dropout, whose weights are used."""

        without_target = "one network, trained with noise on activations"
        loss_is_log_posterior = True
        title = "Deterministic"

        name: Literal["dropout_off"] = "dropout_off"
        samples: Literal[1] = 1
        member: AnyMethod = Field(default_factory=lambda: method_config("dropout"))

        @field_validator("member")
        @classmethod
        def _has_dropout(cls, member: MethodConfig) -> MethodConfig:
            if not isinstance(member, McDropout.Config):
                raise ValueError(f"'{member.name}' has no dropout to switch off. Set member.name=dropout")
            return member

    trained_by = staticmethod(member_run)

    @staticmethod
    def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> PointPosterior:
        """Put dropout into the network, so that its parameters are named alike, and switch it off."""
        return PointPosterior(add_dropout(model, 0.0), likelihood)

    @staticmethod
    def fit(
        model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> PointPosterior:
        """Train MC dropout and return its network without dropout; where the runs are kept, `trained_by` saves this."""
        trained = McDropout.fit(model, batches, member_run(run), checkpoint, likelihood)
        for module in trained.model.modules():
            if isinstance(module, Dropout):
                module.steps = 0
        return PointPosterior(trained.model, likelihood)
