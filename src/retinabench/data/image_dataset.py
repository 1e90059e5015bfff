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
    """Read the bytes of one image below `root`, from a folder or an archive."""
    files = shared_files(root or Path())
    return Encoded(files.read(source), files.where(source))


def file_stamp(source: str, root: Path | None) -> str:
    """Return size and time of change of the file that holds one image below `root`; empty without a root."""
    return shared_files(root).stamp(source) if root is not None else ""


@dataclass(frozen=True)
class ImageDataset:
    """How a data set is read. Its data card is `text`, else the docstring of the module that defines `records`.

    Args:
        records: ``records(source, survey=…, **options)`` -> `Records`. Source: the downloaded folder or archive;
            survey: collects labels and files that are not used; split: puts all images into one split. Raises
            `InputError` for a bad label or file, which names file, row and column.
        steps: How to get the files by hand, in one paragraph.
        encoded: ``encoded(source, root)`` -> the bytes of the image file of one `Records.source` below the folder `root`.
        read: ``read(source, root, recipe)`` -> image (size, size, 3), for data sets whose images do not come from files.
        remote: ``remote(size)`` -> the file that can be downloaded without a login, for an image size.
        stamp: ``stamp(source, root)`` -> text that changes when the bytes of an image may have changed.
        options: Names of the options of `records`, as the command line spells them in Python.
        needs_source: Whether the data set is read from files.
        counts: Split -> images of grades 0 … 4, or of all grades where they are not published by split; of the complete
            data set, for plans that are made before it is there.
        text: The data card, as Markdown.
    """

    records: Callable[..., Records]
    steps: str
    encoded: Callable[[str, Path | None], Encoded] = read_file
    read: Callable[[str, Path | None, Recipe], NDArray[np.uint8]] | None = None
    remote: Callable[[int], Remote] | None = None
    stamp: Callable[[str, Path | None], str] = file_stamp
    options: tuple[str, ...] = ("split",)
    needs_source: bool = True
    counts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    text: str = ""

    def image(self, source: str, root: Path | None, recipe: Recipe) -> NDArray[np.uint8]:
        """Return one image, preprocessed.

        Args:
            source: An entry of `Records.source`.
            root: The folder of the data set, or None.
            recipe: How the image is made.

        Returns:
            The image (size, size, 3), RGB.
        """
        if self.read is not None:
            return self.read(source, root, recipe)
        data, name = self.encoded(source, root)
        return preprocess_bytes(data, recipe, name)

    @property
    def card(self) -> str:
        """The data card, as Markdown."""
        return self.text or inspect.getdoc(sys.modules[self.records.__module__]) or ""

    def check_options(self, name: str, source: Path | None, options: Mapping[str, object]) -> None:
        """Check the options of a `prepare` command.

        Args:
            name: The data set.
            source: Its files, where they are named.
            options: The options that are set, by name.

        Raises:
            InputError: The data set has no such option, or the source is missing.
        """
        for key in options:
            if key not in self.options:
                shown = f"--{key.replace('columns', 'column')}"
                raise InputError(f"{shown} is not an option of the data set '{name}'", hint="Leave it out.")
        if self.needs_source and source is None:
            raise InputError(f"{name} is read from files", hint=f"Name them with --source. {self.steps}")
