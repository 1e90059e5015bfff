"""Reading back what was shown: a written report with its page as elements and numbers, and the lines of a terminal."""

import base64
import csv
import hashlib
import io
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console


def round_image(image_id: str) -> np.ndarray | None:
    """Return pixels for every second image."""
    number = int(image_id.rsplit("-", 1)[1])
    if number % 2:
        return None
    y, x = np.mgrid[-1:1:320j, -1:1:400j]
    inside = (x**2 + y**2 < 0.9)[..., None]
    return (inside * np.array([200, 90, number % 255])).astype(np.uint8)


def printed(shown: object, width: int = 80) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    console.print(shown)
    return console.file.getvalue()


@dataclass(frozen=True)
class Written:
    """A written report: its page, and its numbers as read back."""

    page: Path
    html: str
    records: list[dict[str, Any]]
    table: list[dict[str, str]]

    @classmethod
    def read(cls, page: Path) -> "Written":
        with open(page.parent / "table.csv", newline="") as handle:
            table = list(csv.DictReader(handle))
        records = json.loads((page.parent / "scores.json").read_text())
        return cls(page, page.read_text(), records, table)


class Reader(HTMLParser):
    """Collects elements with their attributes, and the text that is read in each number."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.numbers: list[tuple[dict[str, str | None], str]] = []
        self.open: list[str] = []
        self._number: dict[str, str | None] | None = None
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in ("meta", "img", "input", "br", "path", "use", "line"):
            self.open.append(tag)
        if "data-value" in dict(attrs):
            self._number = dict(attrs)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self._number is not None:
            self.numbers.append((self._number, data))
            self._number = None


def without_script(html: str) -> str:
    """Return a page without its own script and without its data, after checking that its policy allows no other script."""
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', html)
    assert policy
    assert "default-src 'none'" in policy[1]
    (script,) = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy[1]
    return re.sub(r'<script( type="application/json"[^>]*)?>.*?</script>', "", html, flags=re.DOTALL)
