"""The settings of a training: method, optimiser and seed."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, NamedTuple

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator

from retinabench.core.errors import nearest
from retinabench.core.settings import Extended, Frozen
from retinabench.methods.registry import METHODS


class TargetPosterior(NamedTuple):
    """The posterior that a run approximates: π(w) ∝ p(D | w)^(1/T) N(w; 0, s² I).

    temperature: T, of the likelihood alone. prior_variance: s², infinite without an L2 term. Both are None where no T and s²
    describe what the run tends to. how: in which sense it approximates the posterior, or why there is none. loss_variance: where
    there is none, the prior variance of the log posterior that the run is trained on, if it is trained on one.
    """

    temperature: float | None
    prior_variance: float | None
    how: str
    loss_variance: float | None = None


def no_target(why: str, loss: TargetPosterior | None = None) -> TargetPosterior:
    """Return what a run without a target posterior says; `loss` is the posterior whose logarithm is its training loss."""
    return TargetPosterior(None, None, why, loss.prior_variance if loss is not None else None)


class Optimizer(Extended):
    """The one training loop's settings.

    lr: peak learning rate. momentum: Nesterov momentum (SGD) or beta_1 (Adam).
    l2: adds `l2 * sum(w²)` to the loss, over the parameters of `l2_on`: the `weights` of convolutions and linear
    layers; `everything`, the Gaussian prior N(0, 1 / (2 l2 N)) of all N images' posterior; `norms_and_biases`, as released
    for MFVI and radial; `nothing`, as released for MAP and MC dropout, whose L2
    term was computed over an empty list.
    batch_size: images per step, over all processes. accumulate: parts into which a process cuts its share of a batch to
    save memory; the loss is that of the whole batch, the statistics of batch norm are those of a part.
    schedule: step (x0.2 at one and two thirds), linear (down to `final_lr` * lr) or cosine (down to 0), after
    `warmup` epochs of linear rise from 0. reweight: `none` fits probabilities to the labels as they are. Else each class k is
    weighed by 1 / (2 p(k)), p from the batch (`minibatch`, as in the paper) or from all training images (`constant`):
    probabilities then are those of a population in which half of the images are referable, and fit no other.
    augment: `flip` mirrors at random; `affine` also rotates, shifts and zooms (`data/loader.py`); true and false mean
    flip and none. select: the checkpoint that predicts, by a validation score, or the last.
    validation_share: the most that the validation takes of the forward and backward passes of an epoch (`prediction.py`), by
    fewer posterior samples and then by fewer epochs; 1 for all samples after every epoch.
    precision: of the network; losses and the optimiser's state are float32. `tf32` rounds the products of float32 on a GPU.
    Where a command finds no setting, it takes bfloat16 on a GPU that has it, and writes it into the run.
    compile: whether the network is compiled on a GPU, where none of its layers draws (`models/build.py`).
    """

    _later = ("validation_share", "compile")  # settings that version 0.1 did not have

    name: Literal["sgd", "adam"] = "sgd"
    lr: float = Field(0.02, gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    l2: float = Field(1e-4, ge=0)
    l2_on: Literal["weights", "norms_and_biases", "everything", "nothing"] = "weights"
    epochs: int = Field(30, ge=1)
    batch_size: int = Field(64, ge=1)
    accumulate: int = Field(1, ge=1)
    schedule: Literal["step", "linear", "cosine", "constant"] = "cosine"
    warmup: float = Field(1.0, ge=0)
    final_lr: float = Field(0.01, ge=0, le=1)
    reweight: Literal["none", "minibatch", "constant"] = "none"
    augment: Literal["none", "flip", "affine"] = "flip"
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    compile: bool = False
    select: Literal["auroc", "nll", "last"] = "auroc"
    validation_share: float = Field(0.1, gt=0, le=1)

    def prior_variance(self, points: int) -> float:
        """Return s² = 1 / (2 N l2), the variance of the Gaussian prior of N training points that the L2 term stands for."""
        return 1 / (2 * points * self.l2) if self.l2 else float("inf")

    def target(self, points: int, how: str, temperature: float = 1.0) -> TargetPosterior:
        """Return the posterior whose prior is the L2 term on all parameters; none where it acts on some only."""
        if self.l2_on != "everything":
            return no_target(f"a prior on {self.l2_on.replace('_', ' ')} only (optimizer.l2_on)")
        return TargetPosterior(temperature, temperature * self.prior_variance(points), how)

    @field_validator("augment", mode="before")
    @classmethod
    def _augment_from_bool(cls, augment: Any) -> Any:
        # Earlier files and run folders say true or false.
        return {True: "flip", False: "none"}[augment] if isinstance(augment, bool) else augment


class MethodConfig(Frozen):
    """The hyper-parameters of a method, and what the method says of itself.

    name: as in `METHODS`. samples: posterior samples per prediction. title: what readers call the method; the name where
    it is empty. likelihoods: names of those that it supports (`training/likelihood.py`). needs_validation_labels: whether
    predictions depend on labels of a validation split. needs_images: whether it takes images only, and no features of a trunk
    that were computed once. keeps_trunk: whether it leaves the weights of the trunk as they are. pools_seeds: whether it
    combines runs that differ by their seed. approximates: in which sense a run approximates the posterior whose prior is the L2
    term; without_target: where it does not, why; loss_is_log_posterior: whether its loss is the logarithm of one nevertheless.
    has_learning_rate: whether `optimizer.lr` applies.
    """

    title: ClassVar[str] = ""
    likelihoods: ClassVar[tuple[str, ...]] = ("bernoulli", "categorical", "gaussian", "multilabel")
    needs_validation_labels: ClassVar[bool] = False
    needs_images: ClassVar[bool] = False
    keeps_trunk: ClassVar[bool] = False
    pools_seeds: ClassVar[bool] = False
    approximates: ClassVar[str] = ""
    without_target: ClassVar[str] = "not stated"
    loss_is_log_posterior: ClassVar[bool] = False
    has_learning_rate: ClassVar[bool] = True

    name: str
    samples: int = Field(1, ge=1, le=100_000)

    def describe(self, *, titles: bool = True) -> str:
        """Return the method in a few words: by titles for readers, else by names for folders."""
        return (self.title if titles else "") or self.name

    def supported(self) -> tuple[str, ...]:
        """Return the names of the likelihoods that it supports with these settings."""
        return self.likelihoods

    def gradients_per_example(self, optimizer: Optimizer) -> float:
        """Return the gradient evaluations per training example: epochs times `train_samples`, where there are any."""
        return float(optimizer.epochs * getattr(self, "train_samples", 1))

    def target_posterior(self, optimizer: Optimizer, points: int) -> TargetPosterior:
        """Return the posterior that a run on N = `points` training points approximates."""
        if self.approximates:
            return optimizer.target(points, self.approximates)
        return no_target(self.without_target, optimizer.target(points, "") if self.loss_is_log_posterior else None)


def method_config(value: Any) -> Any:
    """Build a method's configuration from its name, or from a table that holds its name."""
    if isinstance(value, MethodConfig):
        return value
    if not isinstance(value, (str, dict)):
        raise ValueError("should be the name of a method, or a table that holds its name")
    table = {"name": value} if isinstance(value, str) else value
    name = table.get("name", "map")
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(f"unknown method '{name}'. {nearest(str(name), METHODS)}")
    return METHODS[name].Config(**{**table, "name": name})


AnyMethod = Annotated[SerializeAsAny[MethodConfig], BeforeValidator(method_config)]


class WithMember(MethodConfig):
    """A method on top of another. member: that method, whose likelihoods and gradients are those of the whole."""

    member: AnyMethod = Field(default_factory=lambda: method_config("map"))

    def supported(self) -> tuple[str, ...]:
        return self.member.supported()

    def gradients_per_example(self, optimizer: Optimizer) -> float:
        """Return those of its member."""
        return self.member.gradients_per_example(optimizer)


class TrainingRun(Frozen):
    """What a method knows of a run: its own settings, those of the training loop, and the seed of all its randomness."""

    method: AnyMethod = Field(default_factory=lambda: method_config("map"))
    optimizer: Optimizer = Optimizer()
    seed: int = Field(0, ge=0)

    def target_posterior(self, points: int) -> TargetPosterior:
        """Return the posterior that the run approximates, given its number N of training points."""
        if self.optimizer.reweight != "none":
            return no_target("a likelihood reweighted by class (optimizer.reweight)")
        if self.optimizer.augment != "none":
            return no_target("a likelihood of augmented images (optimizer.augment)")
        return self.method.target_posterior(self.optimizer, points)


def member_run(run: TrainingRun) -> TrainingRun:
    """Return the run of the member of a method on top of another (`WithMember`): the same, with the member as its method."""
    method = run.method
    assert isinstance(method, WithMember)
    return run.model_copy(update={"method": method.member})
