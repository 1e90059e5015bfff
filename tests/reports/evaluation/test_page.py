"""The page agrees with the files beside it, needs nothing but itself, and is the same every time."""

from __future__ import annotations

import re

import numpy as np
import pytest

from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluation import EvaluationSettings, MethodPredictions
from retinabench.reports.evaluation.page import CONTENTS
from retinabench.reports.evaluation.write import write_report
from support.fake_predictions import population, predictions
from support.reading_pages import Reader, round_image, without_script

PARTS = {"value": "value", "low": "low", "high": "high", "standard_error": "standard_error"}


def test_every_number_of_the_page_is_in_the_table(written):
    rows = {(row["method"], row["set"], row["score"]): row for row in written.table}
    numbers = Reader(written.html).numbers
    assert len(numbers) > 300
    for place, _ in numbers:
        row = rows[place["data-entry"], place["data-set"], place["data-score"]]
        assert row[PARTS[place["data-part"]]] == place["data-value"]


def test_every_number_reads_as_its_value(written):
    for place, text in Reader(written.html).numbers:
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
    assert {
        "auroc",
        "nll",
        "ece_positive_class",
        "brier_skill",
        "accuracy_at_50",
        "referral_accuracy_area",
    } <= checked


def test_seeds_are_averaged(written):
    found = [
        r["sets"]["shifted"]["scores"]["auroc"]["value"]
        for r in written.records
        if r["entry"] == "MC dropout"
    ]
    assert len(found) == 3
    row = next(
        r for r in written.table if (r["method"], r["set"], r["score"]) == ("MC dropout", "shifted", "auroc")
    )
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
    for tag, attributes in Reader(written.html).elements:
        for name in ("src", "href", "xlink:href"):
            target = attributes.get(name)
            assert target is None or target.startswith(("#", "data:image/jpeg;base64,")), (tag, target)
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)\)", written.html))


def test_ids_are_unique_and_every_reference_leads_somewhere(written):
    elements = Reader(written.html).elements
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", written.html))
    assert {a or b for a, b in wanted} <= set(ids)
    assert {anchor for anchor, _ in CONTENTS} <= set(ids)
    for _, attributes in elements:
        for name in (attributes.get("aria-labelledby") or "").split():
            assert name in ids


def test_elements_are_closed_and_figures_are_described(written):
    reader = Reader(written.html)
    assert reader.open == []
    figures = [a for tag, a in reader.elements if tag == "svg" and a.get("role") == "img"]
    assert len(figures) == 1 + 3 + 9 + 3 + 3
    assert all("-desc" in (figure["aria-labelledby"] or "") for figure in figures)
    assert all(a.get("alt") for tag, a in reader.elements if tag == "img")
    assert all("scope" in a for tag, a in reader.elements if tag == "th")


def test_the_page_is_light(written):
    assert len(written.html.encode()) < 3_000_000
    paths = re.findall(r' d="([^"]*)"', written.html)
    assert max(path.count(" L ") + path.count("\nL ") for path in paths) <= 2 * 200 + 2


def test_hostile_names_stay_text(tmp_path):
    evil = "<script>alert(1)</script>\"'&"
    found = predictions("MAP", 0, population(60, 40))
    hostile = Predictions(
        [f"{i}{evil}" for i in found.image_id],
        found.label,
        found.probs,
        grade=found.grade,
        patient_id=found.patient_id,
        domain=found.domain,
        metadata={"method": evil, "task": evil, "model": evil, "config_hash": evil},
        source=f"/somewhere/{evil}",
    )
    page = write_report(
        [MethodPredictions.of(evil, hostile), MethodPredictions.of("tame", found)],
        tmp_path,
        EvaluationSettings(bootstrap=10),
        title=evil,
    )
    html = page.read_text()
    assert "<script" not in without_script(html)
    assert "alert(1)" in html
    assert Reader(html).open == []


def test_names_are_quoted_and_one_reason_stands_once(written):
    text = re.sub(r"<[^>]+>", "", written.html)
    assert "the accuracy of “MC dropout”" in text or "the AUROC of “" in text
    notes = re.findall(r"<dt>Note</dt><dd>(.*?)</dd>", written.html)
    assert sum("null band" in note for note in notes) == 1
    assert any("in-domain, shifted and joint: no interval" in note for note in notes)


def test_the_same_arguments_give_the_same_bytes(tmp_path):
    def once(folder):
        page = write_report(
            {"MAP": predictions("MAP", 0, population(60, 40))},
            folder,
            EvaluationSettings(bootstrap=10),
            images=round_image,
        )
        return [(page.parent / name).read_bytes() for name in ("index.html", "scores.json", "table.csv")]

    assert once(tmp_path / "a") == once(tmp_path / "b")
