"""The files of an exported model: `model.json` and its tensors, checked before anything is built from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, StrictBool, StrictInt
from torch import Tensor

from retinabench.core.errors import InputError, check, kept_inside
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen, read_checked
from retinabench.data.preprocessing.preprocess import Preprocess, Recipe
from retinabench.data.tables import Feature
from retinabench.experiments.config import Run, build_run
from retinabench.experiments.execution import member_runs
from retinabench.experiments.features import Extractor
from retinabench.experiments.run_folder import LIKELIHOOD
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import taking_over
from retinabench.methods.training.posterior import Posterior, fingerprint
from retinabench.models import build
from retinabench.models.foreign import named_network, source_of
from retinabench.models.settings import ModelConfig, is_own, is_path
from retinabench.models.weight_files import load_safetensors

FORMAT = "retinabench.model/1"
ABOUT = "model.json"
CARD = "README.md"
EXPORT_AGAIN = "Export the model again."
MOST_SAMPLES = 10_000  # per prediction


class _Recipe(Frozen):
    """The fields of `Recipe`, none of which is converted from another type."""

    size: StrictInt = Field(ge=16, le=2048)
    preprocess: Preprocess
    blur: StrictInt
    published: StrictBool


class _Content(Frozen):
    """The content of `model.json`."""

    format: Literal["retinabench.model/1"]
    version: str = Field(max_length=50)
    data: str = Field(max_length=200)
    fingerprint: str = Field(max_length=64)
    run: JsonObject
    recipe: _Recipe | None = None  # None: a model of a table
    features: tuple[Feature, ...] = ()
    referable_from: StrictInt = Field(ge=1, le=4)
    network_sha256: str = ""


@dataclass(frozen=True)
class ModelAbout:
    """What an exported model says of itself."""

    run: Run
    recipe: Recipe
    features: tuple[Feature, ...]
    referable_from: int
    config_hash: str
    notes: tuple[str, ...]


def read_about(folder: Path, model: str | None = None, *, run_code: bool = True) -> ModelAbout:
    path = folder / ABOUT

    def validate(content: object) -> _Content:
        if isinstance(content, dict) and content.get("format") != FORMAT:
            raise ValueError(f"format '{content.get('format')}', this version reads '{FORMAT}'")
        return _Content.model_validate(content)

    content = read_checked(kept_inside(folder, path), validate, EXPORT_AGAIN)
    if content is None:
        hint = "Make one with: retinabench export RUN --out DIR"
        raise InputError("holds no exported model", file=folder, hint=hint)
    stated = content.run.get("model", {})
    name = str(stated.get("name", "")) if isinstance(stated, dict) else ""
    if run_code:
        name = named_network(name, model, folder, own=is_own(name))
    weights = stated.get("weights") if isinstance(stated, dict) else None
    if isinstance(weights, str) and is_path(weights) and not stated.get("weights_sha256"):
        # It would be read to compute it.
        raise InputError("model.weights names a file without its SHA-256", file=path)
    _check_methods(content.run.get("method"), path)
    run = build_run({**content.run, "data": content.data}, path)
    # Settings that no finished run has.
    if run.method.samples > MOST_SAMPLES:
        raise InputError(f"method.samples={run.method.samples:,} is more than {MOST_SAMPLES:,}", file=path)
    found = len(list(folder.glob("member-*.safetensors")))
    asked = getattr(run.method, "members", 1) if run.method.pools_seeds else 1
    if asked > max(found, 1):
        raise InputError(f"asks for {asked} members, of which {found} are there", file=path)
    config_hash = run.hash(content.fingerprint)
    notes: tuple[str, ...] = ()
    if run_code and is_own(name):
        run = run.model_copy(update={"model": run.model.model_copy(update={"name": name})})
        if source_of(name).sha256 != content.network_sha256:
            notes = (f"the file of '{name}' is not the one that the model was exported with",)
    if (content.recipe is None) == (not content.features):
        raise InputError("states neither how images are made nor which columns are read", file=path, hint=EXPORT_AGAIN)
    if content.features:
        build.check_takes_tables(run.model)
    recipe = Recipe(16) if content.recipe is None else Recipe(**content.recipe.model_dump())  # of a table: not used
    return ModelAbout(run, recipe, content.features, content.referable_from, config_hash, notes)


def _check_methods(stated: object, path: Path) -> None:
    """Refuse a method that is not installed here, or a member of it that is not."""
    while isinstance(stated, dict):
        name, stated = stated.get("name"), stated.get("member")
        if isinstance(name, str) and name not in METHODS:
            hint = "Install the package that brings it: a plug-in with this entry point in 'retinabench.methods'."
            raise InputError(f"is a model of the method '{name}', which is not installed here", file=path, hint=hint)


def leaf_runs(run: Run) -> Iterator[Run]:
    """Yield the trained runs whose samples a run pools; the run itself where it trains."""
    if run.cross_validation is not None:
        hint = "Train a run on all training images: leave out cross_validation."
        raise InputError("a cross-validation estimates scores and is not a model", hint=hint)
    members = member_runs(run)
    if not members:
        yield run
        return
    if not run.method.pools_seeds:
        problem = f"'{run.method.name}' is fitted to the predictions of another run and cannot be exported"
        raise InputError(problem, hint="Export the run that it is fitted to.")
    for member in members:
        yield from leaf_runs(member)


def read_tensors(path: Path, names: Sequence[str] = ()) -> dict[str, Tensor]:
    if not path.is_file():
        raise InputError("is missing", file=path, hint=EXPORT_AGAIN)
    check(path, EXPORT_AGAIN)
    try:
        tensors = load_safetensors(kept_inside(path.parent, path))
    except InputError:
        raise
    except Exception as error:  # damaged headers raise errors of many kinds
        raise InputError(f"is damaged ({one_line(error)})", file=path, hint=EXPORT_AGAIN) from None
    if missing := [name for name in names if name not in tensors]:
        raise InputError(f"lacks the tensor '{missing[0]}'", file=path, hint=EXPORT_AGAIN)
    for name, tensor in tensors.items():
        if not torch.isfinite(tensor).all():
            raise InputError(f"{name!r} holds values that are not finite", file=path)
    return tensors


def weights_of(folder: Path) -> str:
    members = leaf_runs(read_about(folder, run_code=False).run)
    return "+".join(fingerprint(read_tensors(folder / member_file(number))) for number, _ in enumerate(members))


def member_file(number: int) -> str:
    return f"member-{number}.safetensors"


def read_posterior(
    run: Run, tensors: dict[str, Tensor], device: torch.device, path: Path, columns: int | None = None
) -> Posterior:
    """Return the posterior of a member, once its settings fit the tensors that are there."""
    _check_size(partial(build.parameters_of, columns=columns), run, tensors, path)
    largest = max((size for tensor in tensors.values() for size in tensor.shape), default=1)
    for key, value in run.method.model_dump().items():
        if isinstance(value, int) and key != "samples" and value > max(largest, MOST_SAMPLES):
            raise InputError(f"method.{key}={value:,} is of no model of these tensors", file=path)
    try:
        model = build.build_model(run.model, run.seed, pretrained=False, columns=columns).to(device)
        posterior: Posterior = METHODS[run.method.name].build(model, run, LIKELIHOOD)
    except (RuntimeError, MemoryError) as error:
        raise InputError(f"its settings give no posterior ({one_line(error)})", file=path) from None
    with taking_over(path, EXPORT_AGAIN):
        posterior.restore(tensors)
    return posterior


def read_extractor(run: Run, device: torch.device, path: Path) -> Extractor | None:
    if run.model.trained != "head":
        return None
    tensors = read_tensors(path)
    _check_size(build.parameters_of_trunk, run, tensors, path)
    trunk = build.build_trunk(run.model, pretrained=False)
    with taking_over(path, EXPORT_AGAIN):
        trunk.trunk.load_state_dict(tensors)
    return Extractor(run.model, device, trunk.to(device))


def read_scale(path: Path, run: Run, columns: int | None = None) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return mean and std of what the networks read; `InputError` where they do not fit the run."""
    scale = read_tensors(path, ("mean", "std"))
    length = columns or (build.feature_width(run.model) if run.model.trained == "head" else 3)
    for tensor in (scale["mean"], scale["std"]):
        if tuple(tensor.shape) != (length,) or tensor.dtype != torch.float32:
            raise InputError(f"mean and std are not {length} numbers each (float32)", file=path)
    if (scale["std"] <= 0).any():
        raise InputError("not all std are above 0", file=path)
    return scale["mean"].numpy(), scale["std"].numpy()


def _check_size(count: Callable[[ModelConfig], int], run: Run, tensors: Mapping[str, Tensor], path: Path) -> None:
    """Refuse a network of more parameters than the file holds, before memory is taken for it."""
    found = sum(tensor.numel() for tensor in tensors.values())
    try:
        needed = count(run.model)
    except RuntimeError:  # a tensor of more bytes than can be counted
        raise InputError(f"'{run.model.name}' of these settings does not fit into memory", file=path) from None
    if needed > found:
        sizes = f"{found:,} values; '{run.model.name}' has {needed:,} parameters"
        raise InputError(f"holds the tensors of another network ({sizes})", file=path)


def one_line(error: Exception) -> str:
    """Return the message of an error in one line of at most 120 characters."""
    return " ".join(str(error).split())[:120]
