"""Names of a definition found among the files of a source, and what all layouts share."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from retinabench.concepts.banks.definition import BankDefinition
from retinabench.core.errors import InputError
from retinabench.data.dataset import ConceptImages
from retinabench.data.ingest.archives import Files
from retinabench.data.preprocessing.decode import decode
from retinabench.data.preprocessing.squares import Crop, square_image


def matching(files: Files, pattern: str) -> list[tuple[str, str]]:
    """Return the files whose last parts fit a pattern, each with the folder that those parts begin in."""
    wanted = PurePosixPath(pattern).parts
    found = []
    for name in files.names():
        parts = PurePosixPath(name).parts
        last = parts[-len(wanted) :]
        if len(last) == len(wanted) and all(map(fnmatch.fnmatchcase, last, wanted)):
            base = "/".join(parts[: len(parts) - len(wanted)])
            found.append((name, f"{base}/" if base else ""))
    return found


def one_file(files: Files, pattern: str) -> tuple[str, str]:
    """Return the one file that fits a pattern, and the folder that the pattern begins in."""
    found = matching(files, pattern)
    if not found:
        raise InputError(
            f"holds no file '{pattern}'", file=files.root, hint="Point --source at the whole data set."
        )
    if len(found) > 1:
        raise InputError(
            f"holds {len(found)} files '{pattern}'",
            file=files.root,
            hint=f"Point --source at the folder of one of them, such as {found[0][1] or found[0][0]}",
        )
    return found[0]


def collected(
    definition: BankDefinition,
    files: Files,
    names: Sequence[str],
    concepts: Sequence[str],
    truth: NDArray[np.int8],
    patients: Sequence[str] | None = None,
) -> ConceptImages:
    """Return a collection of image files without masks.

    Shapes: `names` (N,), `truth` (N, C), `patients` (N,).
    """
    if not names:
        raise InputError("holds no image of the bank", file=files.root)
    ids = _ids(names)
    return ConceptImages(
        sample_id=np.array(ids),
        concepts=tuple(concepts),
        truth=truth,
        patient_id=np.array(patients if patients is not None else ids),
        image=lambda row, size: image_of(files, names[row], size, definition.crop),
    )


def image_of(files: Files, name: str, size: int, crop: Crop) -> NDArray[np.uint8]:
    """Return an image file as a square (size, size, 3)."""
    return square_image(opened(files, name, 2 * size if crop == "whole" else None), size, crop)


def opened(files: Files, name: str, at_least: int | None = None) -> Image.Image:
    """Return an image file, decoded."""
    return decode(files.read(name), files.where(name), at_least)


def patient_of(name: str, pattern: str | None) -> str:
    """Return the patient that a pattern finds in the name of an image; the name where there is no pattern or no match."""
    found = re.search(pattern, name) if pattern else None
    return found[0] if found else name


def _ids(names: Sequence[str]) -> list[str]:
    """Return the shortest names without endings that differ: file stems, or paths where stems repeat."""
    stems = [PurePosixPath(name).stem for name in names]
    if len(set(stems)) == len(stems):
        return stems
    paths = [str(PurePosixPath(name).with_suffix("")) for name in names]
    if len(set(paths)) < len(paths):
        twice = next(name for name in paths if paths.count(name) > 1)
        raise InputError(f"the image '{twice}' is named twice", hint="Name each image once.")
    return paths
