"""Which columns make groups, and which images are in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from retinabench.core.errors import InputError
from support.two_cameras import groups, screened


def test_columns_become_groups_or_say_why_not():
    n = 120
    rng = np.random.default_rng(3)
    age = rng.integers(25, 85, n).astype(float)
    age[0] = np.nan
    part = screened(
        n, age=age, sex=rng.choice(["F", "M", ""], n), quality=rng.normal(size=n), grade_of_image=np.arange(n) % 3.0,
        visit=[f"v{k}" for k in range(n)], day=["2026-01-02"] * 60 + ["2026-02-03"] * 60, hospital=["one"] * n,
        gradable=np.ones(n),
    )  # fmt: skip
    found = groups(part)
    assert [one.value for one in found.of("age")] == [
        "below 40", "40 to below 50", "50 to below 60", "60 to below 70", "70 and above", "not known"
    ]  # fmt: skip
    assert sum(one.images for one in found.of("age")) == 2 * n
    assert {one.value for one in found.of("sex")} == {"F", "M", "not known"}
    assert [one.value for one in found.of("grade_of_image")] == ["0", "1", "2"]
    assert len(found.of("quality")) == 4
    assert all(abs(one.images - n / 2) <= 2 for one in found.of("quality"))
    assert set(found.skipped) == {"visit", "day", "hospital"}
    assert found.bins["quality"] == "at its quartiles"
    assert "dates" in found.skipped["day"]
    assert "gradable" not in found.columns


def test_named_columns_must_make_groups():
    part = screened(20, hospital=["one"] * 20)
    assert groups(part, columns=["camera"]).columns == ["camera"]
    with pytest.raises(InputError, match="no column 'site'"):
        groups(part, columns=["site"])
    with pytest.raises(InputError, match="makes no groups"):
        groups(part, columns=["hospital"])


def test_fractions_make_quartiles_whatever_their_column_is_called():
    index = np.linspace(0, 1, 300)
    assert len(groups(screened(blur_index=index), columns=["blur_index"]).groups) == 4
    with pytest.raises(InputError, match="own number"):
        groups(replace(screened(), subgroups={"scan_number": np.arange(600.0)}), columns=["scan_number"])
