"""A Run: everything that decides the numbers of one training, frozen; its canonical JSON names its folder.

TOML files and presets hold only differences from the defaults; `key=value` arguments override them:

    task = "country_shift"
    seed = 3
    [model]
    name = "resnet50"
    [method]
    name = "dropout"
    rate = 0.1

Device, workers and the path of the data are not part of it: the hash takes the data's fingerprint instead of the path.
"""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, Field, ValidationError, model_validator

from retinabench.core.errors import InputError, nearest
from retinabench.core.results import JsonObject
from retinabench.core.settings import Extended, Frozen, first_problem, read_toml
from retinabench.methods.registry import METHODS
from retinabench.methods.settings import Optimizer, TrainingRun
from retinabench.models.registry import has_choice
from retinabench.models.settings import ModelConfig

HERE = Path(__file__).parent / "presets"
TABLE = HERE / "published.toml"
OF_TABLES = HERE / "table.toml"  # of patients


def find(source: str | Path) -> tuple[Path, JsonObject]:
    """Return the file that holds a configuration, and its content, which the caller may change."""
    if Path(source).suffix == ".toml":
        return Path(source), read_toml(Path(source))
    known = _preset_files()
    name = str(source)
    if name not in known and Path(source).is_file():
        raise InputError("is not named .toml", file=source, hint="Rename a file of settings, or name a preset.")
    if name not in known:
        raise InputError(f"unknown preset '{source}'", hint=f"{nearest(name, known)} Or name a .toml file.")
    file, content = known[name]
    return file, deepcopy(content)


def override(tree: JsonObject, word: str) -> None:
    """Set `a.b=value` in the tree; the value is read as TOML, or taken as text."""
    path, equals, text = word.partition("=")
    if not equals or not path:
        raise InputError(f"'{word}' is not key=value", hint="For example: optimizer.lr=0.01")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    except (ValueError, RecursionError):  # a number of thousands of digits, lists in lists in lists
        raise InputError(f"'{word[:60]}…' holds no usable value", hint="For example: optimizer.lr=0.01") from None
    *tables, key = path.split(".")
    for table in tables:
        inner = tree.setdefault(table, {})
        # `method = "map"` is short for a table with that name.
        tree[table] = inner if isinstance(inner, dict) else {"name": inner}
        tree = tree[table]
    tree[key] = value


def presets() -> dict[str, JsonObject]:
    """Return the content of the configurations that come with the package, by name: `demo/map`, `published/mfvi/country/joint`."""
    return {name: content for name, (_, content) in _preset_files().items()}


def _preset_files() -> dict[str, tuple[Path, JsonObject]]:
    files = {str(path.relative_to(HERE).with_suffix("")): (path, _read(path)) for path in sorted(HERE.glob("*/*.toml"))}
    table = dict(_read(TABLE))
    shared = table.pop("shared")
    rows = {
        f"{kind}/{method}/{task}/{criterion}": (
            TABLE,
            {"task": name, **_run(method, {**block[behaviour], **values}, shared)},
        )
        for kind, behaviour in (("published", "released"), ("corrected", "corrected"))
        for method, block in table.items()
        for task, name in shared[f"{behaviour}_task"].items()
        for criterion, values in block[task].items()
    }
    own = dict(_read(OF_TABLES))
    plain = own.pop("shared")
    for name in [*METHODS, *(name for name in own if name not in METHODS)]:
        rows[f"table/{name}"] = OF_TABLES, {**plain, **own.get(name, {})}
        rows[f"table/{name}"][1]["method"] = {"name": name, **own.get(name, {}).get("method", {})}
    return files | rows


def _run(method: str, row: JsonObject, shared: JsonObject) -> JsonObject:
    optimizer_keys = Optimizer.model_fields
    optimizer = dict(shared["optimizer"]) | {key: row[key] for key in row if key in optimizer_keys}
    # Published as 1 - momentum; rounded to what was printed.
    optimizer["momentum"] = round(1 - row["one_minus_momentum"], 10)
    own = {key: row[key] for key in row if key not in optimizer_keys and key != "one_minus_momentum"}
    return {"model": dict(shared["model"]), "method": {"name": method, **own}, "optimizer": optimizer}


@cache
def _read(path: Path) -> JsonObject:
    return tomllib.loads(path.read_text(encoding="utf-8"))


PROTOCOL = 2  # raise it when the same Run would give other numbers


class CrossValidation(Frozen):
    """Tests every patient once, by a run that was not trained on that patient (`data.splits.fold_splits`)."""

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
    """One training: task, data, model, method, optimiser and seed."""

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
        """Return 12 digits that runs share when they differ in nothing but the seed and the fold that tests."""
        by = self.cross_validation and self.cross_validation.model_copy(update={"fold": None})
        return self.model_copy(update={"seed": 0, "cross_validation": by}).hash(fingerprint)

    def hash(self, fingerprint: str) -> str:
        """Return the first 12 digits of the identity's SHA-256."""
        return hashlib.sha256(self.identity(fingerprint).encode()).hexdigest()[:12]


def load_run(
    source: str | Path | None = None, overrides: Sequence[str] = (), precision: str | None = None, **given: Any
) -> Run:
    """Build a run from a TOML file or preset, then keywords, then `key=value` texts. For a network other than the preset's, settings that this network lacks are left out."""
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
    if not isinstance(now, Mapping) or now.get("name") == before.get("name"):
        return []
    both = [key for key in ("width", "stem", "activation", "pool") if key in before and key in now]
    return [key for key in both if f"model.{key}" not in set_by_hand and not has_choice(str(now.get("name")), key)]


def build_run(tree: Mapping[str, object], file: Path | None = None, set_by_hand: Collection[str] = ()) -> Run:
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
        found: Any = tree
        for key in path:  # members are methods themselves
            found = found.get(key) if isinstance(found, Mapping) else None
        name = found.get("name", "map") if isinstance(found, Mapping) else "map"
        return list(METHODS[str(name)].Config.model_fields)
    tables: dict[str, type[BaseModel]] = {"model": ModelConfig, "optimizer": Optimizer}
    return list((tables.get(path[0], CrossValidation) if path else Run).model_fields)
