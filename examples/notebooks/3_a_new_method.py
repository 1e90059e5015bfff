# %% [markdown]
# # A new Bayesian method
#
# A method of inference is a module with three names: `Config`, `build` and `fit`. Whatever has them can be checked, trained,
# resumed after a kill, put into ensembles, and scored beside all others. This page writes DropConnect (Wan et al. 2013; as a
# posterior: Mobiny et al. 2021): dropout on *weights* instead of activations, so that every posterior sample is one function of
# all images. Then it asks the question that a paper should answer: is it better than MAP and MC dropout at equal cost?

# %%
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import matplotlib.pyplot as plt
import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.func import functional_call

from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import Batches
from retinabench.experiments.conformance import check_method
from retinabench.fidelity.leaderboard.files import make_evaluator
from retinabench.fidelity.submissions.runner import run_entry
from retinabench.fidelity.submissions.submission import read_submission
from retinabench.fidelity.targets.target import TARGETS
from retinabench.methods.posteriors import DrawnWeights
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import MethodConfig, TrainingRun
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.gradients import BatchInfo
from retinabench.methods.training.likelihood import Likelihood
from retinabench.methods.training.loop import train

# %% [markdown]
# ## The method
#
# `DrawnWeights` predicts with the weights that `draw` yields. The loss draws one mask per training step, from a stream that has
# the step in its name: a continued training then draws what an undisturbed one would have drawn.


# %%
__doc__ = (
    """DropConnect: dropout on weights, which stays on; every mask is one posterior sample (Mobiny et al. 2021)."""
)


class Config(MethodConfig):
    """Settings of `dropconnect`. rate: share of the weights that is dropped. samples: posterior samples."""

    title = "DropConnect"

    name: Literal["dropconnect"] = "dropconnect"
    rate: float = Field(0.1, ge=0, lt=1)
    samples: int = Field(20, ge=1)


def masked(model: nn.Module, rate: float, generator: torch.Generator) -> dict[str, Tensor]:
    """All weights of the network, those of matrices and filters dropped with probability `rate`; biases stay."""
    keep = 1 - rate
    return {
        name: p * (torch.rand(p.shape, generator=generator, device=p.device) < keep) / keep if p.ndim > 1 else p
        for name, p in model.named_parameters()
    }


@dataclass
class DropConnectPosterior(DrawnWeights):
    """The network with masks on its weights."""

    rate: float

    @property
    def beside(self) -> dict[str, Tensor]:
        """No tensors beside the network."""
        return {}

    def draw(self, samples: int, generator: torch.Generator) -> Iterator[dict[str, Tensor]]:
        """Yield S draws of all weights."""
        for _ in range(samples):
            yield masked(self.model, self.rate, generator)


def build(model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> DropConnectPosterior:
    """Return the posterior around an untrained network."""
    return DropConnectPosterior(model, likelihood, run.method.rate)  # type: ignore[attr-defined]


def fit(
    model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
) -> DropConnectPosterior:
    """Train the network under its masks."""
    posterior = build(model, run, likelihood)

    def objective(images: Tensor, labels: Tensor, batch: BatchInfo) -> dict[str, Tensor]:
        generator = torch_generator(batches.device, run.seed, "dropconnect", batch.step)
        outputs = functional_call(model, masked(model, posterior.rate, generator), (images,))
        return {"nll": likelihood.negative_log_likelihood(outputs, labels)}

    return train(posterior, batches, run, checkpoint, objective=objective)


METHODS.add("dropconnect", sys.modules[__name__])

# %% [markdown]
# In a package of your own this module is registered by an entry point (`retinabench.methods`), and in this repository by one
# line; `retinabench check my_method.py` checks a file.
#
# ## Does it keep the contract?
#
# The checks train it on easy images within seconds: does it learn, is it the same with the same seed, is a saved posterior
# restored, does a killed training end with the same weights? (`retinabench check` runs a dozen; these are five of them.)

# %%
CHECKS = ("states_its_settings", "learns", "is_reproducible", "continues_after_a_stop", "restores_its_posterior")
with tempfile.TemporaryDirectory() as folder:
    checks = list(check_method("dropconnect", Path(folder), only=CHECKS))
for one in checks:
    print(f"{'failed ' + one.problem if one.problem else 'ok':6}  {one.check}  ({one.seconds:.1f} s)")
assert not any(one.problem for one in checks)

# %% [markdown]
# ## Is it any good?
#
# The fidelity benchmark states a posterior, and every method has the same budget of gradient evaluations per training image. Here
# it is 40 instead of 1,000, on a hundred drawn retinas, for a lesson of seconds. Noise on weights or activations states no density of the
# weights, so that two of the three belong to the open track: they are compared, but do not aim at the stated posterior.

# %%
target = TARGETS.find("fundus-small")
evaluator = make_evaluator(target, None, None, bootstrap=300)
settings = ["optimizer.name=adam", "optimizer.lr=0.002", "optimizer.epochs=40"]
names = {"map": "MAP", "dropout": "MC dropout", "dropconnect": "DropConnect"}
found = {
    title: evaluator.grade(
        read_submission(
            run_entry(name, target, budget=40, overrides=settings, out=Path("runs"), track="open"),
            target,
            len(evaluator.data.test),
        )
    )["all"]
    for name, title in names.items()
}

shown = {"total_variation": "distance to the true posterior ↓", "nll": "NLL, nats ↓", "accuracy": "accuracy ↑"}
figure, panels = plt.subplots(1, 3, figsize=(8, 2.2), sharey=True, layout="constrained")
for panel, (measure, label) in zip(panels, shown.items(), strict=True):
    for place, title in enumerate(found):
        one = found[title][measure]
        panel.plot(one.interval(), [place, place], color="C0")
        panel.plot(one.value, place, "o", color="C0")
    panel.set(xlabel=label, ylim=(2.5, -0.5))
    panel.set_yticks(range(3), list(found))
plt.show()

# %% [markdown]
# The intervals overlap, but they are of the same 200 images: what counts is the difference, image by image. The replicates of all
# methods resample the same images, so that they may be subtracted.

# %%
for measure in shown:
    for other in ("MAP", "MC dropout"):
        ours, theirs = found["DropConnect"][measure], found[other][measure]
        low, high = np.quantile(ours.draws - theirs.draws, [0.025, 0.975])
        verdict = "not told apart" if low <= 0 <= high else "a difference"
        print(
            f"{measure:16} DropConnect - {other:10} {ours.value - theirs.value:+.3f} ({low:+.3f} to {high:+.3f}): {verdict}"
        )

# %% [markdown]
# One seed, one target, untuned settings: enough to see that the method works, too little to claim anything. The next steps are
# `retinabench fidelity tune` for all methods alike, `retinabench fidelity run` with the full budget and several seeds, and
# `retinabench benchmark` for real images. [Contributing](https://github.com/retinabench/retinabench/blob/main/CONTRIBUTING.md) has the recipe for a method
# that stays.
