"""Workflows of others' code hold no token, and the actions that they use cannot change under the same name."""

from __future__ import annotations

import re
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
