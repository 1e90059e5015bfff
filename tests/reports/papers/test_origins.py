"""Files without metadata take part by a CSV of labels; what does not fit is one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET
from retinabench.predictions.io import write_predictions
from retinabench.reports.papers.collection import collect
from retinabench.reports.papers.origins import Origin, origin, read_labels
from support.fake_predictions import population
from support.written_papers import run

PEOPLE = population(80, 40)


def bare(tmp_path, count: int = 4):
    """CSV files, which have no room for metadata."""
    files = [tmp_path / f"ours-{k}.csv" for k in range(count)]
    for k, file in enumerate(files):
        write_predictions(replace(run("MAP", k, PEOPLE), metadata={}), file)
    return files


def gathered(files, labels=None, rules="corrected", bootstrap=0):
    return collect(files, labels, rules, bootstrap, 0, 1, QUIET)


def test_labels_make_runs_of_files(tmp_path):
    files = bare(tmp_path)
    labels = tmp_path / "labels.csv"
    labels.write_text(
        "file,method,task,criterion,blur,seed\n"
        "ours-0.csv,Ours,country_shift,in_domain_auroc,30,0\n"
        "ours-1.csv,Ours,country_shift,in_domain_auroc,30,1\n"
        "ours-2.csv,Ours,country_shift,in_domain_auroc,5,0\n"
        "ours-3.csv,Theirs,country_shift,,,\n"
    )
    first, second = gathered(files, labels).results
    assert (first.task, first.criterion) == ("country_shift", "in_domain_auroc")
    assert [(g.name, len(g.runs)) for g in first.methods] == [("Ours", 2)]
    assert [(g.name, g.blur) for g in first.blur_variants] == [("Ours", 30), ("Ours", 5)]
    assert [(g.name, len(g.runs)) for g in second.methods] == [("Theirs", 1)]
    assert second.criterion == ""


def test_files_without_labels_are_methods_of_their_own(tmp_path):
    (study,) = gathered(bare(tmp_path, 2)).results
    assert [g.name for g in study.methods] == ["ours-0", "ours-1"]
    assert study.task == ""


def test_a_name_by_hand_joins_settings(tmp_path):
    one = run("MAP", 0, PEOPLE)
    assert origin(one, {"method": "Ours"}) == Origin("Ours", "", seed=0)
    assert origin(one, {}).setting != ""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("method\nours\n", "column 'file'"),
        ("", "column 'file'"),
        ("file,metod\nours-0.csv,x\n", "Did you mean 'method'"),
        ("file,method\nother.csv,x\n", "row 1, column 'file'"),
        ("file,blur\nours-0.csv,thirty\n", "row 1, column 'blur'"),
    ],
)
def test_bad_labels(tmp_path, text, says):
    files = bare(tmp_path, 1)
    labels = tmp_path / "labels.csv"
    labels.write_text(text)
    with pytest.raises(InputError, match=says):
        read_labels(labels, files)
    with pytest.raises(InputError, match="cannot be read"):
        read_labels(tmp_path / "none.csv", files)
