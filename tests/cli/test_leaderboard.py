import json

from retinabench.cli.main import run
from retinabench.predictions.io import write_predictions
from support.board_entries import NAME, noisy, submission


def test_a_lone_file_is_ranked_among_the_baselines(tmp_path, capsys) -> None:
    write_predictions(noisy(1.0), tmp_path / "mine.parquet")
    arguments = ["leaderboard", str(tmp_path / "mine.parquet"), "--score", "auroc", "--bootstrap", "0", "-q"]
    assert run([*arguments, "--json", str(tmp_path / "b.json")]) == 0
    (board,) = json.loads((tmp_path / "b.json").read_text())["benchmarks"]
    kinds = [entry["kind"] for entry in board["entries"].values()]
    assert kinds.count("file") == 1
    assert kinds.count("baseline") > 10
    assert "(your" in capsys.readouterr().out
    assert run([*arguments, "--score", "auc"]) == 2


def test_submit_checks_and_packs(tmp_path, capsys) -> None:
    folder = submission(tmp_path, noisy(1.0))
    assert run(["submit", "check", str(folder)]) == 0
    assert run(["submit", "pack", str(folder), "--out", str(tmp_path / "out")]) == 0
    assert (tmp_path / "out" / "noise" / NAME / "seed-0.parquet").is_file()
    assert "complete" in capsys.readouterr().out
    assert run(["submit", "check", str(tmp_path / "absent")]) == 2
