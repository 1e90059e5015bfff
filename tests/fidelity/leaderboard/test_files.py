"""Submissions are found, read, scored and kept."""

import numpy as np
import pytest

from retinabench.core.errors import InputError
from retinabench.fidelity.leaderboard.files import find_submissions, score_files, score_tasks, task_of
from retinabench.fidelity.submissions.submission import About, Submission, write_submission
from support.evaluators import FUNDUS, N
from support.submissions import submission_meta


def test_files_that_name_no_task_and_empty_folders_are_refused(tmp_path):
    np.savez(tmp_path / "submission.npz", probs=np.eye(5))
    with pytest.raises(InputError, match=r"does not state its task.*--keep"):
        task_of(tmp_path / "submission.npz")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: holds no submission\.npz"):
        find_submissions([tmp_path / "empty"])


def test_a_kept_submission_is_found_by_the_board_under_its_title(tmp_path, evaluators):
    probs = evaluators["fundus"].reference.probs
    np.savetxt(tmp_path / "theirs.csv", probs, delimiter=",")
    kept = tmp_path / "kept"
    scored = score_files([tmp_path / "theirs.csv"], evaluators["fundus"], keep=kept, title="Theirs")
    assert scored.competitors[0].title == "Theirs"
    (file,) = find_submissions([kept])
    assert task_of(file) == "fundus"
    (again,) = score_tasks([file], evaluators)
    assert again.competitors[0].title == "Theirs"
    assert again.competitors[0].scores["all"]["agreement"].quantity.value == 1


def test_one_title_is_for_one_file(tmp_path, evaluators):
    files = [tmp_path / name / "submission.npz" for name in "ab"]
    for file in files:
        write_submission(
            file, Submission(np.full((N, 5), 0.2), about=About(**submission_meta(FUNDUS, "MAP")))
        )
    with pytest.raises(InputError, match="one --title for 2 files"):
        score_files(files, evaluators["fundus"], title="x")
