"""Every result that the public functions return shows itself in a notebook: as HTML, as a DataFrame and as a figure."""

import numpy as np
import pytest
from matplotlib.figure import Figure

import retinabench as rb
from retinabench.core.results import Tabular
from retinabench.metrics.actions import FrozenRule
from retinabench.metrics.guarantees.goals import Goal
from retinabench.metrics.monitoring import watch as monitor
from retinabench.metrics.planning import Assumptions, plan_study
from support.follow_ups import follow_up


@pytest.fixture(scope="module")
def results():
    rng = np.random.default_rng(0)
    label = rng.integers(0, 2, 400)
    prob = np.clip(0.3 + 0.4 * label + rng.normal(0, 0.2, 400), 0.01, 0.99)
    split, domain = np.repeat(["validation", "test"], 200), np.tile(["in_domain", "shifted"], 200)
    ours = rb.Predictions(np.arange(400).astype(str), label, prob, split=split, domain=domain)
    theirs = rb.Predictions(ours.image_id, label, rng.permutation(prob), split=split, domain=domain)
    scores = rb.score(ours, bootstrap=20)
    found = [
        ours, scores, scores["in_domain"], rb.referral_curve(label, prob, -abs(prob - 0.5), "accuracy"),
        rb.compare(ours, theirs, bootstrap=20),
        rb.rank({"ours": ours, "theirs": theirs}, bootstrap=20, scores=["auroc"]),
        rb.transfer(ours, "selective_risk", 0.1, bootstrap=20), rb.triage(ours, ["npv=.9", "ppv=.9"], bootstrap=20),
        rb.clinic(ours, referral_rate=0.2),
        monitor(follow_up(rng, 100), FrozenRule("margin", 0.2, goals=(Goal.parse("npv=.9"),), most_images=2)),
        plan_study(Assumptions(prevalence=0.2, sensitivity=0.9, specificity=0.9)),
    ]  # fmt: skip
    return {type(one).__name__: one for one in found}


def test_every_tabular_result_is_looked_at(results):
    def below(kind):
        return {kind.__name__} | {name for one in kind.__subclasses__() for name in below(one)}

    ours = {name for one in Tabular.__subclasses__() if one.__module__.startswith("retinabench") for name in below(one)}
    assert set(results) | {"FrozenOnSets"} >= ours


def test_they_show_themselves(results):
    for name, one in results.items():
        assert one._repr_html_().startswith("<table>"), name
        assert len(one.to_dataframe()) == len(one.records()) > 0, name
        axes = Figure().subplots()
        assert one.plot(axes) is axes
        assert axes.has_data(), name


def test_a_plot_says_what_it_shows(results):
    figure = Figure()
    (above, below) = figure.subplots(2)
    labels = [text.get_text() for text in results["Transfer"].plot(above).get_yticklabels()]
    assert labels[0] == "error of the retained images, validation" or labels[0].endswith(", validation")
    results["Ranking"].plot(below)
    assert [text.get_text() for text in below.get_yticklabels()] == ["ours", "theirs"]
    assert below.get_xlabel() == "AUROC\u00a0↑, in-domain"
