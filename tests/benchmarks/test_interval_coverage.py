"""Nominal 95 % intervals hold the truth in about 95 % of simulated studies, and tests at 5 % reject about 5 %. The simulation is
`benchmarks/interval_coverage.py`, whose table is `docs/tables/coverage.csv`; this is a small part of it."""

import gzip
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from conftest import shared_path

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import interval_coverage as simulation

STUDIES = 30


@pytest.fixture(scope="module", autouse=True)
def _small():
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in (("POPULATIONS", 1), ("POPULATION", 20_000), ("REPLICATES", 60)):
            monkeypatch.setattr(simulation, name, value)
        yield
    simulation.truth.cache_clear()


def test_intervals_cover_and_tests_keep_their_level():
    """30 studies of 60 patients: the standard error of one coverage of 95 % is 4 points, of the mean of all about 1.2."""
    found = [simulation.study(("simulated", 60, number), None) for number in range(STUDIES)]
    shares = {row[2:4]: row[6] for row in simulation.coverage(found, None) if row[4] >= STUDIES / 2}
    wanted = {("in_domain", "accuracy"), ("in_domain", "auroc"), ("in_domain", "line_slope"), ("a - b", "nll")}
    assert wanted <= set(shares)
    assert min(shares.values()) >= 0.95 - 4.5 * 0.04
    assert 0.93 <= np.mean(list(shares.values())) <= 0.99
    p = np.array([one["p"][name] for one in found for name in ("accuracy", "auroc", "nll", "brier")], np.float64)
    assert np.mean(p < 0.05) <= 0.05 + 0.05  # 240 p-values of 30 studies


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["accurate", "rare"])
def test_intervals_cover_where_errors_and_disease_are_rare(tmp_path, variant):
    """30 studies of 100 patients of a population like a real model's on real patients, where t intervals held in 54 to 85 %."""
    table = tmp_path / "population.csv"
    table.write_bytes(gzip.decompress(shared_path("cases", "population.csv.gz").read_bytes()))
    found = [simulation.study((variant, 100, number), table) for number in range(STUDIES)]
    shares = {row[3]: row[6] for row in simulation.coverage(found, table) if row[4] >= STUDIES / 2}
    wanted = {"auroc", "nll", "brier", "aurc", "e_aurc", "augrc", "referral_nll_area", "gain_at_50"}
    wanted |= {
        "specificity with reader", "npv at 10 %", "net benefit at 0.2", "rps", "coverage of sets, alike",
        "specificity, all sites at once",
    }  # fmt: skip
    assert wanted <= set(shares)
    assert min(shares[name] for name in wanted) >= 0.95 - 4.5 * 0.04


def test_a_killed_run_is_continued(tmp_path, monkeypatch, capsys):
    out = tmp_path / "coverage.jsonl"
    arguments = ["interval_coverage.py", "--patients", "30", "--settings", "simulated", "--out", str(out), "--studies"]
    for studies in ("1", "2", "2"):
        monkeypatch.setattr(sys, "argv", [*arguments, studies])
        simulation.main()
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["study"] for one in lines] == [0, 1]
    assert "simulated,30,in_domain,accuracy,2,100.0," in capsys.readouterr().out
