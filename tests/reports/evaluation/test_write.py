"""Reports of scarce data (one method, one set, one class, no grades, no patients, twenty images) and of twelve methods."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation import write
from retinabench.reports.evaluation.evaluation import EvaluationSettings, MethodPredictions
from retinabench.reports.evaluation.write import percent_steps, write_report
from support.fake_predictions import population, predictions
from support.reading_pages import Written

pytestmark = pytest.mark.usefixtures("undrawn")


def report(tmp_path, methods, **options) -> Written:
    return Written.read(write_report(methods, tmp_path, EvaluationSettings(**{"bootstrap": 20, **options})))


def only(found: Predictions, rows: np.ndarray, *without: str) -> Predictions:
    part = found.take(np.flatnonzero(rows))
    columns = {name: getattr(part, name) for name in ("grade", "patient_id", "domain") if name not in without}
    return Predictions(part.image_id, part.label, part.probs, **columns, metadata=part.metadata)


def test_in_domain_alone(tmp_path):
    found = predictions("MAP", 0, population(120, 10))
    html = report(tmp_path, {"MAP": only(found, found.domain == "in_domain")}).html
    assert "shifted" not in html.partition("<main>")[2].partition('id="reading"')[0].replace("shifted_", "")
    assert 'id="referral-accuracy-in_domain-title"' in html


def test_shifted_alone(tmp_path):
    found = predictions("MAP", 0, population(10, 120))
    html = report(tmp_path, {"MAP": only(found, found.domain == "shifted")}).html
    assert 'id="roc-shifted-title"' in html
    assert "Joint" not in html


def test_one_class_has_no_auroc_and_says_why(tmp_path):
    found = predictions("MC dropout", 0, population(200, 200))
    kept = (found.domain == "in_domain") | (found.label == 1)
    written = report(tmp_path, {"MC dropout": only(found, kept)})
    row = next(r for r in written.table if (r["set"], r["score"]) == ("shifted", "auroc"))
    assert row["value"] == row["low"] == ""
    assert "No ROC curve: this set has images of one class only." in written.html
    assert "needs both classes" in written.html
    assert "nan" not in written.html.replace("nano", "")
    assert "accuracy of “MC dropout”" in written.html  # the shift is stated in accuracy instead


def test_without_grades_patients_and_images(tmp_path):
    found = predictions("MAP", 0, population(80, 60))
    html = report(tmp_path, {"MAP": only(found, found.label >= 0, "grade", "patient_id")}).html
    assert "all grades together" in html
    assert "No images were given" in html
    assert "every image is its own cluster" in html
    assert "<img" not in html


def test_twenty_images(tmp_path):
    assert "Verdict" in report(tmp_path, {"MAP": predictions("MAP", 0, population(12, 8))}).html


def test_one_image(tmp_path):
    html = report(tmp_path, {"MAP": Predictions(["only"], [1], [0.7])}).html
    assert "No use of the uncertainty is shown." in html


def test_no_error_at_all(tmp_path):
    label = np.tile([0, 1], 30)
    found = Predictions([f"i{k}" for k in range(60)], label, 0.1 + 0.8 * label)
    html = report(tmp_path, {"sure": found}).html
    assert "No referable image is called not referable." in html
    assert "No use of the uncertainty is shown." in html


def test_no_bootstrap_claims_nothing(tmp_path):
    written = report(tmp_path, {"MAP": predictions("MAP", 0, population(80, 60))}, bootstrap=0)
    assert "No use of the uncertainty is shown." in written.html
    assert all(row["low"] == "" for row in written.table)


def test_own_uncertainty(tmp_path):
    found = predictions("MAP", 0, population(80, 60))
    own = Predictions(
        found.image_id, found.label, found.probs, grade=found.grade, domain=found.domain,
        uncertainty=100 * found.prob,
    )  # fmt: skip
    assert "own uncertainty" in report(tmp_path, {"mine": own}).html


def test_uncertainty_turned_round_is_called_misleading(tmp_path):
    found = predictions("MC dropout", 0, population(300, 300))
    turned = Predictions(
        found.image_id, found.label, found.probs, domain=found.domain, patient_id=found.patient_id,
        uncertainty=np.abs(found.prob - 0.5),
    )  # fmt: skip
    html = report(tmp_path, {"turned": turned}, bootstrap=60).html
    assert "The uncertainty is misleading." in html
    assert "is worse than random referral" in html


def test_published_rules(tmp_path):
    html = report(tmp_path, {"MAP": predictions("MAP", 0, population(80, 60))}, rules="published").html
    assert "including its faults" in html


@pytest.mark.slow
def test_twelve_methods(tmp_path):
    people = population(60, 40)
    methods = [MethodPredictions.of(f"method {k}", predictions("MC dropout", k, people)) for k in range(12)]
    html = report(tmp_path, methods, bootstrap=3).html
    assert "9 more" in html  # histograms beyond the third are folded
    assert "to keep the figure readable" in html


def test_methods_on_different_sets(tmp_path):
    found = predictions("MAP", 0, population(80, 60))
    methods = {"both": found, "here": only(found, found.domain == "in_domain")}
    written = report(tmp_path, methods)
    assert {row["set"] for row in written.table if row["method"] == "here"} >= {"in_domain"}


@pytest.mark.parametrize(
    ("methods", "says"),
    [
        ([], "nothing to report"),
        (
            [MethodPredictions.of("a", predictions("MAP", 0, population(8, 4)))] * 2,
            "two methods are named 'a'",
        ),
        (
            {"a": Predictions(["x"], [1], [0.4], split=["validation"])},
            "test",
        ),
    ],
)
def test_wrong_input_is_one_line(tmp_path, methods, says):
    with pytest.raises(InputError, match=says):
        write_report(methods, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_method_needs_a_file():
    with pytest.raises(InputError, match="'a' has no predictions"):
        MethodPredictions.of("a", [])


def test_progress_runs_from_0_to_1(tmp_path):
    calls: list[tuple[str, float]] = []
    found = predictions("MAP", 0, population(60, 40))
    write_report(
        {"MAP": found},
        tmp_path,
        EvaluationSettings(bootstrap=5),
        progress=lambda text, share: calls.append((text, share)),
    )
    shares = [share for _, share in calls]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 1


def test_percent_steps_add_up_to_a_hundred():
    steps = []
    tell = percent_steps(steps.append)
    for share in (0.0, 0.335, 0.5, 1.0):
        tell("work", share)
    assert steps == [0, 34, 16, 50]


def test_one_model_is_named_model_and_the_settings_reach_the_files(tmp_path):
    found = predictions("MAP", 0, population(60, 40))
    page = rb.report(found, tmp_path, title="Ours & theirs", bootstrap=3, seed=2, referred=0.2, threshold=0.3)
    assert page == tmp_path / "index.html"
    assert "Ours &amp; theirs" in page.read_text()
    [record] = json.loads((tmp_path / "scores.json").read_text())
    assert (record["entry"], record["bootstrap"], record["seed"]) == ("model", 3, 2)
    assert record["threshold"]["value"] == 0.3
    with open(tmp_path / "table.csv", newline="") as handle:
        named = {row["score"] for row in csv.DictReader(handle)}
    assert "gain_at_20" in named
    assert "gain_at_50" not in named


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_scored(tmp_path, monkeypatch):
    write_predictions(predictions("MAP", 0, population(40, 40)), tmp_path / "p.csv")
    monkeypatch.setattr(write, "evaluate_methods", lambda *_: pytest.fail("it was scored"))
    with pytest.raises(InputError, match="a file where a folder is needed"):
        write.report_files([tmp_path / "p.csv"], tmp_path / "p.csv")
