"""The card of a submission: what the method is, where its code is, what it cost and which data it saw; `card.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, ValidationError, field_validator

from retinabench.core.errors import InputError
from retinabench.core.settings import Frozen, first_problem
from retinabench.core.untrusted.paths import kept_inside
from retinabench.core.untrusted.text import visible

FILE = "card.toml"
MOST_BYTES = 64 * 1024
Line = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4000, strip_whitespace=True)]


class Card(Frozen):
    """What a submission says of itself.

    Args:
        name: Short name for folders and links: small letters, digits and hyphens.
        title: What tables call the method.
        method: What it does, a few sentences.
        authors: Who submits it.
        code: Address of the code, https://…; empty for what comes with this package.
        paper: Address of a paper, https://…, or empty.
        compute: On what it was computed, and for how long.
        hours: Hours of computation of one seed, on that machine.
        data: Data that it was trained on beside the training images of the benchmark, one line each.
        pretrained: Whether any weights come from other data.
        ensemble: Trained networks that are pooled in one prediction, 1 for a single one.
        deterministic: Whether the method has no randomness, so that one seed is enough.
        tuned_on: What its settings were chosen on; the test images are not allowed.
        images_sha256: Benchmark -> `listing_sha256` of the images that it was trained and tested on, which
            `retinabench prepare BENCHMARK` prints.
    """

    name: str = Field(max_length=60)
    title: Line
    method: Text
    authors: Line
    code: str
    paper: str = ""
    compute: Line
    hours: float = Field(ge=0, le=1e7)
    data: tuple[Line, ...] = Field(default=(), max_length=50)
    pretrained: bool
    ensemble: int = Field(1, ge=1, le=100_000)
    deterministic: bool = False
    tuned_on: Literal["nothing", "training", "validation"]
    images_sha256: dict[str, str] = Field(default_factory=dict, max_length=50)

    @field_validator("name")
    @classmethod
    def _slug(cls, given: str) -> str:
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", given):
            raise ValueError("use small letters, digits and single hyphens, such as deep-ensemble-5")
        return given

    @field_validator("title", "authors", "compute", "method", "data")
    @classmethod
    def _visible(cls, given: str | tuple[str, ...]) -> str | tuple[str, ...]:
        for text in (given,) if isinstance(given, str) else given:
            if visible(text) != text:
                raise ValueError("holds control characters, or characters that change the order of letters")
        return given

    @field_validator("code", "paper")
    @classmethod
    def _address(cls, given: str) -> str:
        if given and not is_address(given):
            raise ValueError("is no address that begins with https://")
        return given


def is_address(text: str) -> bool:
    """Tell whether a text is an https address that a page may link to."""
    if len(text) > 500 or re.search(r"[\s<>\"'`\\\x00-\x20\x7f]", text) or visible(text) != text:
        return False
    try:
        parts = urlsplit(text)
        return parts.scheme == "https" and bool(parts.hostname) and "@" not in parts.netloc
    except ValueError:
        return False


def read_card(folder: Path) -> Card:
    """Read the card of a submission.

    Args:
        folder: The submission.

    Returns:
        The card.

    Raises:
        InputError: There is none, or an entry is missing, unknown or not valid.
    """
    file = kept_inside(folder, folder / FILE)
    try:
        if file.stat().st_size > MOST_BYTES:
            raise InputError(f"is larger than {MOST_BYTES // 1024} KB", file=file)
        tree = tomllib.loads(file.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise InputError("holds no card.toml", file=folder, hint="examples/card.toml is one.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is not TOML: {error}", file=file) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", file=file) from None
    if tree.get("tuned_on") == "test":
        raise InputError(
            "tuned_on is the test images: a method that saw their labels is not ranked",
            file=file,
            hint="Choose settings on the training or validation images.",
        )
    try:
        card = Card(**tree)
    except ValidationError as error:
        raise first_problem(error, file, _keys) from None
    if not card.code:
        raise InputError("code is empty: a method without public code cannot be checked", file=file)
    return card


def card_toml(card: Card) -> str:
    """Return a card as TOML, the same text for the same card.

    Args:
        card: The card.

    Returns:
        The text, which `read_card` reads.
    """
    lines, tables = [], []
    for key, value in card.model_dump().items():
        if isinstance(value, dict):
            tables += [
                f"\n[{key}]",
                *(f"{_quoted(name)} = {_quoted(of)}" for name, of in sorted(value.items())),
            ]
        elif isinstance(value, tuple):
            lines.append(f"{key} = [{', '.join(map(_quoted, value))}]")
        elif isinstance(value, str):
            lines.append(f"{key} = {_quoted(value)}")
        else:
            lines.append(f"{key} = {str(value).lower() if isinstance(value, bool) else value!r}")
    return "\n".join([*lines, *(tables if len(tables) > 1 else [])]) + "\n"


def _quoted(text: str) -> str:
    """Return a basic string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\u{ord(found[0]):04x}", escaped) + '"'


def _keys(path: Sequence[str]) -> list[str]:
    return list(Card.model_fields) if not path else []
