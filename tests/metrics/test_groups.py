"""Which columns make groups, and which images are in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.metrics.clinical.subgroups import subgroups_of


def screened(n=300, seed=0, drop=0.0, **columns):
    """Two eyes each; `drop` lowers the logits of diseased eyes on camera B."""
    rng = np.random.default_rng(seed)
    label = np.repeat(rng.random(n) < 0.4, 2)
    camera = np.repeat(np.where(np.arange(n) % 2, "B", "A"), 2)
    z = 4 * label - 2 + np.repeat(rng.normal(size=n), 2) + rng.normal(size=2 * n)
    prob = 1 / (1 + np.exp(-(z - drop * (label & (camera == "B")))))
    given = {"camera": camera, **{name: np.repeat(values, 2) for name, values in columns.items()}}
    return rb.Predictions(
        np.arange(2 * n), label, prob, patient_id=np.repeat(np.arange(n), 2), subgroups=given
    )


def groups(part, **arguments):
    return subgroups_of(part, part.prob > 0.5, np.arange(len(part)) % 4 == 0, **arguments)


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
