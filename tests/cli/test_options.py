"""One spelling per option: the same name takes the same kind of value in every verb, and every option says what it is."""

import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import typer

import retinabench as rb
from retinabench.cli.entries import Kind
from retinabench.cli.main import command_line, run
from retinabench.cli.training import configured_run
from retinabench.data.registry import DATASETS
from retinabench.methods.registry import METHODS
from retinabench.metrics.registry import SCORES

pytestmark = pytest.mark.usefixtures("undrawn")


def parameters(command, path=()):
    for name, one in getattr(command, "commands", {}).items():
        yield from parameters(one, (*path, name))
    if not hasattr(command, "commands"):
        for one in command.params:
            yield " ".join(path), one


FOUND = list(parameters(typer.main.get_command(command_line())))


def test_every_option_and_argument_is_described_in_a_sentence():
    assert len(FOUND) > 200
    for verb, one in FOUND:
        text = one.help or ""
        assert text, (verb, one.name)
        assert text[-1] in ".…" or one.metavar, (verb, one.name, text)


def test_options_of_all_verbs_have_one_description():
    """Those that mean one thing: what is said of them is said once."""
    said = defaultdict(set)
    for _, one in FOUND:
        for name in one.opts:
            said[name].add(one.help)
    for name in ("--json", "--quiet", "--device", "--softmax", "--grades", "--uncertainty", "--readers", "--engine"):
        assert len(said[name]) == 1, name


N = 60
RNG = np.random.default_rng(5)
LABEL = np.arange(N) % 2
PROB = np.clip(0.3 + 0.4 * LABEL + RNG.normal(0, 0.2, N), 0.01, 0.99)


@pytest.fixture
def table(tmp_path):
    """A CSV of two classes with names that nobody guesses."""

    def write(name="theirs.csv", noise=0.0):
        path = tmp_path / name
        prob = np.clip(PROB + noise * RNG.normal(size=N), 0.01, 0.99)
        split = np.where(np.arange(N) < 30, "val", "test")
        with open(path, "w", newline="") as handle:
            writer = csv.writer(handle)
            writer.writerow(["case", "truth_1", "prob_0", "prob_1", "set"])
            writer.writerows(zip(range(N), LABEL, 1 - prob, prob, split, strict=True))
        return str(path)

    return write


OPTIONS = ["--softmax", "--column", "image_id=case", "--column", "label=truth_1"]


@pytest.mark.parametrize("verb", ["score", "compare", "transfer", "plan", "report"])
def test_every_verb_reads_as_it_is_told(verb, table, tmp_path, capsys):
    files = [table(), table("ours.csv", 0.1)] if verb in ("compare", "report") else [table()]
    more = {"plan": ["--prevalence", "0.1"], "report": ["--bootstrap", "5", "--out", str(tmp_path / "r")]}.get(
        verb, ["--bootstrap", "5", "-q"]
    )
    command = [verb, *files, *more]
    assert run(command) == 2
    assert "truth_1" in capsys.readouterr().err
    assert run([*command, *OPTIONS]) == 0
    if verb in ("score", "compare", "transfer", "plan"):
        assert "softmax over two classes" in capsys.readouterr().err


def test_files_of_one_method_are_its_seeds(table, tmp_path, capsys):
    files = [table(f"{k}.csv", 0.1) for k in range(3)]
    seeds = [word for k in range(3) for word in ("--model-seed", str(k))]
    ours, three = [*files, *OPTIONS, "--method", "Ours", *seeds, "--bootstrap"], ["--method", "a"] * 2
    assert run(["score", *ours, "0", "-q"]) == 0
    assert "±" in capsys.readouterr().out
    assert run(["score", *files, *OPTIONS, *three, "--method", "b", "--bootstrap", "0", "-q"]) == 0
    assert run(["report", *ours, "5", "--out", str(tmp_path)]) == 0
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert {(row["method"], row["files"]) for row in rows} == {("Ours", "3")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--column", "label"], "--column label is not NAME=COLUMN"),
        (["--column", "label=a", "--column", "label=b"], "--column label is given twice"),
        (["--referable-from", "5"], "--referable-from 5 is not a grade"),
        (["--method", "a", "--method", "b"], "--method is given 2 times for 1 files"),
        (["--model-seed", "1", "--model-seed", "2"], "--model-seed is given 2 times for 1 files"),
        (["--referral", "0.1"], "--referral belongs to --referral-list"),
        (["--referral-list", "x.csv", "--referral", "2"], "a share of 2 cannot be referred"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options, message, tmp_path, capsys):
    path = tmp_path / "p.csv"
    rb.write_predictions(rb.Predictions([str(k) for k in range(N)], LABEL, PROB), path)
    assert run(["score", str(path), "--bootstrap", "0", "-q", *options]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_the_referral_list_is_written(table, tmp_path, capsys):
    out = tmp_path / "refer.csv"
    command = ["score", table(), *OPTIONS, "--bootstrap", "0", "-q", "--referral-list", str(out)]
    assert run([*command, "--referral", "0.1"]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert sum(row["action"] == "expert reads" for row in rows) == 3
    assert "the expert reads 3 of 30 images" in capsys.readouterr().err
    assert abs(float(rows[0]["prob"]) - 0.5) <= abs(float(rows[-1]["prob"]) - 0.5)


def test_a_confidence_in_the_place_of_the_uncertainty_is_noticed(tmp_path, capsys):
    rng = np.random.default_rng(0)
    label = np.arange(400) % 2
    prob = 1 / (1 + np.exp(-(2 * label - 1 + rng.normal(size=400))))
    for sign, expected in ((1, True), (-1, False)):
        path = tmp_path / f"{sign}.csv"
        ids = [str(k) for k in range(400)]
        rb.write_predictions(rb.Predictions(ids, label, prob, uncertainty=sign * np.abs(prob - 0.5)), path)
        assert run(["score", str(path), "--bootstrap", "50", "-q"]) == 0
        shown = capsys.readouterr()
        assert ("the column 'uncertainty' looks inverted" in shown.err) is expected
        assert ("Useful. The uncertainty is misleading." in " ".join(shown.out.split())) is expected


def test_labels_in_the_place_of_probabilities_and_a_constant_uncertainty_are_noticed(tmp_path, capsys):
    label = np.arange(400) % 2
    for name, prob in (("leak", label * 0.8 + 0.1), ("blind", np.arange(400) % 7 / 7)):
        path = tmp_path / f"{name}.csv"
        rb.write_predictions(rb.Predictions(range(400), label, prob, uncertainty=np.full(400, 0.5)), path)
        assert run(["score", str(path), "--bootstrap", "20", "-q"]) == 0
        shown = capsys.readouterr()
        assert ("computed from the labels?" in shown.err) is (name == "leak")
        assert "all 400 images have the same uncertainty: it cannot tell which to refer" in shown.err
        assert "[0.0, 1.0]" not in shown.out


def test_copied_images_and_an_uncertainty_made_of_the_labels_are_noticed(tmp_path, capsys):
    rng = np.random.default_rng(0)
    label, patient = np.arange(200) % 2, np.arange(200) // 2
    prob = 1 / (1 + np.exp(-(3 * label - 1.5 + rng.normal(size=200))))
    twice, ids, copies = np.tile(np.arange(200), 2), np.arange(400), np.repeat((0, 100), 200)
    for own, noticed in ((patient[twice] + copies, True), (patient[twice], False), (patient[twice] // 10, False)):
        file = rb.Predictions(ids, label[twice], prob[twice], patient_id=own, uncertainty=np.abs(label - prob)[twice])
        rb.write_predictions(file, tmp_path / "p.csv")
        assert run(["score", str(tmp_path / "p.csv"), "--bootstrap", "20", "-q"]) == 0
        shown = capsys.readouterr().err
        assert ("are the images copied under other ids?" in shown) is noticed
        made = "higher for every wrong prediction than for any right one: was it computed" in shown
        assert ("400 images have 10 values of 'patient_id'" in shown, made) == (not own.max() > 9, own.max() > 9)


def test_decisions_in_the_place_of_probabilities_are_noticed(tmp_path, capsys):
    path = tmp_path / "p.csv"
    for prob, expected in ((np.round(PROB), True), (PROB, False)):
        rb.write_predictions(rb.Predictions([str(k) for k in range(N)], LABEL, prob), path)
        assert run(["score", str(path), "--bootstrap", "0", "-q"]) == 0
        assert ("look like decisions" in capsys.readouterr().err) is expected


def test_patients_in_validation_and_test_are_noticed(tmp_path, capsys):
    path, split = tmp_path / "p.csv", np.where(np.arange(N) % 2, "validation", "test")
    for eyes, expected in ((2, True), (1, False)):
        patient = [str(k // eyes) for k in range(N)]
        made = rb.Predictions([f"i{k}" for k in range(N)], LABEL, PROB, patient_id=patient, split=split)
        rb.write_predictions(made, path)
        assert run(["score", str(path), "--bootstrap", "0", "-q"]) == 0
        assert ("patients in the validation and in the test split" in capsys.readouterr().err) is expected


def configured(overrides=(), *, method=None, seed=None, model=None, shifted=None, task=None, precision=None):
    return configured_run("demo/map", list(overrides), Path("data"), shifted, task, method, seed, precision, model)


def test_an_option_counts_before_the_preset_and_an_override_before_the_option():
    assert configured().method.name == "map"
    assert configured(method="dropout").method.name == "dropout"
    assert configured(["method.name=ivon"], method="dropout").method.name == "ivon"
    assert configured(model="lenet").model.name == "lenet"


@pytest.mark.parametrize("kind", get_args(Kind))
def test_every_kind_has_entries_with_a_line_each(kind, capsys):
    assert run(["list", kind, "--json", "-"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found
    assert all(found.values()), found
    expected = {"methods": METHODS, "datasets": DATASETS, "scores": SCORES}
    assert set(expected.get(kind, ())) <= set(found)
