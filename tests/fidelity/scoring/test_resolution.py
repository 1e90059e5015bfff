"""Pairs are told apart where their difference exceeds its error, and places follow."""

import numpy as np
import pytest
from scipy import stats

from retinabench.fidelity.scoring import resolution
from retinabench.fidelity.scoring.resolution import Contest, places_of_ranks, resolve


def contest(centres, seeds=3, spread=0.02, points=0.01, seed=0):
    random = np.random.default_rng(seed)
    values = [centre + spread * random.normal(size=seeds) for centre in centres]
    shared = points * random.normal(size=500)  # the same points for all
    return Contest(False, values, [each.mean() + shared + 0.001 * random.normal(size=500) for each in values])


def test_far_entries_have_places_of_their_own_and_near_ones_share():
    found = resolve([contest([0.1, 0.103, 0.5, 0.9], spread=0.005)])
    assert found.places == ((1, 2), (1, 2), (3, 3), (4, 4))
    assert (found.resolved, found.pairs) == (5, 6)
    assert 0.005 < found.detectable[0] < 0.1


def test_seeds_that_vary_resolve_nothing():
    # One third of the entries' own noise lies between them, as on `energy-gap`.
    found = resolve([contest([0.30, 0.32, 0.34, 0.36], spread=0.06)])
    assert found.places == ((1, 4),) * 4
    assert found.resolved == 0


def test_equal_entries_are_rarely_told_apart():
    # Holm's correction: in 5 % of the tasks at most some pair of equal entries is resolved; 12 of 100 is four standard errors more.
    wrong = sum(resolve([contest([0.3] * 5, seed=k)]).resolved > 0 for k in range(100))
    assert wrong <= 12


def test_the_stated_power_is_reached():
    found = resolve([contest([0.3] * 4, seeds=20, spread=0.02)])
    size = found.detectable[0]
    hits = sum(
        (1, 2) not in resolve([contest([0.3, 0.3 + size, 0.3, 0.3], seeds=20, seed=k)]).places[1:2]
        for k in range(60)
    )
    assert hits >= 40  # .8 for one pair; this entry has three


@pytest.mark.parametrize(
    ("level", "degrees"), [(0.05 / 2, 4), (0.05 / 930, 3), (0.05 / 930, 30), (0.05 / 50, 999)]
)
def test_the_power_is_that_of_the_noncentral_t(level, degrees):
    critical = stats.t.ppf(1 - level / 2, degrees)
    size = resolution._noncentrality(critical, degrees)
    assert stats.nct.sf(critical, degrees, size) == pytest.approx(0.8, abs=0.02)


def test_a_single_seed_has_the_variance_of_the_others():
    several = contest([0.3, 0.32, 0.31], spread=0.05)
    one = Contest(False, [several.seeds[0][:1], *several.seeds[1:]], several.replicates)
    assert resolve([one]).resolved == 0
    alone = Contest(False, [each[:1] for each in several.seeds], several.replicates)
    assert resolve([alone]).resolved == 3  # nothing is known of the seeds: the ranks are those of these runs


def test_measures_that_contradict_each_other_resolve_nothing():
    first, second = contest([0.1, 0.9], spread=0.001), contest([0.9, 0.1], spread=0.001)
    assert resolve([first, second]).places == ((1, 2), (1, 2))


def test_places_by_mean_ranks():
    random = np.random.default_rng(0)
    ranks = np.array([1.2, 1.3, 3.0]) + 0.3 * random.normal(size=(500, 3))
    assert places_of_ranks(ranks) == ((1, 2), (1, 2), (3, 3))
    assert places_of_ranks(np.empty((0, 2))) == ((1, 2), (1, 2))
