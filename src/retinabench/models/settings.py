"""The settings of a network."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from retinabench.core.errors import nearest
from retinabench.core.settings import Frozen
from retinabench.models.registry import MODELS, has_stems, published_width, special_inputs

TIMM = "timm:"  # what the name of a timm backbone starts with


class ModelConfig(Frozen):
    """The network of a run on images.

    Args:
        name: A name of `MODELS`, or ``timm:NAME``.
        width: Number of channels of the first layer, or of hidden units; default: as published.
        stem: ``small`` suits images of 32 to 128 pixels, where the network has that choice.
        inputs: ``standardised`` channels (mean 0, std 1 over the training images), or the ``unit`` interval.
    """

    name: str = "resnet18"
    width: int = Field(64, ge=1)
    stem: Literal["standard", "small"] = "standard"
    inputs: Literal["standardised", "unit"] = "standardised"

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in MODELS:
            if not name.startswith(TIMM):
                raise ValueError(f"unknown model '{name}'. {nearest(name, [*MODELS, f'{TIMM}NAME'])}")
        elif inputs := special_inputs(name):
            raise ValueError(f"'{name}' takes {inputs}, not images of any size")
        return name

    @model_validator(mode="before")
    @classmethod
    def _own_width(cls, given: Any) -> Any:
        name = given.get("name") if isinstance(given, dict) else None
        if name is not None and name in MODELS and (width := published_width(name)):
            return {"width": width, **given}
        return given

    @model_validator(mode="after")
    def _fits(self) -> Self:
        fixed = self.name.startswith(TIMM) or published_width(self.name) is None
        if fixed and self.width != ModelConfig.model_fields["width"].default:
            raise ValueError(f"'{self.name}' has one width. Leave out model.width")
        if self.stem != "standard" and (self.name.startswith(TIMM) or not has_stems(self.name)):
            raise ValueError(f"'{self.name}' has one stem. Leave out model.stem")
        return self
