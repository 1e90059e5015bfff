"""The tensors of an exported model: the posterior of each member, the trunk and the scale, checked before memory is taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.untrusted.paths import kept_inside
from retinabench.experiments.config import Run
from retinabench.experiments.execution import member_runs
from retinabench.experiments.exporting.about import EXPORT_AGAIN, MOST_SAMPLES, read_about
from retinabench.experiments.features import Extractor
from retinabench.experiments.run_folder import LIKELIHOOD
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import taking_over
from retinabench.methods.training.posterior import Posterior, fingerprint
from retinabench.models.build import (
    build_model,
    build_trunk,
    feature_width,
    parameters_of,
    parameters_of_trunk,
)
from retinabench.models.settings import ModelConfig
from retinabench.models.tensor_files import load_safetensors


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


def read_posterior(run: Run, tensors: dict[str, Tensor], device: torch.device, path: Path) -> Posterior:
    """Return the posterior of a member, once its settings fit the tensors that are there.

    Args:
        run: The settings of the member.
        tensors: Its tensors by name.
        device: Where it computes.
        path: Their file, for messages.

    Returns:
        The posterior.

    Raises:
        InputError: The tensors are those of another network.
    """
    _check_size(parameters_of, run, tensors, path)
    largest = max((size for tensor in tensors.values() for size in tensor.shape), default=1)
    for key, value in run.method.model_dump().items():
        if isinstance(value, int) and key != "samples" and value > max(largest, MOST_SAMPLES):
            raise InputError(f"method.{key}={value:,} is of no model of these tensors", file=path)
    try:
        model = build_model(run.model, run.seed, pretrained=False).to(device)
        posterior: Posterior = METHODS[run.method.name].build(model, run, LIKELIHOOD)
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"its settings give no posterior ({one_line(error)})", file=path) from None
    with taking_over(path, EXPORT_AGAIN):
        posterior.restore(tensors)
    return posterior


def read_extractor(run: Run, device: torch.device, path: Path) -> Extractor | None:
    """Return the trunk, where the head was trained alone, else None.

    Args:
        run: The settings.
        device: Where it computes.
        path: The file of the trunk.

    Returns:
        The trunk.

    Raises:
        InputError: The file is missing, damaged, or holds another network.
    """
    if run.model.trained != "head":
        return None
    tensors = read_tensors(path)
    _check_size(parameters_of_trunk, run, tensors, path)
    trunk = build_trunk(run.model, pretrained=False)
    with taking_over(path, EXPORT_AGAIN):
        trunk.trunk.load_state_dict(tensors)
    return Extractor(run.model, device, trunk.to(device))


def read_scale(path: Path, run: Run) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return mean and std of what the networks read; `InputError` where they do not fit the run."""
    scale = read_tensors(path, ("mean", "std"))
    length = feature_width(run.model) if run.model.trained == "head" else 3
    for tensor in (scale["mean"], scale["std"]):
        if tuple(tensor.shape) != (length,) or tensor.dtype != torch.float32:
            raise InputError(f"mean and std are not {length} numbers each (float32)", file=path)
    if (scale["std"] <= 0).any():
        raise InputError("not all std are above 0", file=path)
    return scale["mean"].numpy(), scale["std"].numpy()


def _check_size(
    count: Callable[[ModelConfig], int], run: Run, tensors: Mapping[str, Tensor], path: Path
) -> None:
    """Refuse a network of more parameters than the file holds, before memory is taken for it."""
    found = sum(tensor.numel() for tensor in tensors.values())
    try:
        needed = count(run.model)
    except RuntimeError:  # a tensor of more bytes than can be counted
        raise InputError(
            f"'{run.model.name}' of these settings does not fit into memory", file=path
        ) from None
    if needed > found:
        raise InputError(
            f"holds the tensors of another network ({found:,} values; '{run.model.name}' has {needed:,} parameters)",
            file=path,
        )


def one_line(error: Exception) -> str:
    """Return the message of an error in one line of at most 120 characters."""
    return " ".join(str(error).split())[:120]
