"""Names of the left and the right eye, as tables in several languages write them."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

NAMES = {
    "left": "left l le lefteye os oi og oe sinister sinistro sinistra izquierdo izquierda izq i ojoizquierdo gauche g "
    "oeilgauche esquerdo esquerda e links linkes",
    "right": "right r re righteye od dexter destro destra derecho derecha der d dcho ojoderecho droit droite oeildroit "
    "direito direita rechts rechtes",
    "": " na nan none null unknown ?",
}
"""English, Latin (OD, OS), Spanish (OD, OI), French (OD, OG), Portuguese (OD, OE), Italian and German."""
EYES = {name: eye for eye, names in NAMES.items() for name in names.split(" ")}


def eye_of(cell: str) -> str | None:
    """Return ``left``, ``right`` or, for an empty cell, an empty text; None if the cell names no eye.

    Case, accents, blanks and punctuation do not matter. Numbers name no eye: 1 is the left one in some tables and the
    right one in others.

    Args:
        cell: The cell of a table.
    """
    plain = unicodedata.normalize("NFKD", cell.casefold().replace("œ", "oe"))
    return EYES.get("".join(letter for letter in plain if letter.isalnum() or letter == "?"))


def eyes_of(cells: Sequence[str]) -> tuple[list[str], list[str]]:
    """Read a column of eyes.

    Args:
        cells: N cells.

    Returns:
        N eyes, unknown ones empty, and the distinct cells that name no eye, in the order in which they appear.
    """
    found = [eye_of(cell) for cell in cells]
    unread = [cell for cell, eye in zip(cells, found, strict=True) if eye is None]
    return [eye or "" for eye in found], list(dict.fromkeys(unread))
