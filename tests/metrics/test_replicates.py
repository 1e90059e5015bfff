"""Replicates that are kept between commands: the same bits, not computed twice, and never from a damaged file."""

import json

import numpy as np
import pytest

import retinabench as rb
from metrics.test_classification import predictions
from retinabench.cli.main import run
from retinabench.metrics import image_sets
from retinabench.reports.evaluation import evaluation


@pytest.fixture
def calls(tmp_path, monkeypatch):
    """The numbers of scores of each bootstrap that is computed, in a cache of its own for sets of any size."""
    made, compute = [], image_sets.cluster_bootstrap

    def counted(statistic, *given, **settings):
        made.append(len(statistic.scores))
        return compute(statistic, *given, **settings)

    monkeypatch.setattr(image_sets, "cluster_bootstrap", counted)
    monkeypatch.setattr(image_sets, "WORTH_KEEPING", 0)
    monkeypatch.setenv(image_sets.VARIABLE, str(tmp_path / "cache"))
    return made


def test_a_second_command_reads_the_same_bits(tmp_path, calls, monkeypatch):
    file = tmp_path / "p.csv"
    rb.write_predictions(predictions(), file)

    def scored(*options):
        calls.clear()
        assert run(["score", str(file), "-q", "--bootstrap", "40", "--json", str(tmp_path / "s.json"), *options]) == 0
        return json.loads((tmp_path / "s.json").read_text()), len(calls)

    first, computed = scored()
    assert computed == 4
    assert scored() == (first, 0)
    for path in (tmp_path / "cache").glob("*.npz"):
        path.write_bytes(path.read_bytes()[:-9] + b"damaged!!")
    assert scored() == (first, 4)
    assert scored() == (first, 0)
    for options in (["--seed", "1"], ["--threshold", ".4"]):
        assert scored(*options)[1] > 0, options
    monkeypatch.setenv(image_sets.VARIABLE, "")
    assert scored() == (first, 4)
    (tmp_path / "closed").write_text("a file where a folder is needed")
    monkeypatch.setenv(image_sets.VARIABLE, str(tmp_path / "closed"))
    assert scored() == (first, 4)


def test_a_second_report_is_the_same_page_without_the_replicates_of_its_curves(tmp_path, calls, monkeypatch):
    rb.write_predictions(predictions().select(domain="in_domain"), tmp_path / "p.csv")

    def page():
        assert run(["report", str(tmp_path / "p.csv"), "-q", "--bootstrap", "40", "--out", str(tmp_path / "out")]) == 0
        return (tmp_path / "out" / "index.html").read_bytes()

    first = page()
    monkeypatch.setattr(evaluation, "all_curves", None)
    assert page() == first


def test_a_comparison_computes_only_what_score_did_not(calls, monkeypatch):
    a, b = predictions(), predictions(probs=np.random.default_rng(3).random(len(predictions())))

    def compared():
        return rb.compare(a, b, bootstrap=40, sets=["in_domain"], scores=["nll", "brier_skill"]).to_dict()

    rb.score(a, bootstrap=40)
    calls.clear()
    found = compared()
    assert calls == [1, 2]
    monkeypatch.setenv(image_sets.VARIABLE, "")
    assert compared() == found


def test_the_oldest_files_are_deleted(calls, tmp_path, monkeypatch):
    monkeypatch.setattr(image_sets, "MOST_BYTES", 50_000)
    for seed in range(6):
        rb.score(predictions().select(domain="in_domain"), bootstrap=100, seed=seed)
    assert 0 < sum(path.stat().st_size for path in (tmp_path / "cache").iterdir()) <= 50_000
