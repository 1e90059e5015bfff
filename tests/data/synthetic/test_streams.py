"""The populations that exist."""

from __future__ import annotations

import pytest

from retinabench.core.errors import InputError
from retinabench.data.synthetic.fundus import truth


def test_unknown_populations_are_refused_everywhere() -> None:
    with pytest.raises(InputError, match="Valid: in_domain, shifted"):
        truth(0, population="aptos")
    with pytest.raises(InputError, match="unknown population"):
        truth(0, population="nowhere")
