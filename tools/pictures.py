"""Take the pictures of `docs/gallery.md` anew: the first screen of a page, or a figure, for each of its sections.

    python tools/pictures.py [SECTION …] [--work build/gallery]

A section names a command and, behind an arrow, what it writes; its picture is `docs/images/NAME`. Commands run in the folder
`--work`, one after the other, and are skipped where their result is there already. Needs a Chromium.
"""

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTH, HEIGHT = 1280, 900
COLOURS = 64  # of a picture: few, so that it stays small
MOST_BYTES = 120_000


class Section(NamedTuple):
    """A picture of the gallery: the commands that make what it shows, and its file."""

    title: str
    commands: list[str]
    shown: str
    picture: str


def sections(text: str) -> Iterator[Section]:
    for part in text.split("\n## ")[1:]:
        commands = re.search(r"```sh\n(.*?)```", part, re.DOTALL)
        shown = re.search(r"→ `([^`]+)`", part)
        picture = re.search(r"\]\((images/[^)]+)\)", part)
        if commands and shown and picture:
            yield Section(part.partition("\n")[0], commands[1].replace("\\\n", " ").splitlines(), shown[1], picture[1])


def browser() -> str:
    """Return the path of a browser that takes screenshots; ends the program where there is none."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    raise SystemExit(f"no browser found: install one of {', '.join(BROWSERS)}")


def screenshot(page: Path, out: Path, width: int = WIDTH, height: int = HEIGHT) -> None:
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        options += ["--hide-scrollbars"]
        options += [f"--user-data-dir={profile}", f"--window-size={width},{height}", f"--screenshot={out}"]
        subprocess.run([browser(), *options, page.resolve().as_uri()], check=True, capture_output=True)


def make(section: Section, work: Path, done: set[str]) -> None:
    """Run the commands of a section that are not `done`, where need be, and write its picture in few colours."""
    shown, out = work / section.shown, ROOT / "docs" / section.picture
    if not shown.is_file():
        for line in (one for one in section.commands if one not in done):
            words = [sys.executable if word == "python" else word for word in shlex.split(line, comments=True)]
            words[:1] = [sys.executable, "-m", "retinabench"] if words[0] == "retinabench" else words[:1]
            words = [one for word in words for one in (sorted(map(str, work.glob(word))) if "*" in word else [word])]
            subprocess.run(words, check=True, cwd=work)
            done.add(line)
    if shown.suffix == ".html":
        screenshot(shown, out)
    with Image.open(out if shown.suffix == ".html" else shown) as image:
        picture = Image.new("RGB", image.size, "white")
        picture.paste(image, mask=image.getchannel("A") if image.mode == "RGBA" else None)
    picture.thumbnail((WIDTH, WIDTH))
    picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(out, optimize=True)
    if out.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{out}: larger than {MOST_BYTES:,} bytes")


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "gallery")
    options = parser.parse_args(arguments)
    work, done = options.work.resolve(), set[str]()
    work.mkdir(parents=True, exist_ok=True)
    if not (examples := work / "examples").exists():
        examples.symlink_to(ROOT / "examples")
    for section in sections((ROOT / "docs" / "gallery.md").read_text(encoding="utf-8")):
        if not options.sections or section.title in options.sections:
            make(section, work, done)
            print(section.picture, flush=True)


if __name__ == "__main__":
    main()
