"""From the name of a bank and a folder to its images and their truth."""

from __future__ import annotations

from pathlib import Path

from retinabench.concepts.banks import masks
from retinabench.concepts.banks.definition import BankDefinition
from retinabench.concepts.banks.masks import read_coco, read_mask_files
from retinabench.concepts.banks.tables import read_label_table
from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET, Progress
from retinabench.data.archives import open_files
from retinabench.data.dataset import ConceptImages
from retinabench.data.datasets import idrid_lesions


def read_images(
    definition: BankDefinition,
    source: Path | None,
    *,
    images: int | None = None,
    seed: int = 0,
    progress: Progress = QUIET,
) -> ConceptImages:
    if definition.synthetic is not None:
        if source is not None:
            raise InputError("synthetic retinas are rendered, not read", hint="Leave --source out.")
        number = definition.synthetic.images if images is None else images
        return masks.drawn(number, seed=seed, population=definition.synthetic.population)
    if images is not None:
        raise InputError("--images is for synthetic data only", hint="Leave it out.")
    if source is None:
        raise InputError("the bank is read from a folder or zip", hint="Name it with --source DIR.")
    if definition.idrid is not None:
        return idrid_lesions.read(source)
    files = open_files(source)
    if definition.table is not None:
        return read_label_table(definition, definition.table, files)
    if definition.masks is not None:
        return read_mask_files(definition, definition.masks, files, progress)
    assert definition.coco is not None
    return read_coco(definition, definition.coco, files)
