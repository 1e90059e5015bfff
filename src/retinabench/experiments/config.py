"""A Run: everything that decides the numbers of one training, frozen; its canonical JSON is its identity.

TOML files hold only differences from the defaults; `key=value` words override them:

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializeAsAny,
    ValidationError,
    field_validator,
    model_validator,
)

from retinabench.core.errors import InputError, nearest
from retinabench.experiments.config_sources import find, override
from retinabench.experiments.preset_files import presets as package_presets

TIMM = "timm:"  # what the name of a timm backbone starts with
PROTOCOL = 2  # raise it when the same Run would give other numbers


class Frozen(BaseModel):
    """A configuration that refuses unknown keys and cannot change."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=False, allow_inf_nan=False)


class Model(Frozen):
    """The network: a name of `MODELS` or `timm:NAME`, its width (default: as published), its stem and its inputs.

    inputs: `standardised` channels (mean 0, deviation 1 over training pictures), or the `unit` interval as published.
    """

    name: str = "resnet18"
    width: int = Field(64, ge=1)
    stem: Literal["standard", "small"] = "standard"
    inputs: Literal["standardised", "unit"] = "standardised"

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        from retinabench.models.registry import MODELS

        if name not in MODELS and not name.startswith(TIMM):
            raise ValueError(f"unknown model '{name}'. {nearest(name, [*MODELS, f'{TIMM}NAME'])}")
        return name

    @model_validator(mode="before")
    @classmethod
    def _own_width(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(name := given.get("name"), str):
            from retinabench.models.registry import published_width

            return {"width": published_width(name), **given}
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.name.startswith(TIMM) and self.width != Model.model_fields["width"].default:
            raise ValueError(f"'{self.name}' has one width. Leave out model.width")
        if self.stem != "standard":
            from retinabench.models.registry import has_stems

            if not has_stems(self.name):
                raise ValueError(f"'{self.name}' has one stem. Leave out model.stem")
        return self


class Optimizer(Frozen):
    """The one training loop's settings.

    lr: peak learning rate. momentum: Nesterov momentum (SGD) or beta_1 (Adam).
    l2: adds `l2 * sum(w²)` to the loss, over the parameters of `l2_on`: the `weights` of convolutions and linear
    layers; `everything`, the Gaussian prior N(0, 1 / (2 l2 N)) of all N images' posterior; `norms_and_biases`, as released
    for MFVI and radial; `nothing`, as released for MAP and MC dropout, whose L2
    term was computed over an empty list.
    batch_size: images per step, over all processes. accumulate: parts into which a process cuts its share of a batch to
    save memory; the loss is that of the whole batch, the statistics of batch norm are those of a part.
    schedule: step (x0.2 at one and two thirds), linear (down to `final_lr` * lr) or cosine (down to 0), after
    `warmup` epochs of linear rise from 0. reweight: `minibatch` weighs each class by 1 / (2 p(k)), p from the batch.
    augment: `flip` mirrors at random; `affine` also rotates, shifts and zooms (`data/augment.py`); true and false mean
    flip and none. select: the checkpoint that predicts, by a validation score, or the last.
    """

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
    reweight: Literal["none", "minibatch"] = "minibatch"
    augment: Literal["none", "flip", "affine"] = "flip"
    precision: Literal["float32", "bfloat16"] = "float32"
    select: Literal["auroc", "nll", "last"] = "auroc"

    @field_validator("augment", mode="before")
    @classmethod
    def _once_a_switch(cls, augment: Any) -> Any:
        # Earlier files and run folders say true or false.
        return {True: "flip", False: "none"}[augment] if isinstance(augment, bool) else augment


class Method(Frozen):
    """What every method's configuration has: its name, and how many posterior samples it predicts with.

    `title` is what readers call the method; without one it is its name.
    """

    title: ClassVar[str] = ""

    name: str
    samples: int = Field(1, ge=1)


def method_config(value: Any) -> Any:
    """Build a method's configuration from its name, or from a table that holds its name."""
    from retinabench.methods.registry import METHODS

    if isinstance(value, Method):
        return value
    if not isinstance(value, (str, dict)):
        raise ValueError("should be the name of a method, or a table that holds its name")
    table = {"name": value} if isinstance(value, str) else value
    name = table.get("name", "map")
    if not isinstance(name, str) or name not in METHODS:
        raise ValueError(f"unknown method '{name}'. {nearest(str(name), METHODS)}")
    return METHODS[name].Config(**{**table, "name": name})


AnyMethod = Annotated[SerializeAsAny[Method], BeforeValidator(method_config)]


class Run(Frozen):
    """One training: task, data, model, method, optimiser and seed.

    shifted: a second prepared folder, whose images are the shifted sets.
    """

    data: str
    shifted: str | None = None
    task: str = "country_shift"
    model: Model = Model()
    method: AnyMethod = Field(default_factory=lambda: method_config("map"))
    optimizer: Optimizer = Optimizer()
    seed: int = Field(0, ge=0)

    def identity(self, fingerprint: str) -> str:
        """Return the canonical JSON of all that decides the numbers; `fingerprint` stands for the data."""
        content = self.model_dump(mode="json", exclude={"shifted"})  # the fingerprint holds it
        content |= {"data": fingerprint, "protocol": PROTOCOL}
        return json.dumps(content, sort_keys=True, separators=(",", ":"))

    def setting(self, fingerprint: str) -> str:
        """Return 12 digits that runs share when they differ in nothing but the seed."""
        return self.model_copy(update={"seed": 0}).hash(fingerprint)

    def hash(self, fingerprint: str) -> str:
        """Return the first 12 digits of the identity's SHA-256."""
        return hashlib.sha256(self.identity(fingerprint).encode()).hexdigest()[:12]


def load_run(source: str | Path | None = None, overrides: Sequence[str] = (), **given: Any) -> Run:
    """Build a Run from a TOML file or preset, then `given` keywords, then `key=value` words, the last one winning.

    `source` is a path ending in .toml, or the name of a preset such as `demo/map`. Raises `InputError` that names the
    file or word, the key, and the nearest valid key.
    """
    file, tree = find(source, Optimizer.model_fields) if source is not None else (None, {})
    tree |= {key: value for key, value in given.items() if value is not None}
    for word in overrides:
        override(tree, word)
    return build_run(tree, file)


def build_run(tree: Mapping[str, Any], file: Path | None = None) -> Run:
    """Build a Run from nested tables; raises `InputError` that names `file`, the key, and the nearest valid key."""
    try:
        return Run(**tree)
    except ValidationError as error:
        raise _first_problem(error, file) from None


def presets() -> dict[str, dict[str, Any]]:
    """Return the content of the configurations that come with the package, by name."""
    return {name: content for name, (_, content) in package_presets(Optimizer.model_fields).items()}


def _first_problem(error: ValidationError, file: Path | None) -> InputError:
    """Turn pydantic's first complaint into one line."""
    problem = error.errors()[0]
    where = [str(part) for part in problem["loc"]]
    # The method's table is checked by its own class: unwrap the complaint, however deep members are nested.
    while isinstance(inner := problem.get("ctx", {}).get("error"), ValidationError):
        problem = inner.errors()[0]
        where += [str(part) for part in problem["loc"]]
    key = ".".join(where)
    if problem["type"] == "extra_forbidden":
        return InputError(f"unknown key '{key}'", file=file, hint=nearest(where[-1], _keys(where[:-1])))
    message = problem["msg"].removeprefix("Value error, ").rstrip(".")
    given = "" if isinstance(problem["input"], (dict, Method)) else f" (given: {problem['input']!r})"
    return InputError(f"{key}: {message[:1].lower()}{message[1:]}{given}", file=file)


def _keys(path: Sequence[str]) -> list[str]:
    """Return the valid keys of the table at `path`."""
    from retinabench.methods.registry import METHODS

    if path and path[0] == "method":
        return sorted({key for method in METHODS.values() for key in method.Config.model_fields})
    tables: Mapping[str, type[BaseModel]] = {"model": Model, "optimizer": Optimizer}
    return list((tables[path[0]] if path else Run).model_fields)
