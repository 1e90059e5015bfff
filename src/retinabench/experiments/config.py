"""A Run: everything that decides the numbers of one training, frozen; its canonical JSON is its identity.

TOML files hold only differences from the defaults; `key=value` arguments override them:

    task = "country_shift"
    seed = 3
    [model]
    name = "resnet50"
    [method]
    name = "dropout"
    rate = 0.1
    [optimizer]
    epochs = 90

Where a run is computed (device, workers) is not part of it. Where its data lie is not either: the hash takes the
data's fingerprint instead of the path.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import (
    BaseModel,
    Field,
    ValidationError,
    model_validator,
)

from retinabench.core.errors import InputError
from retinabench.core.results import JsonObject
from retinabench.core.settings import Extended, Frozen, first_problem
from retinabench.experiments.config_sources import find, override
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import Optimizer, TrainingRun
from retinabench.models.registry import MODELS, has_choice
from retinabench.models.settings import ModelConfig

PROTOCOL = 2  # raise it when the same Run would give other numbers


class CrossValidation(Frozen):
    """Tests every patient once, by a run that was not trained on that patient (`data.splits.fold_splits`).

    Args:
        folds: Number of folds, K.
        repeat: Number of the random division of the patients into folds.
        fold: The fold that tests, from 0. None: each in turn; such a run consists of K runs and joins their predictions of
            the test images.
    """

    folds: int = Field(5, ge=2)
    repeat: int = Field(0, ge=0)
    fold: int | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _within(self) -> Self:
        if self.fold is not None and self.fold >= self.folds:
            raise ValueError(f"fold {self.fold} of {self.folds}: folds are counted from 0")
        return self

    def __str__(self) -> str:
        one = "" if self.fold is None else f"fold {self.fold} of "
        return f"{one}{self.folds} folds repeat {self.repeat}"


class Run(TrainingRun, Extended):
    """One training: task, data, model, method, optimiser and seed.

    Args:
        data: A prepared folder.
        shifted: A second prepared folder, whose images are the shifted sets.
        task: Name of the task.
        model: The network.
        cross_validation: Folds of the patients instead of the task's own split; None keeps that.
    """

    _later = ("cross_validation",)

    data: str
    shifted: str | None = None
    task: str = "country_shift"
    model: ModelConfig = ModelConfig()
    cross_validation: CrossValidation | None = None

    def identity(self, fingerprint: str) -> str:
        """Return the canonical JSON of all that decides the numbers; `fingerprint` stands for the data."""
        content = self.model_dump(mode="json", exclude={"shifted"})  # the fingerprint holds it
        content |= {"data": fingerprint, "protocol": PROTOCOL}
        if self.optimizer.select != "last":  # fewer samples that validate may choose another epoch
            content["optimizer"]["validation_share"] = self.optimizer.validation_share
        if self.model.weights_sha256 is not None:
            del content["model"]["weights"]  # where the file lies does not matter
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    def setting(self, fingerprint: str) -> str:
        """Return 12 digits that runs share when they differ in nothing but the seed."""
        return self.model_copy(update={"seed": 0}).hash(fingerprint)

    def hash(self, fingerprint: str) -> str:
        """Return the first 12 digits of the identity's SHA-256."""
        return hashlib.sha256(self.identity(fingerprint).encode()).hexdigest()[:12]


def load_run(
    source: str | Path | None = None,
    overrides: Sequence[str] = (),
    precision: str | None = None,
    **given: Any,
) -> Run:
    """Build a run from a TOML file or preset, then keywords, then `key=value` texts; later settings win.

    Where a keyword or text names another network, settings of the preset's network that it has no choice of are left out.

    Args:
        source: A path ending in .toml, or the name of a preset such as `demo/map`.
        overrides: Settings such as `optimizer.lr=0.01`.
        precision: `optimizer.precision` where nothing else sets it; None for its default.
        **given: Settings of the run; None leaves one as it is.

    Returns:
        The run.

    Raises:
        InputError: A setting is unknown or impossible; file, key and the nearest valid key are named.
    """
    file, tree = find(source) if source is not None else (None, {})
    network = dict(tree.get("model", {}))
    tree |= {key: value for key, value in given.items() if value is not None}
    for word in overrides:
        override(tree, word)
    set_by_hand = [word.partition("=")[0] for word in overrides]
    for key in _left_over(network, tree.get("model"), set_by_hand):
        del tree["model"][key]
    return build_run(with_precision(tree, precision), file, set_by_hand)


def with_precision(tree: JsonObject, precision: str | None) -> JsonObject:
    """Set `optimizer.precision` in nested tables that name none; None leaves them as they are."""
    optimizer = tree.get("optimizer", {})
    if precision is None or not isinstance(optimizer, Mapping):  # what is no table is refused later
        return tree
    return {**tree, "optimizer": {"precision": precision, **optimizer}}


def _left_over(before: Mapping[str, object], now: Any, set_by_hand: Sequence[str]) -> list[str]:
    """Return the settings of a configuration's network that another one, named instead, has no choice of."""
    name = now.get("name") if isinstance(now, Mapping) else None
    if name == before.get("name"):
        return []
    foreign = not isinstance(name, str) or name not in MODELS
    return [
        key
        for key in ("width", "stem", "activation", "pool")
        if key in before
        and key in now
        and f"model.{key}" not in set_by_hand
        and (foreign or not has_choice(str(name), key))
    ]


def build_run(tree: Mapping[str, object], file: Path | None = None, set_by_hand: Collection[str] = ()) -> Run:
    """Build a run from nested tables.

    Args:
        tree: The settings.
        file: Where they were read, for messages.
        set_by_hand: Keys that were not, such as `method.rate`.

    Returns:
        The run.

    Raises:
        InputError: A setting is unknown or impossible; the file, the key, and the nearest valid key are named.
    """
    try:
        return Run(**tree)
    except ValidationError as error:
        raise first_problem(error, file, lambda path: _keys(path, tree), set_by_hand) from None
    except UnicodeEncodeError as error:  # of a message that names it
        problem = f"{error.object[error.start : error.end]!r} is half a surrogate pair and no text"
        raise InputError(problem, file=file) from None


def _keys(path: Sequence[str], tree: Mapping[str, object]) -> list[str]:
    """Return the valid keys of the table at `path` of `tree`; those of a method are its own."""
    if path and path[0] == "method":
        found: object = tree
        for key in path:  # members are methods themselves
            found = found.get(key) if isinstance(found, Mapping) else None
        name = found.get("name", "map") if isinstance(found, Mapping) else "map"
        return list(METHODS[str(name)].Config.model_fields)
    tables: Mapping[str, type[BaseModel]] = {
        "model": ModelConfig,
        "optimizer": Optimizer,
        "cross_validation": CrossValidation,
    }
    return list((tables[path[0]] if path else Run).model_fields)
