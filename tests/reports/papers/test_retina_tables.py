"""Every cell against the scores themselves, and the published rules against the released code's outputs."""

from __future__ import annotations

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.progress import QUIET
from retinabench.metrics.published import aggregate as published_aggregate
from retinabench.metrics.scoring import referral_curve
from retinabench.metrics.uncertainty import referral_uncertainty
from retinabench.predictions.table import Predictions
from retinabench.reports.papers.collection import collect
from retinabench.reports.papers.write import table_files, tables_of
from support.written_papers import Written, write_runs

COUNTRY = "country-shift-tuned-in-domain"
MEAN = 1e-12  # sums of three numbers in another order


def files_of(runs, title: str, task: str, criterion: str = "in_domain_auroc") -> list[Predictions]:
    return [
        one
        for one in runs
        if one.metadata["title"] == title
        and one.metadata["task"] == task
        and one.metadata.get("criterion", criterion) == criterion
    ]


@pytest.mark.parametrize("rules", ["corrected", "published"])
def test_scores_are_means_of_score_over_runs(request, runs, rules):
    written: Written = request.getfixturevalue(rules)
    tables = [f"table-04-prediction-{COUNTRY}", f"table-06-areas-{COUNTRY}", "table-03-detection"]
    seen = 0
    for title in ("MAP", "ensemble of 3 MAP", "MC dropout"):
        found = [rb.score(one, rules=rules, bootstrap=0) for one in files_of(runs, title, "country_shift")]
        for name in tables:
            for row in written.rows(name):
                if (
                    row["method"] != title
                    or row["task"] != "country_shift"
                    or row["criterion"] != "in_domain_auroc"
                ):
                    continue
                values = [
                    one[row["set"]].to_dict()["scores"].get(row["score"], {"value": None})["value"]
                    for one in found
                ]
                if None in values:
                    assert row["value"] == ""
                    continue
                ddof = 1 if rules == "corrected" else 0
                assert float(row["value"]) == pytest.approx(np.mean(values), abs=MEAN)
                assert float(row["standard_error"]) == pytest.approx(
                    np.std(values, ddof=ddof) / np.sqrt(3), abs=1e-9
                )
                assert row["runs"] == "3"
                seen += 1
    assert seen > 60


@pytest.mark.parametrize("rules", ["corrected", "published"])
def test_referral_is_read_off_the_curve(request, runs, rules):
    cells = request.getfixturevalue(rules).cells(f"table-01-referral-{COUNTRY}")
    for domain in ("in_domain", "shifted"):
        for referred in (0, 50, 70):
            values = []
            for one in files_of(runs, "MC dropout", "country_shift"):
                part = one.select(domain=domain)
                u, _ = referral_uncertainty(part, exact=rules == "published")
                curve = referral_curve(part.label, part.prob, u, "auroc", rules)
                k = referred
                values.append(curve.at(referred / 100) if rules == "corrected" else curve.value[k])
            cell = cells["MC dropout", domain, f"auroc_at_{referred}"]
            assert float(cell["value"]) == pytest.approx(np.mean(values), abs=MEAN)


def test_a_single_run_has_the_interval_of_score(corrected, runs):
    (one,) = files_of(runs, "MFVI", "country_shift")
    found = rb.score(one, bootstrap=30).sets
    for name, score in (("in_domain", "nll"), ("shifted", "auroc"), ("joint", "auprc")):
        cell = corrected.cells(f"table-04-prediction-{COUNTRY}")["MFVI", name, score]
        entry = found[name][score]
        assert float(cell["value"]) == pytest.approx(entry.value, abs=MEAN)
        assert float(cell["low"]) == pytest.approx(entry.low, abs=MEAN)
        assert float(cell["high"]) == pytest.approx(entry.high, abs=MEAN)
        assert cell["standard_error"] == ""


def test_the_published_rules_drop_runs_without_a_value_and_use_ddof_0(published, runs):
    values = [rb.score(one, rules="published").value("nll") for one in files_of(runs, "MAP", "country_shift")]
    cell = published.cells(f"table-04-prediction-{COUNTRY}")["MAP", "in_domain", "nll"]
    mean, _, error = published_aggregate(values)
    assert (float(cell["value"]), float(cell["standard_error"])) == pytest.approx((mean, error), abs=MEAN)
    caption = published.text(f"table-04-prediction-{COUNTRY}")
    assert "ddof 0" in caption
    assert "no test" in caption


def test_what_is_undefined_is_a_dash_with_a_reason(corrected):
    name = "table-02-referral-severity-shift"
    cell = corrected.cells(name)["MAP", "shifted", "auroc_at_0"]
    assert cell["value"] == ""
    assert cell["why"] == "needs both classes: the set has 40 positive and 0 negative images"
    assert "–<sup>a</sup>" in corrected.text(name)
    assert "<sup>a</sup> needs both classes: the set has 40 positive" in corrected.text(name)
    assert r"--\textsuperscript{a}" in corrected.text(name, ".tex")


def test_the_blur_study_has_a_row_per_constant(corrected, runs):
    cells = corrected.cells("table-12-blur-severity-shift")
    assert {key[0] for key in cells} == {"MAP, blur 5", "MAP, blur 30"}
    values = [
        rb.score(one, bootstrap=0).value("accuracy")
        for one in files_of(runs, "MAP", "severity_shift")
        if one.metadata["blur"] == 5
    ]
    assert float(cells["MAP, blur 5", "in_domain", "accuracy_at_0"]["value"]) == pytest.approx(
        np.mean(values), abs=MEAN
    )
    assert {row["method"] for row in corrected.rows("table-02-referral-severity-shift")} == {"MAP"}


def test_published_areas_equal_the_released_code(shared, tmp_path):
    """Sums in another order: 1e-12, as in `tests/scores/test_published.py`."""
    data = np.load(shared("golden", "retina", "joint_severity_like.npz"))
    metrics = json.loads(shared("golden", "retina", "joint_severity_like_metrics.json").read_text())["direct"]
    parts = {
        key: np.concatenate([data[f"in_{d}_{key}"] for d in ("id", "ood")])
        for key in ("y_true", "y_pred", "entropy")
    }
    n = len(parts["y_true"])
    one = Predictions(
        np.array([f"{k}" for k in range(n)]), parts["y_true"], parts["y_pred"], uncertainty=parts["entropy"],
        domain=np.where(np.arange(n) < len(data["in_id_y_true"]), "in_domain", "shifted"),
        metadata={"task": "severity_shift"},
    )  # fmt: skip
    collection = collect(write_runs(tmp_path, [one]), None, "published", 0, 1234, 1, QUIET)
    written = Written(tmp_path, table_files(tables_of(collection)[0], tmp_path), [])
    areas, detection = written.cells("table-07-areas-severity-shift"), written.cells("table-03-detection")
    for metric in ("accuracy", "nll", "auroc", "auprc"):
        for name, theirs in (("balanced", "balanced_retention"), ("joint", "retention")):
            ours = float(areas["000", name, f"referral_{metric}_area"]["value"])
            assert ours == pytest.approx(metrics[f"joint_test/{theirs}_{metric}_auc"], abs=1e-12)
    for score in ("ood_auroc", "ood_auprc"):
        theirs = metrics[f"joint_test/{score.replace('ood', 'ood_detection')}"]
        assert float(detection["000", "joint", score]["value"]) == pytest.approx(theirs, abs=1e-12)
