"""The script behind docs/tables/synthetic.csv, at toy scale, and its excess risk against a closed form."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import entropy

# The script's processes import it by name, so that its folder is on their path.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

import results


def test_the_excess_risk_is_the_mean_divergence_and_the_expected_excess_nll():
    random = np.random.default_rng(0)
    true, prob = random.uniform(size=200), random.uniform(0.01, 0.99, size=200)
    true[:2] = 0, 1
    both = entropy([true, 1 - true], [prob, 1 - prob], axis=0)
    assert results.excess_risk(true, prob) == pytest.approx(both.mean(), rel=1e-12)
    assert results.excess_risk(true, true) == pytest.approx(0, abs=1e-12)  # 1 is clipped
    expected_nll = -(true * np.log(prob) + (1 - true) * np.log(1 - prob)).mean()
    assert results.excess_risk(true, prob) == pytest.approx(expected_nll - entropy([true, 1 - true]).mean(), rel=1e-12)


@pytest.mark.slow
def test_the_table_at_toy_scale(tmp_path):
    table = tmp_path / "synthetic.csv"
    words = ["model.width=4", "model.stem=small", "optimizer.epochs=1", "optimizer.batch_size=16"]
    arguments = ["--out", str(tmp_path / "out"), "--table", str(table), "--methods", "dropout", "--images", "60",
                 "--size", "32", "--seeds", "2", "--workers", "1", *words]  # fmt: skip
    rows = results.main(arguments)
    singles = {"MAP": 2, "MC dropout": 2}
    ensembles = {"ensemble of 2 MAP": 1, "ensemble of 2 MC dropout": 1}
    assert {name: len(rows[name]) for name in singles | ensembles} == singles | ensembles
    assert json.loads((tmp_path / "out" / "results.json").read_text()) == rows
    text = table.read_text()
    assert text.startswith("set,method,accuracy,AUROC,")
    assert text.count(",ensemble of 2 MC dropout,") == 2
    # The members of the ensembles are the single runs: no network was trained twice.
    trained = [f.parent for f in (tmp_path / "out" / "runs").glob("*/posterior.pt")]
    assert len(trained) == 4
    for scores in rows["MAP"]:
        assert scores["in_domain"]["excess_risk"] > 0
    assert results.main(arguments) == rows  # a second command finds everything done


def test_a_method_that_breaks_is_a_row_and_not_the_end():
    good = {name: dict.fromkeys(results.NAMES, 0.8) for name in results.SETS}
    poor = {name: dict.fromkeys(results.NAMES, 0.7) for name in results.SETS}
    constant = {name: scores | {"auroc": 0.5} for name, scores in good.items()}
    rows = {"MAP": [good, good], "a": [poor], "b": "the loss is not finite", "c": [constant]}
    of_map, a, b, c = results.table(rows, "shifted")
    assert b[1:3] == ["b", "did not train: the loss is not finite"]
    assert [row[-1] for row in (of_map, a, c)] == ["yes", "no", "no"]
    assert {len(row) for row in (of_map, a, b, c)} == {3 + len(results.NAMES)}
