"""The settings of a network."""

from __future__ import annotations

import inspect
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from retinabench.core.errors import nearest
from retinabench.core.settings import Frozen
from retinabench.models.registry import MODELS

TIMM = "timm:"  # what the name of a timm backbone starts with


class ModelConfig(Frozen):
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
        if name not in MODELS and not name.startswith(TIMM):
            raise ValueError(f"unknown model '{name}'. {nearest(name, [*MODELS, f'{TIMM}NAME'])}")
        return name

    @model_validator(mode="before")
    @classmethod
    def _own_width(cls, given: Any) -> Any:
        if isinstance(given, dict) and isinstance(name := given.get("name"), str):
            return {"width": published_width(name), **given}
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.name.startswith(TIMM) and self.width != ModelConfig.model_fields["width"].default:
            raise ValueError(f"'{self.name}' has one width. Leave out model.width")
        if self.stem != "standard" and not has_stems(self.name):
            raise ValueError(f"'{self.name}' has one stem. Leave out model.stem")
        return self


def published_width(name: str) -> int:
    """Return the width that a network was published with; the default, meaning nothing, where there is no choice."""
    if name not in MODELS:
        return int(ModelConfig.model_fields["width"].default)
    return int(inspect.signature(MODELS[name]).parameters["width"].default)


def has_stems(name: str) -> bool:
    """Say whether a network has more than one stem."""
    return name in MODELS and "stem" in inspect.signature(MODELS[name]).parameters
