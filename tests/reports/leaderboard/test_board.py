"""A new entry stands among the baselines, whatever it is."""

from __future__ import annotations

import json

import pytest

from retinabench.core.errors import InputError
from retinabench.predictions.io import write_predictions
from retinabench.reports.leaderboard.board import entries_of_files, known_score, make_boards, read_entries
from support.board_entries import NAME, noisy


def test_entries_are_ranked_among_the_baselines(board) -> None:
    kinds = [entry.kind for entry in board.entries.values()]
    assert sorted(kinds) == ["baseline", "baseline", "submission", "submission"]
    ranked = board.sets["in_domain"]["auroc"].methods
    assert next(iter(ranked)).startswith("noise-"), "it knows the label"
    assert set(board.sets) == {"in_domain", "shifted", "joint"}
    json.dumps(board.to_dict(), allow_nan=False)


def test_bare_files_of_one_method_are_its_seeds_and_find_their_benchmark(tmp_path) -> None:
    files = [tmp_path / f"{seed}.parquet" for seed in range(2)]
    for seed, file in enumerate(files):
        write_predictions(noisy(1.0, seed), file)
    (entry,) = entries_of_files(files)
    assert (entry.kind, len(entry.predictions[NAME])) == ("file", 2)
    with pytest.raises(InputError, match="is no image"):
        entries_of_files(files[:1], "retinabench-idrid-1")
    write_predictions(noisy(1.0).take(range(10)), files[0])
    with pytest.raises(InputError, match="holds the test images of no benchmark"):
        read_entries(files[:1])


def test_two_submissions_of_one_name_are_refused(entries) -> None:
    with pytest.raises(InputError, match="two submissions are named 'evil'"):
        make_boards([*entries, entries[0]], [NAME])


def test_an_unknown_score_names_the_nearest() -> None:
    assert known_score("nll") == "nll"
    with pytest.raises(InputError, match="Did you mean 'auroc'"):
        known_score("aurocc")
