"""Files without metadata take part by a CSV of labels; what does not fit is one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from retinabench.core.errors import InputError
from retinabench.core.progress import QUIET
from retinabench.predictions.io import write_predictions
from retinabench.reports.papers.collect import collect
from retinabench.reports.papers.labels import Origin, origin, read_labels
from support.fake_predictions import population
from support.written_papers import run, write_runs

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
    first, second = gathered(files, labels).studies
    assert (first.task, first.criterion) == ("country_shift", "in_domain_auroc")
    assert [(g.name, len(g.runs)) for g in first.groups] == [("Ours", 2)]
    assert [(g.name, g.blur) for g in first.variants] == [("Ours", 30), ("Ours", 5)]
    assert [(g.name, len(g.runs)) for g in second.groups] == [("Theirs", 1)]
    assert second.criterion == ""


def test_files_without_labels_are_methods_of_their_own(tmp_path):
    (study,) = gathered(bare(tmp_path, 2)).studies
    assert [g.name for g in study.groups] == ["ours-0", "ours-1"]
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


def test_a_run_counts_once(tmp_path):
    one = run("MAP", 3, PEOPLE, task="country_shift")
    with pytest.raises(InputError, match="is seed 3 of MAP, as is"):
        gathered(write_runs(tmp_path, [one, one]))


def test_two_configurations_of_one_title_are_told_apart(tmp_path):
    runs = [run("MAP", 0, PEOPLE), run("MAP", 1, PEOPLE)]
    other = replace(runs[1], metadata={**runs[1].metadata, "setting": "feedbeef"})
    (study,) = gathered(write_runs(tmp_path, [runs[0], other])).studies
    assert [g.name for g in study.groups] == ["MAP (000000000000)", "MAP (feedbeef)"]


def test_ensembles_follow_their_method(tmp_path):
    order = ["MC dropout", "deep ensemble of 3", "MAP", "MC dropout ensemble of 3"]
    (study,) = gathered(write_runs(tmp_path, [run(name, 0, PEOPLE) for name in order])).studies
    assert [g.name for g in study.groups] == [
        "MC dropout",
        "ensemble of 3 MC dropout",
        "MAP",
        "ensemble of 3 MAP",
    ]


def test_files_of_one_task_hold_the_same_images(tmp_path):
    runs = [
        run("MAP", 0, PEOPLE, task="country_shift"),
        run("MAP", 1, population(60, 40), task="country_shift"),
    ]
    with pytest.raises(InputError, match="needs predictions of the same images"):
        gathered(write_runs(tmp_path, runs))
    apart = [runs[0], replace(runs[1], metadata={**runs[1].metadata, "task": "in_domain"})]
    assert len(gathered(write_runs(tmp_path, apart)).studies) == 2


def test_the_order_of_rows_means_nothing(tmp_path):
    one, two = run("MAP", 0, PEOPLE), run("MC dropout", 0, PEOPLE)
    turned = two.take(list(range(len(two)))[::-1])
    (study,) = gathered(write_runs(tmp_path, [one, two])).studies
    (other,) = gathered(write_runs(tmp_path, [one, turned])).studies
    key = ("joint", "referral_auroc_area")
    assert study.groups[1].runs[0].get(key) == other.groups[1].runs[0].get(key)
    assert (study.groups[1].runs[0].left_out[key] == other.groups[1].runs[0].left_out[key]).all()


@pytest.mark.parametrize(
    ("given", "says"),
    [({"rules": "corected"}, "Did you mean 'corrected'"), ({"bootstrap": -1}, "-1 bootstrap replicates")],
)
def test_bad_options(tmp_path, given, says):
    with pytest.raises(InputError, match=says):
        gathered(bare(tmp_path, 1), **given)
    with pytest.raises(InputError, match="nothing to tabulate"):
        gathered([])


def test_without_patients_the_page_says_so(tmp_path):
    one = replace(run("MAP", 0, PEOPLE), patient_id=None)
    notes = gathered(write_runs(tmp_path, [one])).notes
    assert any("every image is its own cluster" in note for note in notes)


def test_ensembles_name_their_members_in_the_file(tmp_path):
    one = run("deep ensemble of 3", 0, PEOPLE)
    runs = [
        replace(one, metadata={**one.metadata, "seed": k, "member_seeds": list(seeds)})
        for k, seeds in enumerate([(0, 1, 2), (0, 1, 3)])
    ]
    (study,) = gathered(write_runs(tmp_path, runs)).studies
    assert study.groups[0].members == [(0, 1, 2), (0, 1, 3)]
    assert study.groups[0].independent == 4
