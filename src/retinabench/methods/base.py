"""The contract of a method, in one screenful.

A method is a module, or a class where several methods share a module, whose docstring is its card, with three names

    Config                                                           a frozen `MethodConfig`: hyper-parameters and what
                                                                     the method says of itself (title, cost, target)
    build(model, run, likelihood) -> Posterior                       the posterior of an untrained network
    fit(model, batches, run, checkpoint, likelihood) -> Posterior    build and train, or continue from the checkpoint

and one line in `METHODS` or an entry point `retinabench.methods`. `build` and `fit` of a class need no instance. A finished posterior is restored by `build` and
`restore` (`training/posterior.py`). A method that combines the runs of others (`ensemble`, `temperature`) has instead of `build` and `fit`

    member_runs(run) -> list[TrainingRun]                            the runs to compute, or to find done
    combine(predictions) -> Predictions                              one file of theirs, which come in the same order

A method that predicts with the weights of another run (`dropout_off`, `tta`) has beside `build` and `fit`

    trained_by(run) -> TrainingRun                                   the run to compute, or to find done; `restore` takes its state

A posterior may have a method `uncertainty(inputs) -> (B,)` of its own (`UncertaintyPosterior`), which becomes the column
`uncertainty` of the predictions file. A method may have, for the fidelity benchmark,

    FIDELITY: tuple[FidelitySettings, ...]                           the entries under which it takes part

Letters: S posterior samples, B batch, C classes (2: not referable, referable).
Randomness: every draw comes from a stream of `core/random_streams.py`, named after its purpose and derived from `run.seed`.

`train` takes ``objective=``: ``objective(inputs, labels, batch)`` returns the named terms of the loss of a batch, or of a part of it, which a
`BatchInfo` describes. A term of shape (B,) is the loss of every image: the loop weighs it by class as `optimizer.reweight` asks, and averages it in
float32. A scalar is a penalty that does not depend on the images. Of a method with two passes::

    def objective(inputs, labels, batch):
        with precision(run, batches.device):  # bfloat16 where the run asks for it
            one, two = model(inputs), model(inputs)
        return {
            "likelihood": (likelihood.negative_log_likelihood(one.float(), labels) + likelihood.negative_log_likelihood(two.float(), labels)) / 2,
            "consistency": (one - two).float().square().mean(dim=1),
        }

A parameter with ``no_decay = True`` is never in the L2 term; a group of an own optimiser with ``lr_factor`` has its own
learning rate; ``extra`` is saved with the network. A method overrides `Config.target_posterior` where it approximates a stated posterior, and
`Config.gradients_per_example` where it takes other than epochs times ``train_samples`` gradient evaluations per example.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from pydantic import Field

from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen

if TYPE_CHECKING:
    from torch import nn

    from retinabench.data.loader import Batches
    from retinabench.methods.settings import MethodConfig, TrainingRun
    from retinabench.methods.training.checkpoint import Checkpoint
    from retinabench.methods.training.likelihood import Likelihood
    from retinabench.methods.training.posterior import Posterior


class Method(Protocol):
    """A module, or a class with static functions."""

    @property
    def Config(self) -> type[MethodConfig]:  # noqa: N802
        """The class of its hyper-parameters."""

    def build(self, model: nn.Module, run: TrainingRun, likelihood: Likelihood) -> Posterior:
        """Return the untrained posterior.

        Args:
            model: A fresh network, which is changed in place.
            run: Settings and seed.
            likelihood: What the outputs of the network mean.
        """

    def fit(
        self, model: nn.Module, batches: Batches, run: TrainingRun, checkpoint: Checkpoint, likelihood: Likelihood
    ) -> Posterior:
        """Build the posterior and train it, or continue from the checkpoint.

        Args:
            model: A fresh network on the device of the batches, which is changed in place.
            batches: Training rows and held-out validation rows.
            run: Settings and seed.
            checkpoint: Where the state of the training is kept.
            likelihood: What the outputs of the network mean.

        Returns:
            The posterior of the selected epoch.

        Raises:
            InputError: The settings do not fit the data.
            DivergedError: The loss or a prediction is not finite.
        """


class FidelitySettings(Frozen):
    """An entry of the fidelity benchmark: the settings under which a method takes part.

    All entries train on the stated posterior, in batches of 50, until the last epoch. Widths, numbers of members and the rates of regressions are those
    that `retinabench fidelity tune` chose on development targets, the rates of classifications those of `docs/tables/fidelity-search.csv`.

    A table by tier, such as {100: 0.02, 1000: 0.007, "large": 0.01}, has one value for each budget, that of the tier nearest to it by logarithm, and one for
    networks of more than 10,000 weights, for which `large` was searched. In `method`, the values
    "prior_precision" and "prior_std" stand for the target's numbers, and "X per point" for X times the number of its training points. Without `epochs` in
    `optimizer` as many are trained as the budget allows.
    """

    name: str
    title: str
    method: JsonObject  # the table `method` of a run; its name is that of the method where it has none
    optimizer: JsonObject = Field(default_factory=dict)  # the table of a run
    categorical: dict[str, JsonObject] = Field(default_factory=dict)  # changes to both tables, of classes
    gaussian: dict[str, JsonObject] = Field(default_factory=dict)  # the same of regression
    search: dict[str, dict[str, JsonObject]] = Field(default_factory=dict)  # by likelihood and dotted key


ADAM: JsonObject = {"name": "adam", "schedule": "cosine"}
HEAVY_BALL: JsonObject = {"momentum": 0.9}


def fidelity_entry(
    name: str,
    title: str,
    method: JsonObject,
    optimizer: JsonObject | None = None,
    *,
    tuned: Mapping[str, tuple[Any, Any]] | None = None,
    searched: Mapping[str, Any] | None = None,
) -> FidelitySettings:
    """Return an entry from tables by dotted key.

    tuned: key -> its value for targets of classes and for those of regression; None leaves the default. searched: key -> the
    range or choices that `fidelity tune` searches, or a pair of them.
    """
    changes: tuple[dict[str, JsonObject], dict[str, JsonObject]] = ({}, {})
    for key, values in (tuned or {}).items():
        for table, value in zip(changes, values, strict=True):
            if value is not None:
                *path, last = key.split(".")
                inner: Any = table
                for part in path:
                    inner = inner.setdefault(part, {})
                inner[last] = value
    pairs = {key: space if isinstance(space, tuple) else (space, space) for key, space in (searched or {}).items()}
    search = {
        likelihood: {key: pair[place] for key, pair in pairs.items()}
        for place, likelihood in enumerate(("categorical", "gaussian"))
        if pairs
    }
    return FidelitySettings(
        name=name, title=title, method=method, optimizer=optimizer or {}, categorical=changes[0], gaussian=changes[1],
        search=search,
    )  # fmt: skip


def log_range(low: float, high: float) -> JsonObject:
    """Return a range of a search space, uniform in the logarithm."""
    return {"low": low, "high": high, "scale": "log"}


def as_config(run: TrainingRun, kind: type[Any]) -> Any:
    """Return the run's method configuration, checked to be of the class `kind`."""
    if not isinstance(run.method, kind):
        raise TypeError(f"a run of the method '{run.method.name}' came to {kind.__module__}")
    return run.method


def is_composed(method: object) -> bool:
    """Tell whether a method combines the runs of others instead of training."""
    return hasattr(method, "member_runs")
