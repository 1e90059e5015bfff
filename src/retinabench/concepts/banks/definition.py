"""The definition of a concept bank: one TOML file that says how images and the truth of their concepts are read.

A file has a title and exactly one of the tables `table`, `masks`, `coco`, `idrid` and `synthetic`; the others that come
with the package are examples of each (`definitions/`). Paths are below the folder or zip that ``--source`` names, at any depth.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from retinabench.core.errors import InputError, nearest
from retinabench.core.patterns import Pattern
from retinabench.core.results import JsonObject
from retinabench.core.settings import Frozen, first_problem, read_toml
from retinabench.data.preprocessing.graham import Crop

HERE = Path(__file__).parent / "definitions"


class LabelTable(Frozen):
    """Images with a CSV of their truth, one row per image or per patient."""

    file: str
    image: str | list[str] = "image"
    path: str = "{image}"
    patient: str | None = None
    patient_pattern: Pattern | None = None
    present: tuple[str, ...] = ("1", "1.0")
    absent: tuple[str, ...] = ("0", "0.0")
    unknown: tuple[str, ...] = ("",)
    text: str | list[str] | None = None
    separators: str = ",;|"
    leave_out: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    where: dict[str, tuple[str, ...]] = Field(default_factory=dict)

    @property
    def images(self) -> list[str]:
        return [self.image] if isinstance(self.image, str) else self.image

    @property
    def texts(self) -> list[str]:
        """The columns with text, one for each of `images`; empty where concepts have columns."""
        return [self.text] if isinstance(self.text, str) else self.text or []

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.texts and len(self.texts) != len(self.images):
            raise ValueError("text names a column for each column of image")
        if "{image}" not in self.path:
            raise ValueError("path holds no {image}")
        kinds = [set(self.present), set(self.absent), set(self.unknown)]
        if len(set.union(*kinds)) < sum(map(len, kinds)):
            raise ValueError("a cell cannot mean two of present, absent and unknown")
        return self


class MaskFiles(Frozen):
    """Images with one mask file per concept as their truth."""

    images: str
    mask: str
    missing: Literal["absent", "error"] = "error"
    level: int = Field(127, ge=0, le=254)
    patient_pattern: Pattern | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if "{image}" not in self.mask or "{concept}" not in self.mask:
            raise ValueError("mask holds no {image} or no {concept}")
        return self


class CocoFile(Frozen):
    """Images with annotations in the layout of COCO: JSON with ``images``, ``annotations`` and ``categories``."""

    file: str
    path: str = "{image}"
    patient_pattern: Pattern | None = None


class Idrid(Frozen):
    """The lesions of IDRiD, in either layout of `data.datasets.idrid_lesions`."""


class Synthetic(Frozen):
    """Retinas that are drawn when they are asked for."""

    images: int = Field(400, ge=10)
    population: Literal["in_domain", "shifted"] = "in_domain"


class BankDefinition(Frozen):
    """How a concept bank is read."""

    title: str
    reference: str = ""
    licence: str = ""
    download: str = ""
    crop: Crop = "whole"
    size: int = Field(224, ge=16, le=2048)
    concepts: dict[str, str | list[str]] = Field(default_factory=dict)
    held_out: float = Field(0.3, gt=0, lt=1)  # as 43 of the 143 images of the published experiment
    table: LabelTable | None = None
    masks: MaskFiles | None = None
    coco: CocoFile | None = None
    idrid: Idrid | None = None
    synthetic: Synthetic | None = None
    network: JsonObject = Field(default_factory=dict)

    @property
    def words(self) -> dict[str, list[str]]:
        """Concept -> what the source calls it."""
        return {name: [given] if isinstance(given, str) else given for name, given in self.concepts.items()}

    @field_validator("concepts", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        """A list names concepts that are called so in the source."""
        return {str(name): str(name) for name in given} if isinstance(given, list) else given

    @model_validator(mode="after")
    def _one_layout(self) -> Self:
        if sum(getattr(self, name) is not None for name in LAYOUTS) != 1:
            raise ValueError(f"needs exactly one of the tables {', '.join(LAYOUTS)}")
        if self.masks is not None and not self.concepts:
            raise ValueError("masks need concepts: the names in the mask files")
        return self


LAYOUTS: dict[str, type[Frozen]] = {
    "table": LabelTable, "masks": MaskFiles, "coco": CocoFile, "idrid": Idrid, "synthetic": Synthetic,
}  # fmt: skip


def bank_names() -> list[str]:
    return sorted(file.stem for file in HERE.glob("*.toml"))


def find_definition(name: str) -> BankDefinition:
    file = Path(name)
    if file.suffix != ".toml":
        if name not in bank_names():
            raise InputError(f"unknown bank '{name}'", hint=f"{nearest(name, bank_names())} Or name a .toml file.")
        file = HERE / f"{name}.toml"
    try:
        return BankDefinition.model_validate(read_toml(file))
    except ValidationError as error:
        raise first_problem(error, file, _keys) from None


def _keys(tables: Any) -> list[str]:
    return list(LAYOUTS.get(tables[0] if tables else "", BankDefinition).model_fields)
