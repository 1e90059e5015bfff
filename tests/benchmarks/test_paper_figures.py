"""The paper's figures for its synthetic examinees."""

import re
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import paper_figures

from support.concept_banks import make_bank


def test_three_examinees_side_by_side(tmp_path, monkeypatch):
    monkeypatch.setattr(paper_figures, "course", lambda *_: np.ones((10, 5)))
    paper_figures.write(make_bank(), tmp_path)
    rows = (tmp_path / "index.html").read_text().split("<tr>")[2:]
    assert [row.count("<img") for row in rows] == [3] * 11  # 2 concepts, each by 4 strategies, and the uncertainty
    assert all((tmp_path / name).stat().st_size for row in rows for name in re.findall(r'src="([^"]+)"', row))
