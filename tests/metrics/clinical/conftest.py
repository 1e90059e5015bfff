"""The golden evaluation of 400 images."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

from conftest import shared_path


@pytest.fixture
def data():
    with open(shared_path("golden", "evaluation", "inputs_n400.csv")) as handle:
        rows = list(csv.DictReader(handle))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


@pytest.fixture
def golden():
    return json.loads(shared_path("golden", "evaluation", "own_outputs.json").read_text())
