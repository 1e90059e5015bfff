"""Exit codes of `transfer`: done, refused, refuted, and options that do not belong together."""

from __future__ import annotations

import json

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run


@pytest.fixture
def file(tmp_path):
    """300 validation and 300 test images; of each so many are called wrongly by a model that is sure of them."""

    def write(wrong, of_test):
        label = np.arange(300) % 2
        probs = [
            np.where(np.arange(300) < k, 0.95 - 0.9 * label, 0.1 + 0.8 * label) for k in (wrong, of_test)
        ]
        ids, split = [f"i{k}" for k in range(600)], ["validation"] * 300 + ["test"] * 300
        predictions = rb.Predictions(ids, [*label, *label], np.concatenate(probs), split=split)
        rb.write_predictions(predictions, tmp_path / "p.csv")
        return str(tmp_path / "p.csv")

    return write


GOAL = ["--goal", "selective_risk=.1", "--confidence", ".9", "--bootstrap", "20", "-q"]


@pytest.mark.parametrize(("wrong", "of_test", "code"), [(3, 3, 0), (60, 60, 3), (3, 90, 4)])
def test_the_exit_code_says_what_became_of_the_certificate(wrong, of_test, code, file, tmp_path):
    out = tmp_path / "t.json"
    assert run(["transfer", file(wrong, of_test), *GOAL, "--json", str(out)]) == code
    found = json.loads(out.read_text())
    assert (found["threshold"] is None) == (code == 3)


def test_three_zones_have_the_same_codes(file, capsys):
    words = [
        "--zones",
        "--goal",
        "npv=.9",
        "--goal",
        "ppv=.9",
        "--confidence",
        ".9",
        "--bootstrap",
        "20",
        "-q",
    ]
    assert run(["transfer", file(3, 3), *words]) == 0
    assert run(["transfer", file(60, 60), *words]) == 3
    capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--confidence", "1"], "--confidence 1 is not between 0 and 1"),
        (["--zones", "--target", "npv"], "--zones takes no --target"),
        (["--zones", "--threshold", ".3"], "--zones takes no --target"),
        (["--goal", "nonsense=.1"], "nonsense"),
    ],
)
def test_wrong_options_are_one_line(words, says, file, capsys):
    assert run(["transfer", file(3, 3), *words, "-q"]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert "Traceback" not in told


def test_what_is_refused_is_attached_to_no_model(file, tmp_path, capsys):
    assert run(["transfer", file(60, 60), *GOAL, "--attach", str(tmp_path / "none")]) == 3
    assert "nothing is attached" in capsys.readouterr().err
