"""A folder of a user's own images with one CSV."""

from collections.abc import Iterable
from pathlib import Path

from support.kaggle_layout import drawn


def write_own(root: Path, lines: Iterable[str], names=("a/1.jpg", "a/2.jpg", "b/1.jpg", "b/3.png")) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(drawn(name, 3))
    (root / "ours.csv").write_text("\n".join(lines))
    return root


def prepare_own(source: Path, out: Path) -> list[str]:
    options = ["--source", str(source), "--out", str(out), "--size", "16", "--workers", "1", "-q"]
    return ["prepare", "folder", *options]
