"""Workflows of others' code hold no token, and the actions that they use cannot change under the same name."""

import re
import tomllib
from pathlib import Path

import pytest

WORKFLOWS = sorted((Path(__file__).resolve().parents[2] / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_and_checkouts_keep_no_token(path):
    text = path.read_text()
    used = re.findall(r"uses: (\S+)", text)
    assert [one for one in used if not re.fullmatch(r"\S+@[0-9a-f]{40}", one)] == []
    for job in re.split(r"\n  (?=\w[\w-]*:\n)", text):
        if "actions/checkout" in job and "contents: write" not in job:
            assert job.count("persist-credentials: false") == job.count("actions/checkout")
        if "contents: write" in job or "id-token: write" in job:
            assert ".ci/run" not in job
            assert "make dist" not in job


ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)


@pytest.mark.parametrize("name", ["all", "scores", "train"])
def test_locks_hold_a_hash_of_everything_and_agree_with_the_pins(name):
    text = (ROOT / "locks" / f"{name}.txt").read_text()
    pins = dict(PIN.findall((ROOT / "constraints.txt").read_text()))
    found = dict(PIN.findall(text))
    assert {one: version for one, version in found.items() if pins.get(one, version) != version} == {}
    assert [one for one in re.split(r"\n(?=\w)", text) if "--hash=sha256:" not in one] == []
    assert "://" not in text


def test_locks_cover_what_is_installed_from_them():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    every = {"scores": [], "train": ["train", "pretrained"], "all": ["train", "dev", "test", "docs", "hmc"]}
    for name, wanted in every.items():
        needed = [*project["dependencies"], *(one for extra in wanted for one in extras[extra])]
        locked = {one for one, _ in PIN.findall((ROOT / "locks" / f"{name}.txt").read_text())}
        names = {re.match(r"[\w.-]+", one)[0] for one in needed}
        assert names - locked - {"retinabench"} == set(), name


def test_ci_and_the_image_install_by_hash():
    """Only the jobs that try other versions, or timm, on purpose install without; they hold no token."""
    files = [ROOT / "Dockerfile", *WORKFLOWS]
    lines = [line for file in files for line in file.read_text().splitlines() if "pip install" in line]
    bare = [line.strip() for line in lines if "--require-hashes" not in line and "--no-deps" not in line]
    assert bare == [
        "- run: python -m pip install uv",
        "- run: uv pip install --system --resolution ${{ matrix.resolution }} --editable ./references --editable '.[train,test]'",
        "- run: python -m pip install uv",
        "- run: uv pip install --system --editable ./references --editable '.[train,test]' 'timm>=1.0.20'",
    ]
    for path in WORKFLOWS:
        text = path.read_text()
        assert 'LOCKED: "1"' in text or "make " not in text, path.name
