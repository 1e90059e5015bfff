"""Images whose truth stands in a CSV: CheXpert, RFMiD, ODIR, ChestX-ray14, and any folder with a table."""

from __future__ import annotations

import re

import numpy as np

from retinabench.concepts.banks.bank import UNKNOWN
from retinabench.concepts.banks.definition import BankDefinition, LabelTable
from retinabench.concepts.banks.source_files import collected, one_file, patient_of
from retinabench.core.errors import InputError
from retinabench.data.dataset import ConceptImages
from retinabench.data.ingest.archives import Files
from retinabench.data.ingest.labels import Row, read_table


def read_label_table(definition: BankDefinition, layout: LabelTable, files: Files) -> ConceptImages:
    """Read the images and the truth of a table."""
    name, base = one_file(files, layout.file)
    where = files.where(name)
    needed = [*layout.images, *layout.texts, *([layout.patient] if layout.patient else []), *layout.where]
    wanted = {concept: _words(given) for concept, given in definition.concepts.items()}
    columns = [] if layout.texts else [word for words in wanted.values() for word in words]
    rows = _chosen(read_table(files, name, [*needed, *columns]), layout)
    if not rows:
        raise InputError(
            "holds no row that the bank reads", file=where, hint="See `where` of its definition."
        )
    if not wanted and not layout.texts:
        own = [*needed, *layout.ignored]
        wanted = {column: [column] for column in rows[0][1] if column and column not in own}
    if not wanted:
        raise InputError(
            "names no concepts", file=where, hint="Add [concepts] to the definition of the bank."
        )
    names, patients, truth = [], [], []
    for row in rows:
        for place, column in enumerate(layout.images):
            label = _truth(row, wanted, layout, place, where)
            if label is None:
                continue
            image = base + layout.path.replace("{image}", row[1][column].lstrip("/"))
            if image not in files:
                raise InputError(f"its image '{image}' is missing", file=where, row=row[0], column=column)
            names.append(image)
            patients.append(
                row[1][layout.patient] if layout.patient else patient_of(image, layout.patient_pattern)
            )
            truth.append(label)
    return collected(definition, files, names, list(wanted), np.array(truth, np.int8), patients)


def _words(given: str | list[str]) -> list[str]:
    return [given] if isinstance(given, str) else given


def _chosen(rows: list[Row], layout: LabelTable) -> list[Row]:
    return [row for row in rows if all(row[1][column] in cells for column, cells in layout.where.items())]


def _truth(
    row: Row, wanted: dict[str, list[str]], layout: LabelTable, place: int, where: str
) -> list[int] | None:
    """Return the truth of one image, None where it is left out."""
    if not layout.texts:
        return [_joint([_meaning(row, word, layout, where) for word in words]) for words in wanted.values()]
    items = _items(row[1][layout.texts[place]], layout)
    if not items or any(word.casefold() in item for item in items for word in layout.leave_out):
        return None
    return [
        int(any(word.casefold() in item for item in items for word in words)) for words in wanted.values()
    ]


def _joint(meanings: list[int]) -> int:
    """Return the truth of a concept of several columns: present in one of them, absent in all, or unknown."""
    return 1 if 1 in meanings else min(meanings)


def _items(text: str, layout: LabelTable) -> list[str]:
    parts = re.split(f"[{re.escape(layout.separators)}]", text)
    return [item.strip().casefold() for item in parts if item.strip()]


def _meaning(row: Row, column: str, layout: LabelTable, where: str) -> int:
    number, cells = row
    for meaning, known in ((1, layout.present), (0, layout.absent), (UNKNOWN, layout.unknown)):
        if cells[column] in known:
            return meaning
    raise InputError(
        f"is '{cells[column]}', which has no meaning",
        file=where,
        row=number,
        column=column,
        hint=f"Present is {', '.join(layout.present)}, absent {', '.join(layout.absent)}; "
        "the definition of the bank may name others, and unknown ones.",
    )
