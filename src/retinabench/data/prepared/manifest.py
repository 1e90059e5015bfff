"""`dataset.json`, which marks a prepared folder as complete, and the settings that its images were made with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from retinabench.core.errors import InputError, printable
from retinabench.core.files import check
from retinabench.core.results import Document, JsonObject
from retinabench.core.untrusted import kept_inside

COMPLETE = "dataset.json"
FORMAT = 2  # of the folder and of the content of every image: raise it when either changes
AGAIN = "Delete the folder and prepare it again."
MAX_SIDE, MAX_NAME = 4096, 200  # pixels of a side, characters of the name: of folders that someone sends
PIXEL_SETTINGS = ("preprocess", "blur", "published")
_KINDS = {
    "dataset": str, "source": str, "label_table": str, "corrupt": str, "preprocess": str, "blur": int,
    "published": bool, "columns": dict,
}  # fmt: skip


@dataclass(frozen=True)
class PreparedSettings:
    """What a folder was prepared with; None where it does not say, as in folders made by hand."""

    dataset: str | None = None
    source: str | None = None
    label_table: str | None = None
    corrupt: str | None = None
    preprocess: str | None = None
    blur: int | None = None
    published: bool | None = None
    columns: Mapping[str, str] | None = None
    content: JsonObject = field(default_factory=dict, repr=False)

    @classmethod
    def from_json(cls, content: object) -> PreparedSettings:
        """Read the settings of a file."""
        if not isinstance(content, dict):
            raise ValueError(f"settings is {str(content)[:60]!r}")
        known = {key: content.get(key) for key in _KINDS}
        for key, value in known.items():
            if value is not None and not isinstance(value, _KINDS[key]):
                raise ValueError(f"settings.{key} is {str(value)[:60]!r}")
        return cls(**known, content=content)

    def to_dict(self) -> JsonObject:
        """Return all settings, as the file holds them."""
        return self.content

    @property
    def graded(self) -> bool:
        """Whether the labels were read from grades."""
        return "label" not in (self.columns or {})

    def other_pixels(self, other: PreparedSettings) -> list[str]:
        """Return which of `PIXEL_SETTINGS` differ."""
        return [key for key in PIXEL_SETTINGS if getattr(self, key) != getattr(other, key)]

    def same_source(self, other: PreparedSettings) -> bool:
        """Whether one of two folders holds damaged copies of the other's images, so that their patients are the same."""
        damaged = self.corrupt is not None or other.corrupt is not None
        pairs = ((self.source, other.source), (self.label_table, other.label_table))
        return damaged and self.dataset == other.dataset and any(a and a == b for a, b in pairs)


@dataclass(frozen=True, kw_only=True)
class Manifest(Document):
    """What `dataset.json` says; a folder that was made by hand leaves out what may be None."""

    name: str
    format: int = FORMAT
    size: int
    images: int | None = None
    bad: int | None = None
    concepts: tuple[str, ...] | None = None
    fingerprint: str
    source_sha256: str | None = None
    shards: tuple[str, ...]
    settings: PreparedSettings
    version: str | None = None

    _optional = ("images", "bad", "concepts", "source_sha256", "version")

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read the manifest of a finished folder."""
        path = kept_inside(folder, folder / COMPLETE)
        content = json.loads(check(path, AGAIN).read_text(encoding="utf-8"))
        if content.get("format") != FORMAT:
            raise InputError(
                "was prepared by another version of retinabench "
                f"(format {content.get('format', 1)}; this one reads format {FORMAT})",
                file=folder,
                hint="Delete it and prepare it again.",
            )
        return cls.from_json(content)

    @classmethod
    def from_json(cls, content: JsonObject) -> Manifest:
        """Read the content of a file of this format."""
        for key, kind in {"name": str, "size": int, "fingerprint": str, "shards": list}.items():
            if not isinstance(content[key], kind):
                raise ValueError(f"{key} is {str(content[key])[:60]!r}")
        name, size, concepts = content["name"], content["size"], content.get("concepts")
        if not 1 <= size <= MAX_SIDE:
            raise ValueError(f"size is {size}")
        if printable(name, MAX_NAME) != name:
            raise ValueError(f"name is no line of at most {MAX_NAME} characters")
        if not isinstance(concepts, list | None):
            raise ValueError(f"concepts is {str(concepts)[:60]!r}")
        return cls(
            name=name,
            size=size,
            images=content.get("images"),
            bad=content.get("bad"),
            concepts=None if concepts is None else tuple(concepts),
            fingerprint=content["fingerprint"],
            source_sha256=content.get("source_sha256"),
            shards=tuple(content["shards"]),
            settings=PreparedSettings.from_json(content.get("settings", {})),
            version=content.get("version"),
        )
