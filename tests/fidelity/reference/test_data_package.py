from pathlib import Path

import numpy as np
import pytest

from retinabench.cli.main import run
from retinabench.core.errors import InputError
from retinabench.fidelity.leaderboard.board import score_task
from retinabench.fidelity.reference import reference_file
from retinabench.fidelity.reference.reference_file import Reference, packaged, read_reference, write_extract
from retinabench.fidelity.scoring.grading import Evaluator
from retinabench.fidelity.submissions.submission import Submission, write_submission
from retinabench.fidelity.targets.data import load
from retinabench.fidelity.targets.target import TARGETS

pytestmark = pytest.mark.usefixtures("undrawn")

EXTRACTS = sorted((Path(reference_file.__file__).parent / "shipped").glob("*-means.npz"))


def whole(name: str) -> Reference:
    with (packaged("chains") / f"{name}.npz").open("rb") as stream:
        return reference_file._read(stream, name)


@pytest.mark.parametrize("path", EXTRACTS, ids=lambda path: path.stem)
def test_an_extract_is_the_means_and_the_verdict_of_the_chains(path, tmp_path):
    """Of the large targets the verdict is that of the chains, which `judge` recomputes."""
    reference = whole(path.stem.removesuffix("-means"))
    write_extract(tmp_path / "again.npz", reference)
    with path.open("rb") as one, (tmp_path / "again.npz").open("rb") as two:
        stored, again = (reference_file._read(stream, path, extract=True) for stream in (one, two))
    assert stored.judgement == again.judgement == reference.judgement
    assert np.array_equal(stored.probs, reference.probs)
    assert np.array_equal(stored.mcse, reference.mcse, equal_nan=True)
    assert stored.about == reference.about
    assert stored.states is None


def test_without_the_data_package_classes_are_read_from_the_extract_and_regressions_say_what_to_install(monkeypatch):
    monkeypatch.setattr(reference_file, "packaged", lambda folder: None)
    target = TARGETS["logistic"]
    sha = load(target).sha256
    assert np.array_equal(read_reference(target, sha).probs, whole("logistic").probs)
    with pytest.raises(InputError, match=r"no reference of 'energy-gap'.*pip install 'retinabench\[references\]'"):
        read_reference(TARGETS["energy-gap"], "")


def test_without_the_data_package_closeness_of_classes_is_scored_alike(monkeypatch):
    target, kept = TARGETS["logistic"], whole("logistic")
    data = load(target)
    submission = Submission(kept.samples[::2].mean(axis=0, dtype=np.float64), kept.samples[::2])

    def board():
        evaluator = Evaluator(target, data, read_reference(target, data.sha256), replicates=50)
        return score_task(evaluator, [submission]).to_dict()

    whole_board = board()
    monkeypatch.setattr(reference_file, "packaged", lambda folder: None)
    extract_board = board()
    assert extract_board["floor"] == whole_board["floor"]
    boards = extract_board, whole_board
    parts = [(one["ceiling"], one["entries"][0]["groups"]) for one in boards]
    for mine, theirs in zip(*parts, strict=True):
        for group, scores in mine.items():
            known = {name: score for name, score in scores.items() if score["value"] is not None}
            assert {"agreement", "total_variation"} <= set(known)
            assert known == {name: theirs[group][name] for name in known}


def test_without_the_data_package_the_command_line_says_what_to_install(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(reference_file, "packaged", lambda folder: None)
    mine, folder, page = str(tmp_path / "mine.npz"), str(tmp_path / "kept"), str(tmp_path / "board")
    write_submission(Path(mine), Submission(whole("logistic").probs[::-1]))
    for verb in (["score", mine, "--task", "logistic", "--keep", folder], ["board", folder, "--out", page]):
        assert run(["fidelity", *verb, "--bootstrap", "0"]) == 0
        assert "pip install 'retinabench[references]'" in capsys.readouterr().err


def test_a_verdict_that_a_file_of_a_user_states_does_not_count(tmp_path):
    path = tmp_path / "forged.npz"
    write_extract(path, whole("logistic"))
    with path.open("rb") as stream:
        assert not isinstance(reference_file._read(stream, path), reference_file.Extract)
