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

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.core.untrusted.paths import kept_inside
from retinabench.data.preprocessing.preprocess import Recipe
from retinabench.experiments.config import Run, build_run
from retinabench.experiments.execution import Resources, member_runs
from retinabench.experiments.features import Extractor
from retinabench.experiments.run import LIKELIHOOD, PREDICT_BATCH
from retinabench.methods.registry import METHODS
from retinabench.methods.training.posterior import Posterior, UncertaintyPosterior, precision
from retinabench.models.acceleration import set_arithmetic
from retinabench.models.build import build_model, build_trunk, parameters_of
from retinabench.models.settings import is_path
from retinabench.models.tensor_files import load_safetensors

FORMAT = "retinabench.model/1"
ABOUT, SCALE, TRUNK = "model.json", "scale.safetensors", "trunk.safetensors"
EXPORT_AGAIN = "Export the model again."


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

    def predict(self, images: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return P(referable) of every posterior sample, member by member.

        Args:
            images: (N, size, size, 3) uint8, made by `recipe`.

        Returns:
            (N, S) probabilities.

        Raises:
            InputError: The images have another shape.
        """
        inputs = self._batches(images)
        return np.concatenate([self._samples(*member, inputs) for member in self.members], axis=1)

    def uncertainty(self, images: NDArray[np.uint8]) -> NDArray[np.float64] | None:
        """Return the model's own uncertainty (N,), the mean over its members; None where a member has none.

        Args:
            images: (N, size, size, 3) uint8, made by `recipe`.

        Raises:
            InputError: The images have another shape.
        """
        posteriors = [posterior for _, posterior in self.members]
        scoring = [posterior for posterior in posteriors if isinstance(posterior, UncertaintyPosterior)]
        if len(scoring) < len(posteriors):
            return None
        inputs, found = self._batches(images), []
        for posterior in scoring:
            with precision(self.run, self.device), torch.no_grad():
                found.append(
                    torch.cat([posterior.uncertainty(some) for some in inputs]).cpu().double().numpy()
                )
        return np.asarray(np.mean(found, axis=0))

    def _batches(self, images: NDArray[np.uint8]) -> list[Tensor]:
        size = self.recipe.size
        if images.ndim != 4 or images.shape[1:] != (size, size, 3) or images.dtype != np.uint8:
            raise InputError(
                f"images have shape {images.shape} and type {images.dtype}",
                hint=f"Needed are (N, {size}, {size}, 3) uint8: preprocess_bytes(data, model.recipe, name) makes one.",
            )
        return [self._inputs(images[k : k + PREDICT_BATCH]) for k in range(0, len(images), PREDICT_BATCH)]

    def _samples(self, run: Run, posterior: Posterior, inputs: Sequence[Tensor]) -> NDArray[np.float64]:
        generator, probs = torch_generator(self.device, run.seed, "predict"), []
        for some in inputs:
            with precision(run, self.device), torch.no_grad():
                drawn = posterior.predict(some, run.method.samples, generator)
            probs.append(drawn[..., 1].T.cpu().double().numpy())
        return np.concatenate(probs)

    def _inputs(self, images: NDArray[np.uint8]) -> Tensor:
        mean, std = (torch.from_numpy(values).to(self.device) for values in (self.mean, self.std))
        if self.extract is not None:
            return (torch.from_numpy(self.extract(images)).to(self.device) - mean) / std
        stored = torch.from_numpy(images).to(self.device).permute(0, 3, 1, 2).to(torch.float32).div_(255)
        return stored.sub_(mean.reshape(1, 3, 1, 1)).div_(std.reshape(1, 3, 1, 1))


def load_model(folder: str | Path, device: str = "cpu") -> ExportedModel:
    """Read a model that `retinabench export` wrote.

    Args:
        folder: The folder.
        device: Where it computes: `auto`, `cpu`, `cuda` or `cuda:N`.

    Returns:
        The model.

    Raises:
        InputError: The folder holds no model, a file of it is missing, damaged, not finite or of another network, or the
            device is absent.

    Examples:
        >>> import retinabench as rb
        >>> try:
        ...     rb.load_model("no/such/folder")
        ... except ValueError as error:
        ...     print(str(error).partition(".")[0])
        no/such/folder: holds no exported model
    """
    folder = Path(folder)
    about = _read_about(folder)
    run = build_run({**about["run"], "data": about["data"]}, folder / ABOUT)
    where = Resources(device).torch_device()
    set_arithmetic(run.optimizer.precision, where)
    scale = _read_scale(folder / SCALE)
    members = []
    _check_members(folder, run)
    for number, member in enumerate(leaf_runs(run)):
        path = folder / f"member-{number}.safetensors"
        tensors = read_tensors(path)
        _check_size(member, tensors, path)
        model = build_model(member.model, member.seed, pretrained=False).to(where)
        posterior: Posterior = METHODS[member.method.name].build(model, member, LIKELIHOOD)
        _restore(posterior.restore, tensors, path)
        members.append((member, posterior))
    extract = None
    if run.model.trained == "head":
        trunk = build_trunk(run.model, pretrained=False)
        _restore(trunk.trunk.load_state_dict, read_tensors(folder / TRUNK), folder / TRUNK)
        extract = Extractor(run.model, where, trunk.to(where))
    return ExportedModel(
        folder, run, Recipe(**about["recipe"]), about["referable_from"], tuple(members), scale["mean"].numpy(),
        scale["std"].numpy(), extract, where,
    )  # fmt: skip


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


def _read_scale(path: Path) -> dict[str, Tensor]:
    scale = read_tensors(path, ("mean", "std"))
    mean, std = scale["mean"], scale["std"]
    if (
        mean.ndim != 1
        or mean.shape != std.shape
        or {mean.dtype, std.dtype} != {torch.float32}
        or (std <= 0).any()
    ):
        raise InputError("mean and std are not float32 vectors of one length with std > 0", file=path)
    return scale


def _check_members(folder: Path, run: Run) -> None:
    """Refuse settings that ask for more members than there are files, before they are listed."""
    asked = getattr(run.method, "members", 1) if run.method.pools_seeds else 1
    found = len(list(folder.glob("member-*.safetensors")))
    if asked > max(found, 1):
        raise InputError(f"asks for {asked} members, of which {found} are there", file=folder / ABOUT)


def _check_size(run: Run, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse a network of more parameters than the file holds, before memory is taken for it."""
    found = sum(tensor.numel() for tensor in tensors.values())
    try:
        needed = parameters_of(run.model)
    except RuntimeError:  # a tensor of more bytes than can be counted
        raise InputError(f"'{run.model.name}' of these settings fits no memory", file=path) from None
    if needed > found:
        raise InputError(
            f"holds the tensors of another network ({found:,} values; '{run.model.name}' has {needed:,} parameters)",
            file=path,
        )


def _read_about(folder: Path) -> Mapping[str, Any]:
    path = folder / ABOUT
    if not path.is_file():
        raise InputError(
            "holds no exported model", file=folder, hint="Make one with: retinabench export RUN --out DIR"
        )
    check(path, EXPORT_AGAIN)
    try:
        about: dict[str, Any] = json.loads(kept_inside(folder, path).read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise TypeError(f"format '{about['format']}', this version reads '{FORMAT}'")
        Recipe(**about["recipe"])
        for key, kind in (("run", dict), ("data", str), ("referable_from", int)):
            if not isinstance(about[key], kind):
                raise TypeError(f"{key} is {about[key]!r}")
        network = about["run"].get("model", {})
        if network.get("weights") and network.get("weights_sha256") is None and is_path(network["weights"]):
            raise ValueError(
                "model.weights names a file without its SHA-256"
            )  # it would be read to compute it
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"is damaged ({str(error).rstrip('.')})", file=path, hint=EXPORT_AGAIN) from None
    return about


def _restore(restore: Callable[[dict[str, Tensor]], object], tensors: dict[str, Tensor], path: Path) -> None:
    try:
        restore(tensors)
    except (RuntimeError, KeyError, ValueError) as error:
        raise InputError(
            f"holds the tensors of another network ({' '.join(str(error).split())[:120]})", file=path
        ) from None
