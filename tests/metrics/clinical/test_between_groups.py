import numpy as np
import pytest
from scipy.special import expit, logit

from retinabench.metrics.clinical.groups import between_groups, new_site
from retinabench.metrics.proportions import Interval, clustered_proportion


def sites(rng, count, patients, mean, spread):
    """Rates of sites with their intervals, and the true rate of one more."""
    *true, new = expit(rng.normal(logit(mean), spread, count + 1))
    drawn = [rng.random(patients) < p for p in true]
    return [clustered_proportion(one, np.ones(patients), np.arange(patients)) for one in drawn], new


def test_many_large_sites_tell_mean_and_spread():
    found = new_site(sites(np.random.default_rng(1), 60, 4000, 0.8, 0.4)[0])
    assert found.sites == 60
    assert found.mean.value == pytest.approx(0.8, abs=0.02)
    assert found.tau == pytest.approx(0.4, abs=0.1)  # the sites' own std is .35
    assert found.new_site.low == pytest.approx(expit(logit(0.8) - 1.96 * 0.4), abs=0.05)
    assert found.new_site.high == pytest.approx(expit(logit(0.8) + 1.96 * 0.4), abs=0.05)


def test_equal_large_sites_have_nearly_no_spread():
    found = new_site([Interval(0.9, 0.895, 0.905)] * 8)
    assert found.tau < 0.1
    assert found.new_site.low < found.mean.low < 0.9 < found.mean.high < found.new_site.high


@pytest.mark.parametrize(
    ("count", "patients", "mean", "spread"),
    [pytest.param(10, 150, 0.82, 0.5, marks=pytest.mark.slow), (8, 50, 0.98, 0.6)],
)
def test_the_interval_of_a_new_site_holds_its_rate(count, patients, mean, spread):
    """95 % nominal; 100 studies know the share to 2.2 points. In the second setting a third of the sites have no error."""
    rng, held = np.random.default_rng(7), 0
    for _ in range(100):
        rates, new = sites(rng, count, patients, mean, spread)
        found = new_site(rates).new_site
        held += found.low <= new <= found.high
    assert 0.9 <= held / 100 <= 0.99


def test_the_gap_is_that_of_the_outermost_intervals():
    together = {"a": Interval(0.9, 0.8, 0.95), "b": Interval(0.6, 0.5, 0.7), "c": Interval(0.8, 0.6, 0.9)}
    found = between_groups("camera", "sensitivity", together, together)
    assert (found.lowest, found.highest) == ("b", "a")
    assert [found.gap.value, found.gap.low, found.gap.high] == pytest.approx([0.3, 0.1, 0.45])
    assert found.new_site is not None
    assert between_groups("sex", "sensitivity", together, together).new_site is None  # nobody meets a new sex
    assert between_groups("camera", "sensitivity", {"a": together["a"]}) is None
