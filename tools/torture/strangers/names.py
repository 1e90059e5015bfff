"""Names that are more than text to a page, a spreadsheet, a terminal or a document; and outputs in which none is."""

from __future__ import annotations

import base64
import csv
import getpass
import hashlib
import io
import json
import re
import socket
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from retinabench.core.untrusted import visible
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions
from torture.fuzz.case import Case

PIECES = (
    "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "javascript:alert(1)", "[x](javascript:alert(1))",
    "=cmd|' /C calc'!A0", "+1+1", "@SUM(A1)", "-2+3", "\uff1d1", "\x1b[2J\x1b]0;owned\x07", "[bold red]x[/]", "[/nothing]",
    "\\input{/etc/passwd}", "$\\frac{1}{0}$", "$", "%", "a|b`c*d_e", "\u202eabc", "</svg><script>", "]]>", "{{ 7*7 }}", "--><b>",
)  # fmt: skip
ADDRESSES = ("href", "src", "action", "formaction", "xlink:href", "srcset", "poster")
NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")


def cases(random: np.random.Generator) -> Iterator[Case]:
    """Yield each verb that writes names, on names drawn at random."""
    for _ in range(3):
        names = [" ".join(random.choice(PIECES, random.integers(1, 3))) for _ in range(8)]

        def write(folder: Path, names: list[str] = names) -> None:
            write_named(folder, names)

        two = ("@/a.parquet", "@/b.npz")
        for what, arguments in (
            ("score", ("score", *two, "--json", "@/s.json", "--bootstrap", "20")),
            ("list", ("score", "@/a.parquet", "--referral-list", "@/r.csv", "--referral", "0.2", "--bootstrap", "0")),
            ("report", ("report", *two, "--out", "@/report", "--bootstrap", "20", "--quiet")),
            ("compare", ("compare", *two, "--json", "@/c.json", "--bootstrap", "20", "--quiet")),
            ("inspect", ("inspect", "@/a.parquet")),
            ("clinic", ("clinic", "@/a.parquet", "--out", "@/clinic", "--quiet")),
        ):
            yield Case(
                "strangers/names", f"{what} with {names[0]!a}", {}, arguments, check=wrong, must="accept", prepare=write
            )


def write_named(folder: Path, names: list[str]) -> None:
    """Write two predictions files whose every name is one of `names`."""
    rng, n = np.random.default_rng(0), 80
    label = (np.arange(n) % 3 == 0).astype(int)
    prob = 1 / (1 + np.exp(-rng.normal(2 * label - 1, 1)))
    site = np.array([visible(names[k % 4])[:100] for k in range(n)])
    ids = np.array([f"{visible(names[0])}{k}" for k in range(n)])
    patients = np.array([f"{visible(names[2])[:20]}p{k // 2}" for k in range(n)])
    for number, file in enumerate(("a.parquet", "b.npz")):
        found = Predictions(
            ids, label, prob, patient_id=patients,
            subgroups={re.sub(r"[\x00-\x1f\x7f]", "", names[3])[:90]: site},
            metadata={"title": names[4 + number], "method": names[4 + number], "setting": names[6], "run": names[7]},
        )  # fmt: skip
        write_predictions(found, folder / file)


def wrong(folder: Path, printed: str) -> str:
    """Return what in the outputs would be read as more than text, or tells of this machine."""
    if "\x1b" in printed:
        return "standard error holds an escape sequence"
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or path.name in ("a.parquet", "b.npz") or path.suffix in (".png", ".pdf"):
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        found = {".html": _html, ".csv": _csv, ".json": _json}.get(path.suffix, _text)(text)
        private = [
            word for word in (str(folder), getpass.getuser(), socket.gethostname()) if len(word) > 4 and word in text
        ]
        if found or private:
            return f"{path.relative_to(folder)} {found or f'holds {private[0]}'}"
    return ""


class _Page(HTMLParser):
    """Collects what would run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note scripts, handlers and addresses that are not of this page."""
        if tag in ("script", "iframe", "object", "embed", "base", "link"):
            self.found.append(tag)
        for name, value in attrs:
            elsewhere = not (value or "").startswith(("#", "data:image/"))
            if name.startswith("on") or (name in ADDRESSES and elsewhere):
                self.found.append(f"{tag} {name}={value}")


def _html(text: str) -> str:
    page = _Page()
    # The one script that we write, which the page's policy names by its hash, and data in which no tag can begin.
    own = re.sub(r'<script type="application/json"[^>]*>[^<]*</script>', "", text)
    for script in re.findall(r"<script>(.*?)</script>", own, flags=re.DOTALL)[-1:]:
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        own = own.replace(f"<script>{script}</script>", "") if f"'sha256-{digest}'" in own else own
    page.feed(own)
    return f"would run {page.found[0][:80]}" if page.found else _text(text)


def _csv(text: str) -> str:
    for row in csv.reader(io.StringIO(text, newline="")):
        for cell in row:
            if cell[:1] in tuple("=+-@\t\r\uff1d") and not NUMBER.fullmatch(cell):
                return f"holds the formula {cell[:40]!r}"
    return _text(text)


def _json(text: str) -> str:
    json.loads(text)
    return _text(text)


def _text(text: str) -> str:
    return "" if visible(text) == text else "holds control characters"
