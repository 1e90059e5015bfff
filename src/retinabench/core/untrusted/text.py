"""Untrusted text in what we write: no terminal, page or spreadsheet reads it as more than text.

Names of methods, images and columns come from files that anyone may have written. Each writer escapes what its own format would
read as more than text (Jinja does for HTML, `renderers` for Markdown and LaTeX); here is what they share.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufff9-\ufffb]"
)
_FORMULA = re.compile("'*[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")  # the last four are the wide forms
_QUOTED = re.compile(f"'{_FORMULA.pattern}")
_NUMBER = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]{1,3})?")
FORMULA = f"^{_FORMULA.pattern}"
QUOTED_ARROW = f"^'({_FORMULA.pattern})"
"""What `plain_cell` may quote and what it has quoted, as regular expressions of Arrow; the group of the latter is what stays."""


def json_object(text: str | bytes) -> dict[str, Any]:
    """Return an untrusted JSON object, all of which can be written again.

    Args:
        text: Its text.

    Returns:
        Its content.

    Raises:
        ValueError: It is no JSON, no object, nested too deep, or holds a whole number beyond those of floats or half a surrogate
            pair, which no file or page can show.
    """
    try:
        content = json.loads(text, parse_int=_whole)
        json.dumps(content, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(content, dict):
        raise ValueError("it is no JSON object")
    return content


def _whole(digits: str) -> int:
    value = int(digits)
    if abs(value) >= 2**1023:
        raise ValueError("it holds a number that is too large")
    return value


def visible(text: str) -> str:
    r"""Return text with its control characters spelled out, such as `\x1b`; line ends and tabs stay.

    A terminal would execute them, and characters that reverse the order of letters would show another name.
    """
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), text)


def plain_cell(text: str) -> str:
    """Return a cell of a CSV that a spreadsheet does not read as a formula: an apostrophe goes before ``=``, ``+``, ``-`` and ``@``.

    Numbers stay as they are. `unquoted` is the inverse for every text.

    Example:
        >>> plain_cell("=1+1"), plain_cell("-0.5"), plain_cell("plain")
        ("'=1+1", '-0.5', 'plain')
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unquoted(text: str) -> str:
    """Return the text that `plain_cell` wrote."""
    return text[1:] if _QUOTED.match(text) else text


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as CSV, the header among them; text passes through `visible` and `plain_cell`, and what is no text stays as it is.

    Args:
        rows: The cells of each line.
    """
    sink = io.StringIO(newline="")
    writer = csv.writer(sink, lineterminator="\n")
    writer.writerows(
        [plain_cell(visible(cell)) if isinstance(cell, str) else cell for cell in row] for row in rows
    )
    return sink.getvalue()
