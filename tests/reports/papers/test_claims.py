"""The claims of the paper of 2021: their differences against the comparison engine, their error rate, and verdicts."""

import json
import math

import numpy as np
import pytest

from retinabench.core.seeds import derive
from retinabench.metrics.comparison import compare
from retinabench.predictions.table import Predictions
from retinabench.reports.papers import claims
from retinabench.reports.papers.claims import CLAIMS, Claim, Judged, JudgedClaim, Number, Statement, judge_claims
from support.fake_predictions import population
from support.written_papers import run, severity_people

SEEDS = [(0,), (1,), (2,)]
AUROC = Number(("dropout",), "country", "in_domain", "auroc")


def of(above, below):
    return [Claim("1", "a claim", (Statement("one", above, below),))]


@pytest.fixture(scope="module")
def country():
    people = population(150, 100)
    titles = {"map": "MAP", "dropout": "MC dropout"}
    runs = {name: [run(title, seed, people) for seed in range(3)] for name, title in titles.items()}
    return {"country": {name: (own, SEEDS) for name, own in runs.items()}}


def test_a_difference_of_two_methods_is_that_of_the_comparison_engine(country):
    (claim,) = judge_claims(country, 100, 0, of(AUROC, Number(("map",), "country", "in_domain", "auroc")))
    models = country["country"]
    options = {"bootstrap": 100, "seed": derive(0, "claims, country"), "scores": ["auroc"]}
    known = compare(models["dropout"][0], models["map"][0], **options)
    difference = known["in_domain"]["auroc"]
    (one,) = claim.statements
    assert (one.difference, one.low, one.high, one.p_holm) == pytest.approx(
        (difference.difference, difference.low, difference.high, difference.p), abs=1e-12
    )


def test_a_gain_over_a_mean_of_methods_is_the_mean_of_the_gains(country):
    both = Number(("dropout", "map"), "country", "in_domain", "auroc", minus=("map",))
    (gain,) = judge_claims(country, 50, 0, of(both, 0.0))
    (pair,) = judge_claims(country, 50, 0, of(AUROC, Number(("map",), "country", "in_domain", "auroc")))
    assert gain.statements[0].difference == pytest.approx(pair.statements[0].difference / 2, abs=1e-12)
    assert gain.statements[0].low == pytest.approx(pair.statements[0].low / 2, abs=1e-12)


def test_equal_sets_are_called_different_in_five_of_a_hundred_studies():
    """Both sets are of one population, whose patients lie in the order of their labels, as replicates by position would exploit."""
    random = np.random.default_rng(0)
    claim = of(Number(("m",), "t", "shifted", "auroc"), Number(("m",), "t", "in_domain", "auroc"))
    resolved = 0
    for study in range(100):
        label = np.tile(np.repeat([0, 1], 60), 2)
        logit = random.normal(1.5 * label - 0.7, 1.0)
        one = Predictions(
            [str(k) for k in range(240)], label, 1 / (1 + np.exp(-logit)), domain=np.repeat(["in_domain", "shifted"], 120),
            patient_id=[str(k) for k in range(240)],
        )  # fmt: skip
        (judged,) = judge_claims({"t": {"m": ([one], [(0,)])}}, 200, study, claim)
        resolved += judged.statements[0].resolved != 0
    assert 1 <= resolved <= 11  # 5 ± 2.2 expected


def test_a_claim_on_images_of_one_class_is_undefined_and_says_why(country, tmp_path):
    severity = {"map": ([run("MAP", seed, severity_people(120, 60)) for seed in range(3)], SEEDS)}
    judged = judge_claims({**country, "severity": severity}, 30, 0)
    first = judged[0]
    assert first.verdict == "undefined"
    assert "class" in str(first.statements[0].why)
    assert "no predictions of 'mfvi'" in str(first.statements[1].why)
    claims.write_claims(judged, tmp_path)
    stored = json.loads((tmp_path / "claims.json").read_text())["claims"]
    assert [one["verdict"] for one in stored] == [one.verdict for one in judged]
    assert (tmp_path / "claims.md").read_text().count("**6.") == len(CLAIMS)


@pytest.mark.parametrize(
    ("parts", "verdict"),
    [
        ([(1, 0.01), (2, 0.04)], "holds"), ([(1, 0.01), (2, 0.2)], "not resolved"),
        ([(1, 0.01), (-2, 0.01)], "contradicted"), ([(1, 0.01), (math.nan, math.nan)], "holds"),
        ([(math.nan, math.nan)], "undefined"),
    ],
)  # fmt: skip
def test_a_verdict_needs_every_statement(parts, verdict):
    statements = tuple(Judged("one", difference, p_holm=p) for difference, p in parts)
    assert JudgedClaim("1", "a claim", statements).verdict == verdict
