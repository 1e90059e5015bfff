"""Take the picture of README's first screen: the first screen of the demo's report, by a headless Chromium.

    python tools/pictures.py [--demo retinabench-demo] [--out docs/images/report.png]

The demo is computed where its folder does not hold a report yet, and found where it does: `make pictures`.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
WIDTH, HEIGHT = 1280, 1000


def browser() -> str:
    """Return the path of a browser that takes screenshots; ends the program where there is none."""
    for name in BROWSERS:
        if found := shutil.which(name):
            return found
    raise SystemExit(f"no browser found: install one of {', '.join(BROWSERS)}")


def screenshot(page: Path, out: Path) -> None:
    """Write the first screen of a page."""
    from PIL import Image

    size = f"--window-size={WIDTH},{HEIGHT}"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", size, f"--screenshot={out}"]
    subprocess.run([browser(), *options, page.resolve().as_uri()], check=True, capture_output=True)
    with Image.open(out) as image:
        opaque = image.convert("RGB")
    opaque.save(out, optimize=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Compute the demo if need be, and write the picture."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--demo", type=Path, default=Path("retinabench-demo"))
    parser.add_argument("--out", type=Path, default=Path("docs/images/report.png"))
    options = parser.parse_args(arguments)
    page = options.demo / "report" / "index.html"
    if not page.is_file():
        subprocess.run([sys.executable, "-m", "retinabench", "demo", "--out", options.demo], check=True)
    screenshot(page, options.out)
    print(options.out)


if __name__ == "__main__":
    main()
