"""`model.json` of an exported model: its run, its preprocessing and its label, checked before anything is built from them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, StrictBool, StrictInt, ValidationError

from retinabench.core.checksums import check
from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen, first_problem
from retinabench.core.untrusted.paths import kept_inside
from retinabench.data.preprocessing.preprocess import Preprocess, Recipe
from retinabench.experiments.config import Run, build_run
from retinabench.methods.registry import METHODS
from retinabench.models.own_network import named_network, source_of
from retinabench.models.settings import is_own, is_path

FORMAT = "retinabench.model/1"
ABOUT = "model.json"
CARD = "README.md"
EXPORT_AGAIN = "Export the model again."
MOST_BYTES = 2**20  # of model.json
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
    recipe: _Recipe
    referable_from: StrictInt = Field(ge=1, le=4)
    network_sha256: str = ""


@dataclass(frozen=True)
class ModelAbout:
    """What an exported model says of itself.

    Args:
        run: The run that it was trained by; `run.data` is the name of the data set.
        recipe: How an image is made from a file.
        referable_from: The lowest grade with label 1.
        config_hash: Of the run.
        notes: What a user must know of it.
    """

    run: Run
    recipe: Recipe
    referable_from: int
    config_hash: str
    notes: tuple[str, ...]


def read_about(folder: Path, model: str | None = None, *, run_code: bool = True) -> ModelAbout:
    """Read `model.json`.

    Args:
        folder: The exported model.
        model: The function of a user's network, where it is one.
        run_code: Whether the function is going to be run; otherwise it need not be named.

    Returns:
        What it says.

    Raises:
        InputError: It is missing or damaged, states what no run can state, or a user's function that is not named.
    """
    path = folder / ABOUT
    content = _content(path, folder)
    stated = content.run.get("model", {})
    name = str(stated.get("name", "")) if isinstance(stated, dict) else ""
    if run_code:
        name = named_network(name, model, folder, own=is_own(name))
    if isinstance(stated, dict) and _names_file(stated.get("weights")) and not stated.get("weights_sha256"):
        raise InputError(
            "model.weights names a file without its SHA-256", file=path
        )  # it would be read to compute it
    _check_methods(content.run.get("method"), path)
    run = build_run({**content.run, "data": content.data}, path)
    _check(run, path)
    config_hash = run.hash(content.fingerprint)
    notes: tuple[str, ...] = ()
    if run_code and is_own(name):
        run = run.model_copy(update={"model": run.model.model_copy(update={"name": name})})
        if source_of(name).sha256 != content.network_sha256:
            notes = (f"the file of '{name}' is not the one that the model was exported with",)
    return ModelAbout(run, Recipe(**content.recipe.model_dump()), content.referable_from, config_hash, notes)


def _content(path: Path, folder: Path) -> _Content:
    if not path.is_file():
        raise InputError(
            "holds no exported model", file=folder, hint="Make one with: retinabench export RUN --out DIR"
        )
    check(path, EXPORT_AGAIN)
    try:
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"it has more than {MOST_BYTES:,} bytes")
        content = json.loads(kept_inside(folder, path).read_text(encoding="utf-8"))
        if isinstance(content, dict) and content.get("format") != FORMAT:
            raise ValueError(f"format '{content.get('format')}', this version reads '{FORMAT}'")
        return _Content.model_validate(content)
    except ValidationError as error:
        problem = first_problem(error, None, lambda _: list(_Content.model_fields))
        raise InputError(f"is damaged ({problem})", file=path, hint=EXPORT_AGAIN) from None
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"is damaged ({str(error).rstrip('.')})", file=path, hint=EXPORT_AGAIN) from None


def _check_methods(stated: object, path: Path) -> None:
    """Refuse a method that is not installed here, or a member of it that is not."""
    while isinstance(stated, dict):
        name, stated = stated.get("name"), stated.get("member")
        if isinstance(name, str) and name not in METHODS:
            raise InputError(
                f"is a model of the method '{name}', which is not installed here",
                file=path,
                hint="Install the package that brings it: a plug-in with this entry point in 'retinabench.methods'.",
            )


def _names_file(weights: object) -> bool:
    return isinstance(weights, str) and is_path(weights)


def _check(run: Run, path: Path) -> None:
    """Refuse settings that no finished run has, or that would read other files or fetch something."""
    samples = run.method.samples
    if samples > MOST_SAMPLES:
        raise InputError(f"method.samples={samples:,} is more than {MOST_SAMPLES:,}", file=path)
    found = len(list(path.parent.glob("member-*.safetensors")))
    asked = getattr(run.method, "members", 1) if run.method.pools_seeds else 1
    if asked > max(found, 1):
        raise InputError(f"asks for {asked} members, of which {found} are there", file=path)
