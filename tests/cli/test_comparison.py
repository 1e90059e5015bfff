"""The same six files give the same p-value in every verb that says which method is better; boards and submissions."""

import json
from dataclasses import replace

import numpy as np
import pytest

import retinabench as rb
from retinabench.cli.main import run
from retinabench.core.errors import QUIET
from retinabench.data.frozen.definition import truth_of
from retinabench.predictions.io import write_predictions
from retinabench.reports.leaderboard import board
from retinabench.reports.papers.measurements import collect
from retinabench.reports.papers.retina_tables import column_cells
from support.board_entries import NAME, noisy, submission

REPLICATES = "30"


@pytest.fixture
def six(tmp_path):
    """Two methods with three seeds each on one frozen benchmark; the seeds are shared, and the second method is slightly worse."""
    files, truth = [], truth_of(NAME)
    for method, signal in (("ours", 1.0), ("theirs", 0.97)):
        for seed in range(3):
            metadata = {"method": method, "title": method, "seed": seed}
            predictions = noisy(signal, seed)
            patients = truth.patient_id[np.searchsorted(truth.image_id, predictions.image_id)]
            files.append(tmp_path / f"{method}-{seed}.parquet")
            write_predictions(replace(predictions, patient_id=patients, metadata=metadata), files[-1])
    return files


def test_compare_the_board_and_the_papers_tables_agree(six, tmp_path, monkeypatch):
    monkeypatch.setattr(board, "baselines_of", lambda name: ())
    words = [*map(str, six), "--bootstrap", REPLICATES, "--quiet", "--json"]
    assert run(["compare", *words, str(tmp_path / "compare.json")]) == 0
    assert run(["leaderboard", *words, str(tmp_path / "board.json"), "--score", "auroc"]) == 0
    compared = json.loads((tmp_path / "compare.json").read_text())["sets"]
    (ranked,) = json.loads((tmp_path / "board.json").read_text())["benchmarks"]
    (results,) = collect(six, None, "corrected", int(REPLICATES), 0, 1, QUIET).results
    first, second = results.methods
    for part in ("in_domain", "shifted"):
        for score in ("auroc", "accuracy", "nll", "referral_accuracy_area"):
            ours = compared[part]["scores"][score]
            (theirs,) = ranked["sets"][part]["scores"][score]["pairs"]
            papers = first.rankings[part, score].pair(first.label, second.label)
            assert ours["p"] == pytest.approx(theirs["p"], rel=1e-9) == pytest.approx(papers.p, rel=1e-9)
            assert (theirs["difference"], theirs["low"]) == pytest.approx((papers.difference, papers.low))
            assert theirs["p_holm"] == theirs["p"], "one pair"
            marked = [cell.emphasis for cell in column_cells(results.methods, (part, score), "corrected")]
            assert marked == ["best" if papers.p < 0.05 else "", ""]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (0, "In-domain: no difference is shown by 19 scores."),
        (1, "ours-0.parquet” is better by accuracy, nll, brier, ece_top_label, … ("),
    ],
)
def test_the_first_line_of_compare_says_which_is_better(six, tmp_path, capsys, second, said):
    other = rb.read_predictions(six[0])
    write_predictions(replace(other, probs=other.probs ** (0.2 if second else 1)), tmp_path / "theirs.parquet")
    assert run(["compare", str(six[0]), str(tmp_path / "theirs.parquet"), "--bootstrap", "100", "--quiet"]) == 0
    assert said in " ".join(capsys.readouterr().out.partition("\n\n")[0].split())


def test_a_primary_score_is_tested_alone(six, tmp_path):
    words = [str(six[0]), str(six[3]), "--bootstrap", "300", "--quiet", "--json", str(tmp_path / "found.json")]
    assert run(["compare", *words]) == 0
    every = json.loads((tmp_path / "found.json").read_text())["sets"]["in_domain"]["scores"]["auroc"]
    assert every["p"] < every["p_adjusted"] < every["p_holm"]
    assert run(["compare", *words, "--score", "auroc"]) == 0
    alone = json.loads((tmp_path / "found.json").read_text())["sets"]["in_domain"]["scores"]["auroc"]
    assert alone["p_adjusted"] == alone["p"] == every["p"]


@pytest.mark.parametrize("score", ["auroc", "nll"])  # better higher, better lower
def test_non_inferiority_is_of_the_first_file(six, capsys, score):
    better, worse = str(six[0]), str(six[3])
    words = ["--score", score, "--bootstrap", "100", "--quiet"]

    def first_line(*files, margin):
        assert run(["compare", *files, *words, "--margin", margin]) == 0
        return capsys.readouterr().out.splitlines()[0]

    assert first_line(better, worse, margin="0.001").startswith("Non-inferior.")
    assert "a may be 0.001 or more worse than b" in first_line(worse, better, margin="0.001")
    assert first_line(worse, better, margin="0.5").startswith("Non-inferior.")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--margin", "0.5"], "a margin belongs to one score"),
        (["--margin", "0.5", "--score", "auroc", "--score", "nll"], "a margin belongs to one score"),
        (["--margin", "0", "--score", "auroc"], "the margin is 0"),
        (["--margin", "0.5", "--score", "auroc", "--bootstrap", "0"], "a margin needs intervals"),
        (["--margin", "0.5", "--score", "auroc", "--rules", "published"], "a margin needs intervals"),
    ],
)
def test_a_margin_that_tests_nothing_is_refused(six, capsys, words, message):
    assert run(["compare", str(six[0]), str(six[3]), "--quiet", *words]) == 2
    assert message in capsys.readouterr().err


def test_a_lone_file_is_ranked_among_the_baselines(tmp_path, capsys):
    write_predictions(noisy(1.0), tmp_path / "mine.parquet")
    arguments = ["leaderboard", str(tmp_path / "mine.parquet"), "--score", "auroc", "--bootstrap", "0", "-q"]
    assert run([*arguments, "--json", str(tmp_path / "b.json")]) == 0
    (board,) = json.loads((tmp_path / "b.json").read_text())["benchmarks"]
    kinds = [entry["kind"] for entry in board["entries"].values()]
    assert kinds.count("file") == 1
    assert kinds.count("baseline") > 10
    assert "(your" in capsys.readouterr().out
    assert run([*arguments, "--score", "auc"]) == 2


def test_submit_checks_and_packs(tmp_path, capsys):
    folder = submission(tmp_path, noisy(1.0))
    assert run(["submit", "check", str(folder)]) == 0
    assert run(["submit", "pack", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "noise" / NAME / "seed-0.parquet").is_file()
    assert "complete" in capsys.readouterr().out
    assert run(["submit", "check", str(tmp_path / "absent")]) == 2
