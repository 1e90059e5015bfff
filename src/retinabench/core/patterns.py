"""Regular expressions from files of others, matched by RE2 in linear time: `(a+)+$` would keep Python's own matcher busy for years."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import pyarrow as pa
import pyarrow.compute
from pydantic import AfterValidator


def _checked(pattern: str) -> str:
    try:
        groups_of(pattern, "")
    except pa.ArrowInvalid as error:
        raise ValueError(f"'{pattern}' is not a regular expression of RE2: {error}") from None
    return pattern


Pattern = Annotated[str, AfterValidator(_checked)]
"""A regular expression as RE2 has it: as in Python, but without look-around and references back. Its groups have names, or are `(?:...)`."""


def groups_of_each(pattern: str, texts: Sequence[str]) -> list[dict[str, str] | None]:
    """Return the named groups of the first match of a pattern in each text, with the whole match as `match`; None without a match."""
    matches: list[dict[str, str] | None]
    matches = pa.compute.extract_regex(pa.array(texts, pa.string()), f"(?P<match>{pattern})").to_pylist()
    return matches


def groups_of(pattern: str, text: str) -> dict[str, str] | None:
    """Return what `groups_of_each` gives of one text."""
    return groups_of_each(pattern, [text])[0]
