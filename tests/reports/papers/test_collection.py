from dataclasses import replace
from itertools import product

import pytest

from retinabench.core.errors import QUIET, InputError
from retinabench.reports.papers.measurements import collect
from retinabench.reports.papers.write import write_tables
from support.fake_predictions import population
from support.written_papers import Written, gathered, run, write_runs

PEOPLE = population(60, 40)
NORTH, SOUTH = population(60, 40, seed=1), population(40, 40, seed=2)


def two_data_sets(**metadata):
    """Two methods with two seeds on two data sets under one kind of task, as a study labels its files."""
    about = {"task": "country_shift", "criterion": "in_domain_auroc", "data": "synthetic", **metadata}
    sites = ("north", NORTH), ("south", SOUTH)
    every = product(sites, ("MAP", "MC dropout"), range(2))
    return [run(method, seed, people, dataset=name, **about) for (name, people), method, seed in every]


def test_two_data_sets_under_one_task_have_tables_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr("retinabench.reports.papers.write.figures_of", lambda *_: ([], []))
    files = write_runs(tmp_path, two_data_sets())
    out = tmp_path / "out"
    write_tables(files, out, rules="corrected", bootstrap=0, seed=0, workers=1)
    both = Written(out, [], [])
    for name, part in (("north", files[:4]), ("south", files[4:])):
        alone = tmp_path / name
        write_tables(part, alone, rules="corrected", bootstrap=0, seed=0, workers=1)
        stem = "country-shift-tuned-in-domain"
        expected = Written(alone, [], []).cells(f"table-01-referral-{stem}")
        found = both.cells(f"table-01-referral-country-shift-{name}-tuned-in-domain")
        assert {key: row["value"] for key, row in found.items()} == {key: row["value"] for key, row in expected.items()}
        assert {row["dataset"] for row in found.values()} == {name}
        assert f"Country Shift on {name}" in both.text("table-03-detection")
    detection = both.rows("table-03-detection")
    assert {(row["dataset"], row["runs"]) for row in detection} == {("north", "2"), ("south", "2")}


def test_files_of_the_same_images_are_one_data_set_whatever_its_names(tmp_path):
    runs = two_data_sets()[:2]
    runs[1] = replace(runs[1], metadata={**runs[1].metadata, "dataset": "elsewhere"})
    (results,) = gathered(tmp_path, runs).results
    assert len(results.methods[0].runs) == 2


@pytest.mark.parametrize("name", ["", "north"])
def test_other_images_without_a_name_of_their_own_are_refused(tmp_path, name):
    north, south = two_data_sets(data="")[0], two_data_sets(data="")[5]
    other = replace(south, metadata={**south.metadata, "dataset": name})
    with pytest.raises(InputError, match="needs predictions of the same images"):
        gathered(tmp_path, [north, other])
    elsewhere = replace(other, metadata={**other.metadata, "task": "in_domain"})
    assert len(gathered(tmp_path, [north, elsewhere]).results) == 2


def test_labels_name_the_data_set_of_files_without_metadata(tmp_path):
    runs = [replace(run("MAP", 0, people), metadata={}) for people in (NORTH, SOUTH)]
    write_runs(tmp_path, runs)
    labels = tmp_path / "labels.csv"
    labels.write_text("file,method,task,dataset\n000.parquet,A,t,north\n001.parquet,A,t,south\n")
    files = [tmp_path / "000.parquet", tmp_path / "001.parquet"]
    results = collect(files, labels, "corrected", 0, 0, 1, QUIET).results
    assert [one.dataset for one in results] == ["north", "south"]


def test_a_run_counts_once(tmp_path):
    one = run("MAP", 3, PEOPLE, task="country_shift")
    with pytest.raises(InputError, match="is seed 3 of MAP, as is"):
        gathered(tmp_path, [one, one])


def test_two_configurations_of_one_title_are_told_apart(tmp_path):
    runs = [run("MAP", 0, PEOPLE), run("MAP", 1, PEOPLE)]
    other = replace(runs[1], metadata={**runs[1].metadata, "setting": "feedbeef"})
    (study,) = gathered(tmp_path, [runs[0], other]).results
    assert [g.name for g in study.methods] == ["MAP (000000000000)", "MAP (feedbeef)"]


def test_ensembles_follow_their_method(tmp_path):
    order = ["MC dropout", "deep ensemble of 3", "MAP", "MC dropout ensemble of 3"]
    (study,) = gathered(tmp_path, [run(name, 0, PEOPLE) for name in order]).results
    assert [g.name for g in study.methods] == ["MC dropout", "ensemble of 3 MC dropout", "MAP", "ensemble of 3 MAP"]


def test_the_order_of_rows_means_nothing(tmp_path):
    one, two = run("MAP", 0, PEOPLE), run("MC dropout", 0, PEOPLE)
    turned = two.take(list(range(len(two)))[::-1])
    (study,) = gathered(tmp_path, [one, two]).results
    (other,) = gathered(tmp_path, [one, turned]).results
    key = ("joint", "referral_auroc_area")
    assert study.methods[1].runs[0].get(key) == other.methods[1].runs[0].get(key)
    assert repr(study.methods[1].rankings[key].pairs) == repr(other.methods[1].rankings[key].pairs)  # NaN
