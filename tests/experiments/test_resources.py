"""Where a run is computed."""

from __future__ import annotations

import pytest

from retinabench.core.errors import InputError
from retinabench.experiments.resources import Resources


def test_an_absent_device_is_refused_in_one_line():
    with pytest.raises(InputError, match="no device 'tpu' here"):
        Resources("tpu").torch_device()
