from dataclasses import replace

import numpy as np
import pytest

from retinabench.core.errors import QUIET, InputError
from retinabench.metrics.arrays import referral_curve
from retinabench.metrics.classification import grade_weight, roc_curve, sensitivity_on_chords
from retinabench.metrics.image_sets import referral_uncertainty
from retinabench.metrics.weighted_images import Cases
from retinabench.predictions.io import write_predictions
from retinabench.reports.evaluation.evaluation import GRID
from retinabench.reports.papers.measurements import RATES, collect, read_labels, retained_weight
from support.fake_predictions import population
from support.written_papers import gathered, run

PEOPLE = population(80, 40)


def bare(tmp_path, count: int = 4):
    """CSV files, which have no room for metadata."""
    files = [tmp_path / f"ours-{k}.csv" for k in range(count)]
    for k, file in enumerate(files):
        write_predictions(replace(run("MAP", k, PEOPLE), metadata={}), file)
    return files


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
    first, second = collect(files, labels, "corrected", 0, 0, 1, QUIET).results
    assert (first.task, first.criterion) == ("country_shift", "in_domain_auroc")
    assert [(g.name, len(g.runs)) for g in first.methods] == [("Ours", 2)]
    assert [(g.name, g.blur) for g in first.blur_variants] == [("Ours", 30), ("Ours", 5)]
    assert [(g.name, len(g.runs)) for g in second.methods] == [("Theirs", 1)]
    assert second.criterion == ""


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


CURVES_PEOPLE = population(240, 160)


def test_roc_curves_are_averaged_over_runs(tmp_path):
    runs = [run("MAP", seed, CURVES_PEOPLE, task="country_shift") for seed in range(3)]
    (study,) = gathered(tmp_path, runs).results
    parts = [one.select(domain="shifted") for one in runs]
    mean = np.mean([sensitivity_on_chords(roc_curve(p.label, p.prob), RATES["corrected"]) for p in parts], axis=0)
    drawn = np.mean([r.roc["shifted", 1.0] for r in study.methods[0].runs], axis=0)
    np.testing.assert_allclose(drawn, mean, atol=1e-12)


def test_referral_curves_are_read_on_a_grid_and_end_where_few_remain(tmp_path):
    one = run("MC dropout", 0, CURVES_PEOPLE, task="country_shift")
    (study,) = gathered(tmp_path, [one]).results
    part = one.select(domain="in_domain")
    whole = referral_curve(part.label, part.prob, referral_uncertainty(part)[0], "accuracy")
    drawn = study.methods[0].runs[0].referral["in_domain", "accuracy"]
    assert drawn[50] == pytest.approx(whole.at(0.5), abs=1e-12)
    kept = 240 * (1 - GRID)
    assert np.isnan(drawn[kept < 11.9]).all()  # fewer than a twentieth, 12
    assert np.isfinite(drawn[kept > 13]).all()


def test_the_class_balanced_set_has_the_grades_of_eyepacs(tmp_path):
    one = run("MAP", 0, CURVES_PEOPLE, task="country_shift")
    (study,) = gathered(tmp_path, [one]).results
    part = one.select(domain="shifted")
    curve = roc_curve(part.label, part.prob, grade_weight(part.grade))
    expected = sensitivity_on_chords(curve, RATES["corrected"])
    np.testing.assert_allclose(study.methods[0].runs[0].roc["rebalanced", 1.0], expected, atol=1e-12)


def test_retained_images_share_ties():
    w = Cases([0, 1, 0, 1], [0.1, 0.9, 0.4, 0.6], [0.1, 0.2, 0.3, 0.3]).weighted()
    assert retained_weight(w, 0.75).tolist() == [1, 1, 0.5, 0.5]
    assert retained_weight(w, 0.5).tolist() == [1, 1, 0, 0]
    assert retained_weight(w, 1.0).tolist() == [1, 1, 1, 1]
