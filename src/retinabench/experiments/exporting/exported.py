"""A model that travels: a folder that predicts raw images anywhere, without the data that it was trained on.

The folder holds

- `model.json`: the run without its paths, the preprocessing of the images, the definition of the label;
- `scale.safetensors`: mean and std of the channels, or of the features, over the training images;
- `member-0.safetensors` …: the posterior of each trained member;
- `trunk.safetensors`: the trunk, where the head was trained alone;
- `README.md`: the model card.

It holds tensors and JSON only, so that no code of a stranger's folder runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.core.untrusted.paths import kept_inside
from retinabench.data.memory import BatchLimits, with_less
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.config import Run
from retinabench.experiments.execution import Resources, member_runs
from retinabench.experiments.exporting.about import EXPORT_AGAIN, MOST_SAMPLES, read_about
from retinabench.experiments.exporting.frozen_rule import THRESHOLD, FrozenRule, read_rule
from retinabench.experiments.features import Extractor
from retinabench.experiments.run import LIKELIHOOD, PREDICT_BATCH
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import taking_over
from retinabench.methods.training.posterior import Posterior, UncertaintyPosterior, fingerprint, precision
from retinabench.models.acceleration import set_arithmetic
from retinabench.models.build import (
    build_model,
    build_trunk,
    feature_width,
    parameters_of,
    parameters_of_trunk,
)
from retinabench.models.settings import TIMM, ModelConfig
from retinabench.models.tensor_files import load_safetensors

Result = TypeVar("Result")
SCALE, TRUNK = "scale.safetensors", "trunk.safetensors"
TRIED_SIZE = 64  # of the image that a network of any size is tried with


@dataclass(frozen=True, eq=False)
class ExportedModel:
    """A trained model, ready to predict; `load_model` reads one.

    Args:
        folder: Where it was read from.
        run: The run that it was trained by; `run.data` is the name of the data set.
        recipe: How an image is made from a file.
        referable_from: The lowest grade with label 1.
        members: Each member's run and posterior.
        mean: Of the channels (3,) or of the features (D,), over the training images.
        std: Likewise.
        extract: Images (B, size, size, 3) -> features (B, D), where the head was trained alone; otherwise None.
        device: Where it computes.
        config_hash: Of the run.
        weights: Fingerprint of the tensors, as in the metadata of predictions.
        notes: What a user must know of it.
        rule: The threshold or zones that are attached to it.
        limits: The most images at a time, once memory ran out.

    Examples:
        >>> import retinabench as rb
        >>> [name for name in ("predict", "run") if name in dir(rb.ExportedModel)]
        ['predict']
    """

    folder: Path
    run: Run
    recipe: Recipe
    referable_from: int
    members: tuple[tuple[Run, Posterior], ...]
    mean: NDArray[np.float32]
    std: NDArray[np.float32]
    extract: Extractor | None
    device: torch.device
    config_hash: str
    weights: str
    notes: tuple[str, ...] = ()
    rule: FrozenRule | None = None
    limits: BatchLimits = field(default_factory=BatchLimits)

    def predict(self, images: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return P(referable) of every posterior sample, member by member.

        Args:
            images: (N, size, size, 3) uint8, made by `recipe`.

        Returns:
            (N, S) probabilities.

        Raises:
            InputError: The images have another shape, or the model predicts values that are not finite.
        """
        return self._within_memory(images, self._probs)

    def uncertainty(self, images: NDArray[np.uint8]) -> NDArray[np.float64] | None:
        """Return the model's own uncertainty (N,), the mean over its members; None where a member has none.

        Args:
            images: (N, size, size, 3) uint8, made by `recipe`.

        Raises:
            InputError: The images have another shape.
        """
        return self._within_memory(images, self._own)

    def predict_both(
        self, images: NDArray[np.uint8]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return what `predict` and `uncertainty` return; the features of the trunk are computed once."""
        return self._within_memory(images, lambda inputs: (self._probs(inputs), self._own(inputs)))

    def _within_memory(
        self, images: NDArray[np.uint8], compute: Callable[[Sequence[Tensor]], Result]
    ) -> Result:
        """`compute` of the batches, smaller ones where memory runs out; each batch draws noise of its own."""
        return with_less(
            lambda most: compute(self._batches(images, most)),
            lambda: None,
            self.limits,
            "prediction",
            PREDICT_BATCH,
            self.device,
        )

    def _probs(self, inputs: Sequence[Tensor]) -> NDArray[np.float64]:
        probs = np.concatenate([self._samples(*member, inputs) for member in self.members], axis=1)
        if not np.isfinite(probs).all():
            raise InputError("predicts values that are not finite", file=self.folder)
        return probs

    def _own(self, inputs: Sequence[Tensor]) -> NDArray[np.float64] | None:
        posteriors = [posterior for _, posterior in self.members]
        scoring = [posterior for posterior in posteriors if isinstance(posterior, UncertaintyPosterior)]
        if len(scoring) < len(posteriors):
            return None
        found = []
        for posterior in scoring:
            with precision(self.run, self.device), torch.no_grad():
                found.append(
                    torch.cat([posterior.uncertainty(some) for some in inputs]).cpu().double().numpy()
                )
        return np.asarray(np.mean(found, axis=0))

    def _batches(self, images: NDArray[np.uint8], most: int) -> list[Tensor]:
        size = self.recipe.size
        if images.ndim != 4 or images.shape[1:] != (size, size, 3) or images.dtype != np.uint8:
            raise InputError(
                f"images have shape {images.shape} and type {images.dtype}",
                hint=f"Needed are (N, {size}, {size}, 3) uint8: preprocess_bytes(data, model.recipe, name) makes one.",
            )
        return [self.inputs(images[k : k + most]) for k in range(0, len(images), most)]

    def _samples(self, run: Run, posterior: Posterior, inputs: Sequence[Tensor]) -> NDArray[np.float64]:
        generator, probs = torch_generator(self.device, run.seed, "predict"), []
        for some in inputs:
            with precision(run, self.device), torch.no_grad():
                drawn = posterior.predict(some, run.method.samples, generator)
            probs.append(drawn[..., 1].T.cpu().double().numpy())
        return np.concatenate(probs)

    def inputs(self, images: NDArray[np.uint8]) -> Tensor:
        """Return what the networks read of images (B, H, W, 3)."""
        mean, std = (torch.from_numpy(values).to(self.device) for values in (self.mean, self.std))
        if self.extract is not None:
            return (torch.from_numpy(self.extract(images)).to(self.device) - mean) / std
        stored = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).to(torch.float32).div_(255)
        return stored.sub_(mean.reshape(1, 3, 1, 1)).div_(std.reshape(1, 3, 1, 1))


def load_model(folder: str | Path, device: str = "cpu", *, model: str | None = None) -> ExportedModel:
    """Read a model that `retinabench export` wrote.

    Args:
        folder: The folder.
        device: Where it computes: `auto`, `cpu`, `cuda` or `cuda:N`.
        model: Where the network is a user's own function, that function, `package.module:function`; no other code runs.

    Returns:
        The model.

    Raises:
        InputError: The folder holds no model, a file of it is missing, damaged, not finite or of another network, a user's
            function is not named, or the device is absent.

    Examples:
        >>> import retinabench as rb
        >>> try:
        ...     rb.load_model("no/such/folder")
        ... except ValueError as error:
        ...     print(str(error).partition(".")[0])
        no/such/folder: holds no exported model
    """
    folder = Path(folder)
    about = read_about(folder, model)
    run, where = about.run, Resources(device).torch_device()
    members, weights, rule = [], [], read_rule(folder)
    set_arithmetic(run.optimizer.precision, where)
    for number, member in enumerate(leaf_runs(run)):
        path = folder / member_file(number)
        tensors = read_tensors(path)
        members.append((member, _posterior(member, tensors, where, path)))
        weights.append(fingerprint(tensors))
    joined = "+".join(weights)
    if rule is not None and (rule.config_hash, rule.weights) != (about.config_hash, joined):
        raise InputError("was chosen for other weights than these", file=folder / THRESHOLD)
    mean, std = _read_scale(folder / SCALE, run)
    found = ExportedModel(
        folder, run, about.recipe, about.referable_from, tuple(members), mean, std,
        _extractor(run, where, folder / TRUNK), where, about.config_hash, joined, about.notes, rule,
    )  # fmt: skip
    _try(found)
    return found


def leaf_runs(run: Run) -> Iterator[Run]:
    """Yield the trained runs whose samples a run pools; the run itself where it trains.

    Raises:
        InputError: The run combines others in another way than by pooling their samples.
    """
    if run.cross_validation is not None:
        raise InputError(
            "a cross-validation estimates scores and is not a model",
            hint="Train a run on all training images: leave out cross_validation.",
        )
    members = member_runs(run)
    if not members:
        yield run
        return
    if not run.method.pools_seeds:
        raise InputError(
            f"'{run.method.name}' is fitted to the predictions of another run and cannot be exported",
            hint="Export the run that it is fitted to.",
        )
    for member in members:
        yield from leaf_runs(member)


def read_tensors(path: Path, names: Sequence[str] = ()) -> dict[str, Tensor]:
    """Read a safetensors file.

    Args:
        path: The file.
        names: Tensors that it must hold.

    Returns:
        Name -> tensor.

    Raises:
        InputError: It is missing or damaged, or lacks one of the names.
    """
    if not path.is_file():
        raise InputError("is missing", file=path, hint=EXPORT_AGAIN)
    check(path, EXPORT_AGAIN)
    try:
        tensors = load_safetensors(kept_inside(path.parent, path))
    except InputError:
        raise
    except Exception as error:  # damaged headers raise errors of many kinds
        raise InputError(
            f"is damaged ({str(error).partition(chr(10))[0]})", file=path, hint=EXPORT_AGAIN
        ) from None
    for name in names:
        if name not in tensors:
            raise InputError(f"lacks the tensor '{name}'", file=path, hint=EXPORT_AGAIN)
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise InputError(f"{name!r} holds values that are not finite", file=path)
    return tensors


def weights_of(folder: Path) -> str:
    """Return the fingerprint of the weights of an exported model.

    Raises:
        InputError: A file is missing or damaged.
    """
    members = leaf_runs(read_about(folder, run_code=False).run)
    return "+".join(
        fingerprint(read_tensors(folder / member_file(number))) for number, _ in enumerate(members)
    )


def member_file(number: int) -> str:
    """Return the name of the file of a member."""
    return f"member-{number}.safetensors"


def _posterior(run: Run, tensors: dict[str, Tensor], device: torch.device, path: Path) -> Posterior:
    """Build the posterior of a member, once its settings fit the tensors that are there."""
    _check_size(parameters_of, run, tensors, path)
    largest = max((size for tensor in tensors.values() for size in tensor.shape), default=1)
    for key, value in run.method.model_dump().items():
        if isinstance(value, int) and key != "samples" and value > max(largest, MOST_SAMPLES):
            raise InputError(f"method.{key}={value:,} is of no model of these tensors", file=path)
    try:
        model = build_model(run.model, run.seed, pretrained=False).to(device)
        posterior: Posterior = METHODS[run.method.name].build(model, run, LIKELIHOOD)
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"its settings give no posterior ({_line(error)})", file=path) from None
    with taking_over(path, EXPORT_AGAIN):
        posterior.restore(tensors)
    return posterior


def _extractor(run: Run, device: torch.device, path: Path) -> Extractor | None:
    """The trunk, where the head was trained alone."""
    if run.model.trained != "head":
        return None
    tensors = read_tensors(path)
    _check_size(parameters_of_trunk, run, tensors, path)
    trunk = build_trunk(run.model, pretrained=False)
    with taking_over(path, EXPORT_AGAIN):
        trunk.trunk.load_state_dict(tensors)
    return Extractor(run.model, device, trunk.to(device))


def _read_scale(path: Path, run: Run) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    scale = read_tensors(path, ("mean", "std"))
    length = feature_width(run.model) if run.model.trained == "head" else 3
    for tensor in (scale["mean"], scale["std"]):
        if tuple(tensor.shape) != (length,) or tensor.dtype != torch.float32:
            raise InputError(f"mean and std are not {length} numbers each (float32)", file=path)
    if (scale["std"] <= 0).any():
        raise InputError("not all std are above 0", file=path)
    return scale["mean"].numpy(), scale["std"].numpy()


def _try(model: ExportedModel) -> None:
    """Predict a black image: tensors of other shapes than the posterior's would fail only when a network computes."""
    whole = model.run.model.own or model.run.model.name.startswith(TIMM)
    size = model.recipe.size if whole else min(model.recipe.size, TRIED_SIZE)
    inputs = model.inputs(np.zeros((1, size, size, 3), np.uint8))
    for number, (run, posterior) in enumerate(model.members):
        try:
            with precision(run, model.device), torch.no_grad():
                posterior.predict(inputs, 1, torch_generator(model.device, run.seed, "predict"))
        except Exception as error:  # a network that computes with tensors of wrong shapes may raise anything
            raise InputError(
                f"holds the tensors of another network ({_line(error)})",
                file=model.folder / member_file(number),
            ) from None


def _check_size(
    count: Callable[[ModelConfig], int], run: Run, tensors: Mapping[str, Tensor], path: Path
) -> None:
    """Refuse a network of more parameters than the file holds, before memory is taken for it."""
    found = sum(tensor.numel() for tensor in tensors.values())
    try:
        needed = count(run.model)
    except RuntimeError:  # a tensor of more bytes than can be counted
        raise InputError(f"'{run.model.name}' of these settings fits no memory", file=path) from None
    if needed > found:
        raise InputError(
            f"holds the tensors of another network ({found:,} values; '{run.model.name}' has {needed:,} parameters)",
            file=path,
        )


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
