"""The contract of a data set that `retinabench prepare` reads: its records, its images, and where its files come from."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError
from retinabench.data.archives import Remote, shared_files
from retinabench.data.dataset import Records
from retinabench.data.preprocessing.preprocess import Recipe, preprocess_bytes


class Encoded(NamedTuple):
    """The bytes of an image file and its name for messages."""

    data: bytes
    name: str


def read_file(source: str, root: Path | None) -> Encoded:
    files = shared_files(root or Path())
    return Encoded(files.read(source), files.where(source))


def file_stamp(source: str, root: Path | None) -> str:
    """Return size and time of change of the file that holds one image below `root`; empty without a root."""
    return shared_files(root).stamp(source) if root is not None else ""


@dataclass(frozen=True)
class ImageDataset:
    """How a data set is read. Its data card is `text`, else the docstring of the module that defines `records`."""

    records: Callable[..., Records]  # `records(source, survey=…, **options)`; `survey` collects what is not used
    steps: str  # how to get the files by hand
    encoded: Callable[[str, Path | None], Encoded] = read_file  # of a `Records.source` below the folder
    read: Callable[[str, Path | None, Recipe], NDArray[np.uint8]] | None = None  # makes the pixels where no files exist
    remote: Callable[[int], Remote] | None = None  # what can be downloaded without a login, for an image size
    stamp: Callable[[str, Path | None], str] = file_stamp  # changes when the bytes of an image may have changed
    options: tuple[str, ...] = ("split",)  # of `records`, as the command line spells them in Python
    needs_source: bool = True  # whether the data set is read from files
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # split -> images of grades 0 … 4, or of all
    text: str = ""  # the data card, as Markdown
    label: str = ""  # what label 1 means, of a set without the five grades

    def image(self, source: str, root: Path | None, recipe: Recipe) -> NDArray[np.uint8]:
        if self.read is not None:
            return self.read(source, root, recipe)
        data, name = self.encoded(source, root)
        return preprocess_bytes(data, recipe, name)

    @property
    def card(self) -> str:
        return self.text or inspect.getdoc(sys.modules[self.records.__module__]) or ""

    def check_options(self, name: str, source: Path | None, options: Mapping[str, object]) -> None:
        for key in options:
            if key not in self.options:
                shown = f"--{key.replace('columns', 'column')}"
                raise InputError(f"{shown} is not an option of the data set '{name}'", hint="Leave it out.")
        if self.needs_source and source is None:
            raise InputError(f"{name} is read from files", hint=f"Name them with --source. {self.steps}")
