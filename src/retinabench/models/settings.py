"""The settings of a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, field_validator, model_validator

from retinabench.core.errors import nearest, sha256
from retinabench.core.settings import Extended
from retinabench.models.registry import MODELS, has_choice, published_width, special_inputs

TIMM = "timm:"  # what the name of a timm backbone starts with
OWN = re.compile(r"(?!timm:)[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.\w+)*")  # package.module:function of a user
HUB = "hf-hub:"  # what the name of weights on the Hugging Face hub starts with
Channels = tuple[float, float, float]
SCALES: dict[str, tuple[Channels, Channels]] = {  # mean and std of the channels in [0, 1], as weights were trained with
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "lite": ((127 / 255,) * 3, (128 / 255,) * 3),
}
OPTIONAL_SETTINGS = (
    "activation", "pool", "weights", "weights_sha256", "trained", "hidden", "trunk_lr", "layer_decay", "size",
)  # fmt: skip


class ModelConfig(Extended):
    """The network of a run on images."""

    _later = OPTIONAL_SETTINGS  # most networks do not have them

    name: str = "resnet18"
    width: int = Field(64, ge=1)
    stem: Literal["standard", "small"] = "standard"
    inputs: Literal["standardised", "unit", "imagenet", "lite"] = "standardised"
    activation: Literal["relu", "leaky_relu"] = "relu"
    pool: Literal["mean", "mean_max"] = "mean"
    weights: str | None = None
    weights_sha256: str | None = None
    trained: Literal["all", "head"] | Annotated[int, Field(ge=1)] = "all"
    hidden: int | None = Field(None, ge=1)
    trunk_lr: float = Field(1.0, gt=0, le=1)
    layer_decay: float = Field(1.0, gt=0, le=1)
    size: int | None = Field(None, ge=14)  # of the images, for vision transformers of timm that are made for one size

    @property
    def weights_file(self) -> Path | None:
        """The checkpoint that `weights` names, None where it names none."""
        return Path(self.weights).expanduser() if self.weights and is_path(self.weights) else None

    @property
    def own(self) -> bool:
        return is_own(self.name)

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in MODELS:
            # A name such as `hf-hub:…` or `local-dir:…` would make timm read files and the network.
            if not is_own(name) and (not re.fullmatch(rf"{TIMM}[\w.-]+", name) or ".." in name):
                known = [*MODELS, f"{TIMM}NAME", "package.module:function"]
                raise ValueError(f"unknown model '{name}'. {nearest(name, known)}")
        elif inputs := special_inputs(name):
            raise ValueError(f"'{name}' takes {inputs}, not images of any size")
        return name

    @field_validator("trained", mode="wrap")
    @classmethod
    def _all_head_or_stages(cls, given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(given)
        except ValidationError:  # of each kind of value, of which the first would be shown alone
            raise ValueError("should be 'all', 'head' or a number of stages from 1") from None

    @model_validator(mode="before")
    @classmethod
    def _defaults_of_the_network(cls, given: Any) -> Any:
        given = _with_name({"name": given} if callable(given) else given)
        if not isinstance(given, dict):
            return given
        name, weights = str(given.get("name")), given.get("weights")
        if name in MODELS and (width := published_width(name)):
            given = {"width": width, **given}
        if weights is not None:
            given = {"inputs": "lite" if "efficientnet_lite" in name else "imagenet", **given}
            if isinstance(weights, str) and is_path(weights) and "weights_sha256" not in given:
                file = Path(weights).expanduser()
                try:
                    given = {**given, "weights_sha256": sha256(file)}
                except OSError as error:
                    other = f"Name a checkpoint, 'imagenet', 'timm' or '{HUB}NAME'"
                    raise ValueError(f"{file}: {error.strerror or error}. {other}") from None
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        timm = self.name.startswith(TIMM)
        for choice in ("width", "stem", "activation", "pool"):
            other = getattr(self, choice) != ModelConfig.model_fields[choice].default
            if other and not has_choice(self.name, choice):
                what = {"pool": "way of pooling"}.get(choice, choice)
                raise ValueError(f"'{self.name}' has one {what}. Leave out model.{choice}")
        if self.size is not None and not timm:
            raise ValueError(f"'{self.name}' is not made for one size of images. Leave out model.size")
        if timm and self.weights is None and re.search(r"\.[\w-]+$", self.name):
            raise ValueError(
                f"'{self.name}' names pretrained weights, which are not asked for. Set model.weights=timm or a path, "
                f"or leave out '{self.name[self.name.rindex('.') :]}' for random weights"
            )
        if self.weights is not None and self.weights.startswith(HUB) and self.weights_sha256 is None:
            raise ValueError(
                f"'{self.weights}' would be fetched without a check. Set model.weights_sha256 to the SHA-256 of its "
                "model.safetensors, which the page of the file on the hub shows"
            )
        if self.weights == "timm" and not timm:
            raise ValueError(f"'{self.name}' is not a network of timm. Set model.name=timm:NAME")
        if self.weights is None and self.trained != "all":
            raise ValueError("a trunk of random weights cannot stay as it is. Set model.weights")
        if self.weights is None and (self.trunk_lr != 1 or self.layer_decay != 1):
            which = "trunk_lr" if self.trunk_lr != 1 else "layer_decay"
            raise ValueError(f"model.{which} is of a pretrained trunk. Set model.weights, or leave it out")
        if self.trained == "head" and self.inputs == "standardised":
            fixed = "Set model.inputs to a fixed scale"
            raise ValueError(f"features are computed once, whatever the training images. {fixed}")
        if self.hidden is not None and self.trained != "head":
            raise ValueError("a hidden layer belongs to a head that is trained alone. Set model.trained=head")
        return self


def is_own(name: str) -> bool:
    """Return whether a network's name is ``package.module:function`` of a user."""
    return OWN.fullmatch(name) is not None and name not in MODELS


def _with_name(given: Any) -> Any:
    """Put the name of a function in its place; other processes import it by that name."""
    if not isinstance(given, dict) or not callable(function := given.get("name")):
        return given
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if name is None:
        kind = type(function).__name__
        raise ValueError(f"a {kind} is not a function that makes a network, and every run needs a new one")
    if module in (None, "__main__") or "<" in name:
        where = "Put it into a module, at its top level"
        raise ValueError(f"the function {name} cannot be imported by other processes. {where}")
    return {**given, "name": f"{module}:{name}"}


def is_path(weights: str) -> bool:
    """Return whether `ModelConfig.weights` names a file, and not a package, timm or the hub."""
    return weights not in ("imagenet", "timm") and not weights.startswith(HUB)
