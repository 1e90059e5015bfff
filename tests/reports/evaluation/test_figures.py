import numpy as np
import pytest

from retinabench.predictions.table import Predictions
from retinabench.reports.evaluation.evaluation import EvaluationSettings, evaluate_methods
from retinabench.reports.evaluation.figures import NHS, histogram_panels, referral_panels, reliability_panels, roc_panel
from retinabench.reports.toolkit.figures import Line, mark

pytestmark = pytest.mark.usefixtures("legible")

X = np.linspace(0, 1, 5)


def test_the_standard_is_a_point_of_the_roc_figure():
    assert NHS == (0.2, 0.85)
    [axes] = roc_panel([Line(mark(1), X, X**0.5)]).axes
    points = [one for one in axes.lines if one.get_marker() == "o"]
    assert [(one.get_xdata()[0], one.get_ydata()[0]) for one in points] == [NHS]
    (curve,) = [one for one in axes.lines if one.get_color() == mark(1).color]
    assert curve.get_ydata()[2] == pytest.approx(0.5**0.5)


@pytest.fixture(scope="module")
def found():
    """Of 40 images the 10 with probabilities nearest to one half are called wrongly, and a quarter is referred."""
    label = np.arange(40) % 2
    prob = np.where(np.arange(40) < 10, 0.6 - 0.2 * label, 0.1 + 0.8 * label)
    file = Predictions([f"i{k}" for k in range(40)], label, prob)
    return evaluate_methods({"m": file}, EvaluationSettings(bootstrap=0, referred=0.25))


def test_the_caption_states_what_is_retained_and_the_descriptions_the_errors(found):
    [(heading, [panel]), *others] = referral_panels(found)
    assert heading == "Accuracy"
    assert [one for one, _ in others] == ["AUROC", "NLL, lower is better"]
    assert "accuracy 0.75 → 1" in panel.caption
    assert "referable 50 % → 50 %" in panel.caption
    assert "With 25 % referred: m 1" in panel.svg
    [histogram], [reliability] = histogram_panels(found), reliability_panels(found)
    assert "in-domain: 10 of 40 incorrect" in histogram.svg
    assert "in-domain: predicted 0.50 on average, observed 0.50" in reliability.svg
