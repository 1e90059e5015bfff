"""The fixture that looks at figures sees what it should."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

pytestmark = pytest.mark.usefixtures("legible")


@pytest.mark.parametrize(
    ("place", "said"), [((0.3, 0.5), None), ((0.5, 0.5), "cover each other"), ((1.2, 0.9), "leave the canvas")]
)
def test_texts_that_cover_each_other_or_leave_the_canvas_are_seen(tmp_path, place, said):
    figure = Figure(figsize=(4, 3))
    axes = figure.add_subplot()
    axes.text(0.5, 0.5, "one")
    axes.text(*place, "another", transform=axes.transAxes)
    if said is None:
        figure.savefig(tmp_path / "figure.svg")
    else:
        with pytest.raises(AssertionError, match=said):
            figure.savefig(tmp_path / "figure.svg")
