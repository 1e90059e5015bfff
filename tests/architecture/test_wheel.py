"""The wheel holds every module and every data file of the package, nothing else, and stays under 10 MB."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_wheel_holds_every_file_of_the_package(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    files = {path.relative_to(tree / "src").as_posix() for path in (tree / "src").rglob("*") if path.is_file()}
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(tmp_path)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=tree, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("retinabench-*.whl")
    assert wheel.stat().st_size < 10e6
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if not name.partition("/")[0].endswith(".dist-info")}
        (points,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "retinabench = retinabench.cli.main:main" in archive.read(points).decode()
        (page,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
    assert held == files
    # On a package index nothing lies beside the page.
    assert "**Does a deep model know when it does not know?**" in page
    links = re.findall(r"\]\(([^)]+)\)|src=\"([^\"]+)\"", page)
    assert len(links) > 15
    assert all("".join(link).startswith("https://") for link in links)
