from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from retinabench.core.errors import InputError
from retinabench.metrics.image_sets import binary_entropy
from retinabench.reports.papers import figures as shared
from retinabench.reports.papers import filos
from retinabench.reports.papers.figures import _entropies, method_marks
from retinabench.reports.papers.write import FORMATS
from retinabench.reports.toolkit.figures import save
from support.fake_predictions import population
from support.written_papers import gathered, run

PEOPLE = population(120, 80)


def test_entropies_pool_the_runs_and_the_diagnosis_states_the_accuracy_with_and_without_referral(tmp_path):
    runs = [run("MAP", seed, PEOPLE, task="country_shift") for seed in range(2)]
    (results,) = gathered(tmp_path, runs).results
    right, wrong = _entropies(results.methods[0], "in_domain", 0)
    rows = (PEOPLE["domain"] == "in_domain") & (PEOPLE["grade"] == 0)
    prob = np.concatenate([one.prob[rows] for one in runs])
    assert right == pytest.approx(binary_entropy(prob[prob <= 0.5]))  # grade 0 is not referable
    assert wrong == pytest.approx(binary_entropy(prob[prob > 0.5]))
    said = " ".join(text.get_text() for text in shared.pipeline_figure(results).draw().axes[0].texts)
    for score in ("accuracy_at_0", "accuracy_at_20"):
        value = np.mean([one.get(("in_domain", score)) for one in results.methods[0].runs])
        assert f"In-domain: {100 * value:.1f} %" in said


def test_the_released_curves_are_drawn_in_three_formats(tmp_path):
    collection = gathered(tmp_path, [run("MAP", 0, PEOPLE, task="country_shift")], "published")
    (one, *_), _ = shared.curve_figures(collection.results[0], collection)
    assert [f.suffix for f in save(one.draw(), tmp_path / "figure", FORMATS)] == [f".{kind}" for kind in FORMATS]


@pytest.mark.parametrize("missing", ["shifted", "grades", "classes", "all but one"])
def test_what_is_missing_leaves_a_line_and_the_rest_stands(tmp_path, missing):
    one = run("MAP", 0, PEOPLE, task="country_shift")
    if missing == "shifted":
        one = one.select(domain="in_domain")
    elif missing == "grades":
        one = replace(one, grade=None)
    elif missing == "classes":
        one = one.take(np.flatnonzero(one.label == 0))
    else:
        one = one.take([0])
    collection = gathered(tmp_path, [one])
    study = collection.results[0]
    found = [shared.curve_figures(study, collection), shared.histogram_figures(study)]
    made = [figure for figures, _ in found for figure in figures]
    lacking = [line for _, lines in found for line in lines]
    for drawing in (*made, *filos.filos_figures(collection.results[0], collection)):
        figure = drawing.draw()
        figure.set_layout_engine(None)  # laying out takes most of the time
        figure.draw_without_rendering()
    says = {"shifted": "Class-balanced", "grades": "column 'grade'", "classes": "Class-balanced"}
    says["all but one"] = "ten images"
    assert any(says[missing] in line for line in lacking)


def test_preprocessing_is_shown_for_a_folder_of_images(tmp_path, monkeypatch):
    monkeypatch.setattr(shared, "SIDE", 64)
    y, x = np.mgrid[:60, :80]
    disc = np.where(np.hypot(y - 30, x - 40)[..., None] < 27, [200, 90, 40], [0, 0, 0]).astype(np.uint8)
    (tmp_path / "deep").mkdir()
    for k in range(8):
        Image.fromarray(disc).save(tmp_path / "deep" / f"{k}.png")
    for rules in ("published", "corrected"):
        found = shared.image_figures(tmp_path, rules, {})
        assert [one.number for one in found] == ["6 and 7", "18"]
    assert len(found[0].draw().axes) == 8
    assert len(found[1].draw().axes) == 20
    classes = shared.image_figures(tmp_path, "corrected", {str(k): k % 2 for k in range(8)})[0]
    assert classes.number == "1"
    assert len(classes.draw().axes) == 8
    with pytest.raises(InputError, match="not a folder"):
        shared.image_figures(tmp_path / "none", "corrected", {})
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no images"):
        shared.image_figures(tmp_path / "empty", "corrected", {})


def test_single_methods_are_solid_and_share_their_colour_with_their_ensembles(tmp_path):
    runs = [run(name, 0, PEOPLE) for name in ("MAP", "deep ensemble of 3", "MC dropout", "MC dropout ensemble of 3")]
    (study,) = gathered(tmp_path, runs).results
    map_, pooled, dropout, dropouts = method_marks(study.methods)
    assert map_.hue == pooled.hue != dropout.hue == dropouts.hue
    assert map_.dashes == dropout.dashes == ()
    assert pooled.dashes == dropouts.dashes != ()
