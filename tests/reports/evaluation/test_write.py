import csv
import json
import re
from dataclasses import replace

import numpy as np
import pytest

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.predictions.io import write_predictions
from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation import write
from retinabench.reports.evaluation.evaluation import EvaluationSettings, evaluate_methods
from retinabench.reports.evaluation.figures import NHS, histogram_panels, referral_panels, reliability_panels, roc_panel
from retinabench.reports.evaluation.terminal import comparison_table, scores_table
from retinabench.reports.evaluation.write import CONTENTS, write_report
from retinabench.reports.toolkit.figures import Line, mark
from retinabench.reports.toolkit.tables import Quantity
from support.fake_predictions import METHODS, population, predictions
from support.reading_pages import Reader, Written, printed, round_image, without_script


@pytest.fixture(scope="session")
def written(tmp_path_factory) -> Written:
    """Two methods, one of them with three seeds, two sets, images."""
    people = population(120, 80)
    counts = {"MAP": 1, "MC dropout": 3}
    methods = {name: [predictions(name, seed, people) for seed in range(n)] for name, n in counts.items()}
    out = tmp_path_factory.mktemp("report")
    written = write_report(methods, out, EvaluationSettings(bootstrap=40), title="A test", images=round_image)
    return Written.read(written)


def test_every_number_of_the_page_is_in_the_table_and_reads_as_its_value(written):
    rows = {(row["method"], row["set"], row["score"]): row for row in written.table}
    numbers = Reader(written.html).numbers
    assert len(numbers) > 300
    for place, text in numbers:
        row = rows[place["data-entry"], place["data-set"], place["data-score"]]
        assert row[place["data-part"]] == place["data-value"]
        value = float(place["data-value"])
        if text.endswith("%"):
            assert abs(float(text[:-1].replace("−", "-")) / 100 - value) <= 0.005 + 1e-9
        else:
            digits = len(text.partition(".")[2])
            assert float(text.replace("−", "-")) == pytest.approx(value, abs=0.5 * 10**-digits + 1e-12)


def test_numbers_of_single_files_are_those_of_the_json(written):
    records = {record["entry"]: record for record in written.records if record["entry"] != "MC dropout"}
    checked = set()
    for place, _ in Reader(written.html).numbers:
        name, key, score, part = (place[f"data-{k}"] for k in ("entry", "set", "score", "part"))
        if name not in records or key not in records[name]["sets"]:
            continue
        found = records[name]["sets"][key]["scores"].get(score) or records[name]["report"][key][score]
        assert found[part] == float(place["data-value"])
        checked.add(score)
    assert {"auroc", "nll", "ece_positive_class", "brier_skill", "accuracy_at_50", "referral_accuracy_area"} <= checked


def test_seeds_are_averaged(written):
    found = [r["sets"]["shifted"]["scores"]["auroc"]["value"] for r in written.records if r["entry"] == "MC dropout"]
    assert len(found) == 3
    row = next(r for r in written.table if (r["method"], r["set"], r["score"]) == ("MC dropout", "shifted", "auroc"))
    assert float(row["value"]) == pytest.approx(np.mean(found), abs=1e-15)
    assert float(row["standard_error"]) == pytest.approx(np.std(found, ddof=1) / np.sqrt(3), abs=1e-15)
    assert float(row["low"]) < float(row["value"]) < float(row["high"])
    assert "±" in written.html


def test_the_page_needs_nothing_but_itself(written):
    page = without_script(written.html)
    assert "http:" not in page
    assert "https:" not in page
    assert "<script" not in page
    assert "@import" not in written.html
    assert not re.search(r"\d %", written.html), "a line may break between a number and its percent sign"
    for tag, attributes in Reader(written.html).elements:
        for name in ("src", "href", "xlink:href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:image/jpeg;base64,")), (tag, target)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", written.html))


def test_ids_are_unique_references_lead_somewhere_elements_are_closed_and_figures_described(written):
    reader = Reader(written.html)
    elements = reader.elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", written.html))
    assert {a or b for a, b in wanted} <= set(ids)
    known = {anchor for anchor, _ in CONTENTS}
    assert known - {"grades", "rejection"} == known & set(ids)  # no grade_prob, and one uncertainty without folds
    for _, attributes in elements:
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in ids
    assert reader.open == []
    figures = [a for tag, a in elements if tag == "svg" and a.get("role") == "img"]
    assert len(figures) == 1 + 3 + 9 + 2 + 2
    assert all("-desc" in (figure["aria-labelledby"] or "") for figure in figures)
    assert all(a.get("alt") for tag, a in elements if tag == "img")
    assert all("scope" in a for tag, a in elements if tag == "th")


def test_the_page_is_light(written):
    assert len(written.html.encode()) < 3_000_000
    paths = re.findall(r' d="([^"]*)"', written.html)
    assert max(path.count(" L ") + path.count("\nL ") for path in paths) <= 2 * 200 + 2


def test_hostile_names_stay_text_and_progress_rises_to_1(tmp_path):
    evil = "<script>alert(1)</script>\"'&"
    found = predictions("MAP", 0, population(60, 0))
    metadata = dict.fromkeys(("method", "task", "model", "config_hash"), evil)
    ids = [f"{i}{evil}" for i in found.image_id]
    hostile = replace(found, image_id=ids, metadata=metadata, source=f"/somewhere/{evil}")
    settings = EvaluationSettings(bootstrap=10)
    shares: list[float] = []
    methods = {evil: hostile, "tame": found}
    html = write_report(methods, tmp_path, settings, title=evil, progress=shares.append).read_text()
    assert "<script" not in without_script(html)
    assert "alert(1)" in html
    assert Reader(html).open == []
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.5
    assert shares[-1] == 1


@pytest.fixture(scope="module")
def people():
    return population(160, 100)


def test_one_file_has_an_interval_and_seeds_have_both_interval_and_error(people):
    one = rb.score(predictions("MAP", 0, people), bootstrap=20)
    auroc = one["shifted"].auroc
    text = printed(scores_table(["MAP"], [one]))
    form = Quantity(auroc.value, auroc.low, auroc.high).form()
    assert f" {form(auroc.value)} " in text
    assert f"{form(auroc.low)}–{form(auroc.high)}" in text
    assert "…" not in text
    assert "±" not in text.partition("Below each value")[0]
    two = rb.score(predictions("MAP", 1, people), bootstrap=20)
    other = two["shifted"].auroc
    mean, low, high = (np.mean([getattr(x, end) for x in (auroc, other)]) for end in ("value", "low", "high"))
    error = abs(auroc.value - other.value) / 2  # std (ddof 1) of two values over the root of 2
    form = Quantity(mean, low, high).form()
    text = printed(scores_table(["MAP", "MAP"], [one, two]))
    assert f" {form(mean)} " in text
    assert f"{form(low)}–{form(high)}" in text
    assert f"± {form(error)}" in text


def test_controls_follow_and_names_are_not_markup(people):
    one = rb.score(predictions("MAP", 0, people), bootstrap=0)
    controls = {"joint": {"oracle referral": {"referral_accuracy_area": 0.98765}}}
    text = printed(scores_table(["[red]x[/red]"], [one], controls))
    assert "[red]x[/red]" in text
    assert text.index("Joint") < text.index("oracle referral") < text.index("0.988")


def test_comparison_shows_both_values_and_the_signed_difference(people):
    a, b = (predictions(name, 0, people) for name in list(METHODS)[:2])
    found = rb.compare(a, b, bootstrap=40, scores=["auroc", "nll"])
    text = printed(comparison_table(found))
    nll = found["joint"]["nll"]
    form = Quantity(nll.difference, nll.low, nll.high).form()
    assert f" {form(nll.a)} " in text
    assert ("+" if nll.difference > 0 else "−") + form(abs(nll.difference)) in text
    assert text.count(" auroc  ") == len(found.sets)


def report(tmp_path, methods, **options) -> Written:
    return Written.read(write_report(methods, tmp_path, EvaluationSettings(**{"bootstrap": 20, **options})))


TWO = predictions("MC dropout", 0, population(300, 300))
SMALL = predictions("MAP", 0, population(80, 60))
SURE = np.tile([0, 1], 30)
PAGES = {
    "shifted alone": (SMALL.select(domain="shifted"), {}, ['id="roc-shifted-title"'], ["Joint"]),
    "no grades, patients, images": (
        replace(SMALL, grade=None, patient_id=None), {}, ["all grades together", "No images were given", "every image is its own cluster"], ["<img"],
    ),
    "one image": (Predictions(["only"], [1], [0.7]), {}, ["No use of the uncertainty is shown."], []),
    "no error": (
        Predictions([f"i{k}" for k in range(60)], SURE, 0.1 + 0.8 * SURE), {},
        ["No referable image is called not referable.", "No use of the uncertainty is shown."], [],
    ),
    "no bootstrap": (SMALL, {"bootstrap": 0}, ["No use of the uncertainty is shown."], ["may be chance"]),
    "own uncertainty": (replace(SMALL, uncertainty=100 * SMALL.prob).select(domain="in_domain"), {}, ["own uncertainty", 'id="referral-accuracy-in_domain-title"'], ["Joint"]),
    "uncertainty turned round": (
        replace(TWO, uncertainty=np.abs(TWO.prob - 0.5)), {"bootstrap": 60}, ["The uncertainty is misleading.", "is worse than random referral"], [],
    ),
    "published rules": (SMALL.select(domain="in_domain"), {"rules": "published"}, ["including its faults"], []),
}  # fmt: skip


DRAWN = "no grades, patients, images", "own uncertainty"  # the other pages have the same figures


@pytest.mark.parametrize("name", PAGES)
def test_the_page_of(name, tmp_path, request):
    if name not in DRAWN:
        request.getfixturevalue("undrawn")
    found, options, says, not_said = PAGES[name]
    written = report(tmp_path, {"MAP": found}, **options)
    assert [one for one in says if one not in written.html] == []
    assert [one for one in not_said if one in written.html] == []
    if "no bootstrap" in name:
        assert all(row["low"] == "" for row in written.table)


def test_one_class_has_no_auroc_and_says_why(tmp_path, undrawn):
    found = predictions("MC dropout", 0, population(200, 200))
    kept = (found.domain == "in_domain") | (found.label == 1)
    written = report(tmp_path, {"MC dropout": found.take(np.flatnonzero(kept))})
    row = next(r for r in written.table if (r["set"], r["score"]) == ("shifted", "auroc"))
    assert row["value"] == row["low"] == ""
    assert "No ROC curve: this set has images of one class only." in written.html
    assert "needs both classes" in written.html
    assert "nan" not in written.html.replace("nano", "")
    assert "accuracy of “MC dropout”" in written.html  # the shift is stated in accuracy instead


@pytest.mark.parametrize(
    ("methods", "says"),
    [
        ({}, "nothing to report"),
        ({"a": []}, "method .a. has no predictions"),
        ({"a": Predictions(["x"], [1], [0.4], split=["validation"])}, "test"),
    ],
)
def test_wrong_input_is_one_line(tmp_path, methods, says):
    with pytest.raises(InputError, match=says):
        write_report(methods, tmp_path)
    assert not list(tmp_path.iterdir())


def test_one_model_is_named_model_and_the_settings_reach_the_files(tmp_path, undrawn):
    found = predictions("MAP", 0, population(40, 0))
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


pytestmark = pytest.mark.usefixtures("legible")

X = np.linspace(0, 1, 5)


def test_the_standard_is_a_point_of_the_roc_figure():
    assert NHS == (0.2, 0.85)
    [axes] = roc_panel([Line(mark(1), X, X**0.5)]).axes
    points = [one for one in axes.lines if one.get_marker() == "o"]
    assert [(one.get_xdata()[0], one.get_ydata()[0]) for one in points] == [NHS]
    (curve,) = [one for one in axes.lines if one.get_color() == mark(1).color]
    assert curve.get_ydata()[2] == pytest.approx(0.5**0.5)


@pytest.fixture(scope="module")
def found():
    """Of 40 images the 10 with probabilities nearest to one half are called wrongly, and a quarter is referred."""
    label = np.arange(40) % 2
    prob = np.where(np.arange(40) < 10, 0.6 - 0.2 * label, 0.1 + 0.8 * label)
    file = Predictions([f"i{k}" for k in range(40)], label, prob)
    return evaluate_methods({"m": file}, EvaluationSettings(bootstrap=0, referred=0.25))


def test_the_caption_states_what_is_retained_and_the_descriptions_the_errors(found):
    [(heading, [panel]), *others] = referral_panels(found)
    assert heading == "Accuracy"
    assert [one for one, _ in others] == ["AUROC", "NLL, lower is better"]
    assert "accuracy 0.75 → 1" in panel.caption
    assert "referable 50 % → 50 %" in panel.caption
    assert "With 25 % referred: m 1" in panel.svg
    [histogram], [reliability] = histogram_panels(found), reliability_panels(found)
    assert "in-domain: 10 of 40 incorrect" in histogram.svg
    assert "in-domain: predicted 0.50 on average, observed 0.50" in reliability.svg
