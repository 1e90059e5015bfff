import json
import re

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

import retinabench as rb
from retinabench.cli.main import run
from support.graded import graded_patients

pytestmark = pytest.mark.usefixtures("legible")


@pytest.fixture(scope="module")
def predictions():
    return graded_patients(240, seed=4, validation=120)


@pytest.fixture(scope="module")
def table(predictions, tmp_path_factory):
    """A CSV as another tool writes it: softmax over the grades in prob_0 to prob_4."""
    path = tmp_path_factory.mktemp("graded") / "model.csv"
    columns = [predictions.image_id, predictions.patient_id, predictions.grade, predictions.split]
    columns += [predictions.subgroups["camera"], *predictions.grade_prob.T]
    rows = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    header = "image_id,patient_id,grade,split,camera," + ",".join(f"prob_{grade}" for grade in range(5))
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def test_score_says_how_well_the_grades_agree_and_how_often_their_sets_hold_them(table, predictions, tmp_path, capsys):
    out = tmp_path / "scores.json"
    assert run(["score", str(table), "--grades", "--bootstrap", "50", "--quiet", "--json", str(out)]) == 0
    assert run(["score", str(table), "--grades", "--bootstrap", "50", "--quiet"]) == 0
    shown = capsys.readouterr().out
    test = predictions.select(split="test")
    kappa = cohen_kappa_score(test.grade, test.grade_prob.argmax(axis=1), weights="quadratic")
    assert re.search(rf"Quadratic weighted kappa\s↑\s+{kappa:.2f}", shown)
    assert "share of the sets of grades that hold the true one, 90 % promised" in shown
    assert "Chosen on 120" in shown
    found = json.loads(out.read_text())["sets"]["in_domain"]["grades"]
    assert found["scores"]["quadratic_kappa"]["value"] == pytest.approx(kappa)
    assert list(found["sets"]) == ["alike", "severity", "grade"]
    groups = {group["group"]: group for group in found["sets"]["alike"]["groups"]}
    assert list(groups) == ["all", *(f"grade: {grade}" for grade in range(5)), "camera: A", "camera: B"]
    inside = rb.grade_sets(predictions)[predictions.split == "test"]
    assert groups["all"]["coverage"]["value"] == pytest.approx(inside[np.arange(len(test)), test.grade].mean())
    assert groups["all"]["size"]["value"] == pytest.approx(inside.sum(axis=1).mean())


@pytest.mark.parametrize("verb", ["report", "clinic"])
def test_pages_have_a_section_on_grades_where_a_file_has_them(verb, table, predictions, tmp_path, request):
    plain = tmp_path / "plain.csv"
    columns = {k: getattr(predictions, k) for k in ("image_id", "label", "probs", "grade", "patient_id", "split")}
    rb.write_predictions(rb.Predictions(**columns), plain)
    options = ["--bootstrap", "10", "-q"] if verb == "report" else ["-q"]
    for file, more, there in ((table, ["--grades"], True), (plain, [], False)):
        out = tmp_path / file.stem
        assert run([verb, str(file), *more, *options, "--out", str(out)]) == 0
        text = " ".join(re.sub(r"<[^>]+>", " ", (out / "index.html").read_text()).split())
        assert ("Quadratic weighted kappa" in text) == there
        assert ("true and called grade" in text) == there
        assert ("Error in grades, in-domain" in text) == there
        numbers = json.loads((out / ("scores.json" if verb == "report" else "clinic.json")).read_text())
        sets = numbers[0]["sets"] if verb == "report" else numbers["sets"]
        assert ("grades" in sets["in_domain"]) == there
        request.getfixturevalue("undrawn")  # without grades, the figures are those of other tests


def test_grades_that_contradict_the_probability_are_refused_in_one_line(table, tmp_path, capsys):
    read = rb.read_predictions(table, grades=True)
    path = tmp_path / "odd.csv"
    rb.write_predictions(read, path)
    lines = path.read_text().splitlines()
    cells = lines[1].split(",")
    place = lines[0].split(",").index('"prob"')
    lines[1] = ",".join([*cells[:place], str(1 - float(cells[place])), *cells[place + 1 :]])
    path.write_text("\n".join(lines) + "\n")
    assert run(["score", str(path), "-q"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "row 1, column 'grade_prob': sums to" in said
    assert "(1 such rows). Leave out one of them: they are not of one prediction." in said
