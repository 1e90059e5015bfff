"""The poster's experiment from a CSV on: ten folds, several uncertainties, and numbers that equal a hand computation."""

import json
import shutil

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

import retinabench as rb
from cli.test_main import one_line
from data.test_tables import patients, prepare, write
from retinabench.cli.main import run
from retinabench.experiments.config import presets
from retinabench.methods.registry import METHODS
from retinabench.predictions.io import read_predictions
from support.browsers import check_page
from support.helpers import short_chain

pytestmark = pytest.mark.usefixtures("legible")

FAST = ["optimizer.epochs=2", "optimizer.batch_size=64", "method.samples=4"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """400 patients of a CSV, trained in five folds: the folder of runs, and the file of all folds."""
    root = tmp_path_factory.mktemp("triage")
    random = np.random.default_rng(1)
    label = random.random(400) < 0.3
    source = write(
        patients(400, outcome=label.astype(int), pulse=random.normal(80 + 15 * label, 10)), root / "patients.csv"
    )
    assert prepare(source, root / "data") == 0
    words = ["--data", str(root / "data"), "--config", "table/dropout", "--out", str(root / "runs"), "-q"]
    assert run(["train", *words, "cross_validation.folds=5", *FAST]) == 0
    (file,) = (root / "runs").glob("*-seed-0-5-folds-*/predictions.parquet")
    return root, file


def index_by_hand(label, prob, uncertainty):
    """The poster's definition on counts that are whole: accuracy without the most uncertain 0, 10, … 90 %, trapezoid of the gain."""
    order = np.argsort(uncertainty, kind="stable")
    right = ((prob > 0.5) == (label == 1))[order]
    n = len(right)
    accuracy = np.array([right[: n - n * k // 10].sum() / (n - n * k // 10) for k in range(10)])
    gain = accuracy - accuracy[0]
    return sum(0.1 * (gain[k] + gain[k - 1]) / 2 for k in range(1, 10)), accuracy


def test_the_first_line_of_a_score_and_every_number_over_folds(trained, tmp_path, capsys):
    _, file = trained
    assert run(["score", str(file), "--bootstrap", "50", "-q", "--json", str(tmp_path / "scores.json")]) == 0
    out = capsys.readouterr().out
    assert "On the in-domain images, “MC dropout”" in " ".join(out.split())
    found = json.loads((tmp_path / "scores.json").read_text())["uncertainties"]["in_domain"]

    columns = pyarrow.parquet.read_table(file).to_pydict()
    label, fold, samples = (np.array(columns[name]) for name in ("label", "fold", "probs"))
    prob = samples.mean(axis=1)
    assert np.bincount(fold).tolist() == [80] * 5
    accuracies = [np.mean((prob[fold == k] > 0.5) == label[fold == k]) for k in range(5)]
    assert found["scores"]["accuracy"]["mean"] == pytest.approx(np.mean(accuracies), abs=1e-12)
    assert found["scores"]["accuracy"]["error"] == pytest.approx(np.std(accuracies, ddof=1) / 5**0.5, abs=1e-12)
    assert list(found["uncertainties"]) == ["epistemic", "max_probability"]
    for name, one in found["uncertainties"].items():
        values = np.array(columns[f"uncertainty_{name}"])
        assert len(np.unique(values)) == 400
        by_hand = [index_by_hand(label[fold == k], prob[fold == k], values[fold == k]) for k in range(5)]
        indices, curves = (np.array(part) for part in zip(*by_hand, strict=True))
        vertical = curves.mean(axis=0) - curves[:, 0].mean()
        assert one["folds"]["mean"] == pytest.approx(indices.mean(), abs=1e-12)
        assert one["folds"]["error"] == pytest.approx(indices.std(ddof=1) / 5**0.5, abs=1e-12)
        assert one["vertical"] == pytest.approx(0.1 * (vertical[1:] + vertical[:-1]).sum() / 2, abs=1e-12)
        assert one["index"] == pytest.approx(one["vertical"], abs=1e-12)  # folds of one size
        assert one["low"] < one["index"] < one["high"]
        steps = np.diff(vertical)
        assert one["steadiness"]["rises"] == pytest.approx(np.mean(steps > 1e-12), abs=1e-12)
    first, second = found["uncertainties"].values()
    assert second["difference"]["difference"] == pytest.approx(first["index"] - second["index"], abs=1e-12)


def test_files_of_single_folds_are_joined(trained, tmp_path, capsys):
    root, file = trained
    folds = sorted(map(str, (root / "runs").glob("*-fold-*")))
    together, apart = tmp_path / "one.json", tmp_path / "five.json"
    assert run(["score", str(file), "--bootstrap", "20", "-q", "--json", str(together)]) == 0
    assert run(["score", *folds, "--bootstrap", "20", "-q", "--json", str(apart)]) == 0
    assert "5 files hold different images: they are joined as the folds of a" in capsys.readouterr().err
    one, other = (json.loads(path.read_text()) for path in (together, apart))
    for key, mean in one["uncertainties"]["in_domain"]["scores"].items():
        assert other["uncertainties"]["in_domain"]["scores"][key] == pytest.approx(mean, abs=1e-12)
    predictions, files = read_predictions(file), []
    for k in range(5):
        part = predictions.take(np.flatnonzero(predictions.fold == k))
        files.append(str(tmp_path / f"part{k}.csv"))
        rb.write_predictions(rb.Predictions(part.image_id, part.label, part.prob), files[-1])
    assert run(["score", *files, "--method", "ours", "--bootstrap", "0", "-q", "--json", str(apart)]) == 0
    found = json.loads(apart.read_text())["uncertainties"]["in_domain"]
    assert found["folds"] == 5
    expected = one["uncertainties"]["in_domain"]["scores"]["auroc"]["mean"]
    assert found["scores"]["auroc"]["mean"] == pytest.approx(expected, abs=1e-12)


def test_the_report_draws_all_uncertainties_and_has_the_numbers_of_score(trained, tmp_path, browser):
    _, file = trained
    asked = ["--uncertainty", "epistemic,max_probability,aleatoric", "--bootstrap", "20", "-q"]
    assert run(["score", str(file), *asked, "--json", str(tmp_path / "scores.json")]) == 0
    assert run(["report", str(file), *asked, "--out", str(tmp_path / "report")]) == 0
    page = (tmp_path / "report" / "index.html").read_text()
    section = page.partition('<section id="rejection"')[2].partition("</section>")[0]
    for shown in ("epistemic", "max probability", "aleatoric", "oracle", "random", "of random orders lie"):
        assert shown in section
    (record,) = json.loads((tmp_path / "report" / "scores.json").read_text())
    assert record["uncertainties"] == json.loads((tmp_path / "scores.json").read_text())["uncertainties"]
    assert list(record["uncertainties"]["in_domain"]["uncertainties"]) == ["epistemic", "max_probability", "aleatoric"]
    check_page(browser, tmp_path / "report" / "index.html")


def test_a_file_without_folds_and_with_one_uncertainty_is_scored_as_ever(trained, tmp_path, undrawn):
    _, file = trained
    one = read_predictions(file)
    rb.write_predictions(rb.Predictions(one.image_id, one.label, one.prob), tmp_path / "plain.csv")
    words = [str(tmp_path / "plain.csv"), "--bootstrap", "10", "-q"]
    assert run(["score", *words, "--json", str(tmp_path / "scores.json")]) == 0
    assert "uncertainties" not in json.loads((tmp_path / "scores.json").read_text())
    assert run(["report", *words, "--out", str(tmp_path / "report")]) == 0
    assert "rejection" not in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.parametrize("name", [*METHODS, "logistic"])
def test_every_method_trains_on_a_table_or_says_why_not(name, trained, capsys):
    root, _ = trained
    assert f"table/{name}" in presets()
    words = ["--data", str(root / "data"), "--config", f"table/{name}", "--out", str(root / "all"), "-q"]
    short = short_chain(name) if name in METHODS else []
    code = run(["train", *words, "optimizer.epochs=3", "optimizer.batch_size=40", *short])
    if code:
        assert "needs images" in one_line(capsys)
        assert name in ("tta", "lora_ensemble")
    else:
        found = read_predictions(capsys.readouterr().out.strip())
        assert len(found.select(split="test")) == 80
        assert found.prob.std() > 0


def test_a_trained_run_predicts_another_table_of_the_same_columns(trained, tmp_path, capsys):
    root, _ = trained
    assert prepare(write(patients(90), tmp_path / "other.csv"), tmp_path / "other", "--column", "split=id") == 2
    one_line(capsys)
    other = write(patients(90, id=[f"q{k}" for k in range(90)], split=["test"] * 90), tmp_path / "other.csv")
    assert prepare(other, tmp_path / "other", "--split", "split") == 0
    run_folder = sorted((root / "runs").glob("*-fold-0-*"))[0]
    words = ["predict", str(run_folder), "-q", "--data"]
    assert run([*words, str(tmp_path / "other"), "--out", str(tmp_path / "p.parquet")]) == 0
    found, own = read_predictions(tmp_path / "p.parquet"), read_predictions(run_folder / "predictions.parquet")
    test = found.select(domain="in_domain", split="test")
    np.testing.assert_allclose(test.probs, own.select(split="test").probs, atol=1e-6)
    assert len(found.select(domain="shifted")) == 90
    less = write(patients(90, id=[f"q{k}" for k in range(90)]).drop(["sex"]), tmp_path / "less.csv")
    assert prepare(less, tmp_path / "less") == 0
    capsys.readouterr()
    assert run([*words, str(tmp_path / "less"), "--out", str(tmp_path / "q.csv")]) == 2
    assert "has other columns of features" in one_line(capsys)


def test_an_exported_model_predicts_rows_where_the_training_data_are_not(trained, tmp_path, capsys):
    root, _ = trained
    shutil.copytree(root / "data", tmp_path / "data")
    words = ["--data", str(tmp_path / "data"), "--config", "table/logistic", "--out", str(tmp_path / "runs"), "-q"]
    assert run(["train", *words, "optimizer.epochs=2"]) == 0
    (own,) = (tmp_path / "runs").glob("*/predictions.parquet")
    assert run(["export", str(own.parent), "--out", str(tmp_path / "model")]) == 0
    tested = read_predictions(own).select(split="test")
    shutil.rmtree(tmp_path / "data")
    shutil.rmtree(tmp_path / "runs")
    asked = ["predict", str(tmp_path / "model"), "--column", "image=id", "--out", str(tmp_path / "p.csv"), "-q"]
    assert run([*asked, "--images", str(root / "patients.csv")]) == 0
    rows = pyarrow.csv.read_csv(tmp_path / "p.csv").to_pylist()
    found = {row["image_id"]: row["prob"] for row in rows}
    assert len(found) == 400
    np.testing.assert_allclose([found[name] for name in tested.image_id.tolist()], tested.prob, atol=1e-6)
    capsys.readouterr()
    less = write(pyarrow.csv.read_csv(root / "patients.csv").drop(["sex"]), tmp_path / "less.csv")
    assert run([*asked, "--images", str(less)]) == 2
    assert "column 'sex': is missing, and the model reads it" in one_line(capsys)
