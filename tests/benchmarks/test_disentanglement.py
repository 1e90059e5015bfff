"""Aleatoric and epistemic uncertainty against their truths: a case by hand, a simulation where they are apart, and the command."""

import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

import retinabench as rb

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

from disentanglement import PAIRS, columns_of, correlations, main, with_intervals


def entropy(p):
    return -p * np.log(p) - (1 - p) * np.log(1 - p)


def test_estimates_and_truths_of_one_image():
    predictions = rb.Predictions(["a"], [1], [[0.2, 0.6]], patient_id=["p"])
    found = columns_of(predictions, np.array([0.5]))
    assert found["aleatoric"] == pytest.approx((entropy(0.2) + entropy(0.6)) / 2)
    assert found["epistemic"] == pytest.approx(entropy(0.4) - (entropy(0.2) + entropy(0.6)) / 2)
    assert found["noise"] == pytest.approx(np.log(2))
    assert found["error"] == pytest.approx(0.5 * np.log(0.5 / 0.4) + 0.5 * np.log(0.5 / 0.6))


def test_a_model_that_knows_both_and_one_that_knows_neither():
    """Samples around a p that is off by a known amount, as far apart as it is off: each estimate follows its own truth alone."""
    rng = np.random.default_rng(0)
    n = 4000
    true = rng.choice([0.05, 0.2, 0.5], n)
    off = rng.uniform(0, 1.2, n)  # on the logit scale
    middle = np.log(true / (1 - true)) + off * rng.choice([-1, 1], n)
    samples = 1 / (1 + np.exp(-(middle[:, None] + off[:, None] * rng.standard_normal((n, 64)))))
    ids = [str(number) for number in range(n)]
    patient = [str(number // 2) for number in range(n)]
    label = (rng.random(n) < true).astype(int)
    knows = columns_of(rb.Predictions(ids, label, samples, patient_id=patient), true)
    own, crossed, own_too, crossed_too, each_other = correlations(knows)
    assert min(own, own_too) > 0.75
    assert max(crossed, crossed_too, each_other) < 0.5
    assert own == pytest.approx(spearmanr(knows["aleatoric"], knows["noise"]).statistic)
    guesses = columns_of(rb.Predictions(ids, label, rng.random((n, 8)), patient_id=patient), true)
    for (middle, low, high), pair in zip(with_intervals([guesses, guesses], 100), PAIRS, strict=True):
        if pair.startswith("epistemic"):
            assert low < middle < high
            assert abs(middle) < 0.06  # 4 standard errors of 4,000 images


@pytest.mark.slow
def test_the_command_at_small_size(tmp_path, capsys):
    words = [word for setting in ("optimizer.epochs=1", "model.width=4") for word in ("--words", setting)]
    small = ["--images", "256", "--size", "16", "--seeds", "1", "--members", "2", "--replicates", "5", "--workers", "1"]
    table = tmp_path / "table.csv"
    rows = main(["--out", str(tmp_path), "--table", str(table), "--methods", "dropout", *small, *words])
    assert [row["method"] for row in rows] == ["MC dropout", rows[1]["method"]]
    assert "nsemble" in rows[1]["method"]
    assert all(len(row["cells"]) == len(PAIRS) + 2 for row in rows)
    assert table.read_text().count("\n") == 3
    assert "| MC dropout |" in capsys.readouterr().out
