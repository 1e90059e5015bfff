import numpy as np
import pytest
from scipy import stats

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees import Answers
from retinabench.concepts.questioning import strategies
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.strategies import STRATEGIES, AtRandom, most_uncertain, rate_variance
from support.concept_banks import make_answers, make_bank

ALL = [name for name in STRATEGIES if name != "claims"]


def asked_by(bank, strategy, seed=0, **options):
    """Questions (sample, concept) in order."""
    answers, seen = make_answers(bank), []

    def ask(sample, concept):
        seen.append((sample, concept))
        return answers(sample, concept)

    examine(bank, ask, strategy=strategy, seed=seed, **options)
    return seen


@pytest.mark.parametrize("strategy", ALL)
def test_every_question_once_and_seeded(strategy):
    bank = make_bank(samples=30)
    first = asked_by(bank, strategy)
    assert len(set(first)) == len(first) == 120
    assert asked_by(bank, strategy) == first
    assert asked_by(bank, strategy, seed=1) != first


def test_drawing_in_a_cell_is_a_random_permutation():
    # All 24 orders of 4 samples, 4,800 times: chi-squared with 23 degrees of freedom.
    bank = Bank(None, "a", np.array([[1], [0], [1], [1], [0], [1]], np.int8))
    random, orders = np.random.default_rng(0), {}
    for _ in range(4800):
        pool = AtRandom(bank)
        order = tuple(pool.draw((0, 1), random)[0] for _ in range(4))
        orders[order] = orders.get(order, 0) + 1
    assert len(orders) == 24
    assert set(next(iter(orders))) == {0, 2, 3, 5}
    assert stats.chisquare(list(orders.values())).pvalue > 1e-3


def test_random_asks_in_proportion():
    # 2,000 samples, 300 questions: 0.7 of the known truths of a concept that is everywhere; standard error 0.026.
    truth = np.zeros((2000, 2), np.int8)
    truth[:600, 0], truth[:, 1] = 1, -1
    truth[:10, 1] = 1
    seen = asked_by(Bank(None, "ab", truth), "random", questions=300)
    share = np.mean([truth[sample, 0] for sample, concept in seen if concept == "a"])
    assert share == pytest.approx(0.3, abs=4 * 0.026)
    assert sum(concept == "b" for _, concept in seen) < 10


def state(bank, asked, right, uncertainty):
    zeros = np.zeros((len(bank.concepts), 2), np.int64)
    return strategies.ExaminationState(bank, np.array(asked), np.array(right), np.array(uncertainty), zeros)


def test_the_cell_of_largest_uncertainty_or_least_precision():
    truth = np.array([[0, 0], [0, 1], [1, 1], [1, 1], [0, 0]], np.int8)
    bank = Bank(None, "ab", truth)
    random = np.random.default_rng(0)
    now = state(bank, [[1, 2], [0, 1]], [[1, 1], [0, 1]], [[0.5, 1.9], [1.2, 1.1]])
    assert most_uncertain(now, random) == (1, 0)  # (0, 1) is more uncertain, but asked completely
    spread = rate_variance(now.asked / 2, now.asked, bank.cells)
    assert spread[0, 1] == 0
    assert strategies.least_precise(now, random) == divmod(int(spread.argmax()), 2)


def test_precision_asks_rare_concepts_first_and_without_regard_to_the_answers():
    bank = make_bank(samples=300)
    order = asked_by(bank, "precision", questions=200)
    other = []
    examine(bank, lambda *question: (other.append(question), 1.0)[1], strategy="precision", questions=200)
    assert other == order
    soft = sum(bank.truth[sample, 3] == 1 for sample, concept in order if concept == "soft exudate")
    assert soft >= 10  # of some 30 among 1,200 questions; a random sixth would be 5


def test_round_robin_asks_every_cell_as_often_until_it_is_empty():
    bank = make_bank(samples=60)
    found = examine(bank, make_answers(bank), strategy="round-robin", questions=40)
    counts = [(one.sensitivity.asked, one.specificity.asked) for one in found.concepts.values()]
    left = bank.cells[:, ::-1] - np.array(counts)
    assert max(map(max, counts)) - np.array(counts)[left > 0].min() <= 1


def test_ties_are_drawn_evenly():
    bank = make_bank()
    now = state(bank, np.zeros((4, 2), int), np.zeros((4, 2), int), np.full((4, 2), 2.0))
    random = np.random.default_rng(0)
    counts = np.zeros((4, 2))
    for _ in range(1600):
        counts[most_uncertain(now, random)] += 1
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3


def saturating():
    """A bank whose first concept is answered by one number throughout: its cells saturate at once."""
    bank = make_bank(samples=200, concepts=("dull", "lively"), shares=(0.5, 0.5))
    probs = np.random.default_rng(0).random((200, 2))
    probs[:, 0] = 1.0
    return bank, Answers(bank, probs)


def test_a_saturated_cell_is_left_alone():
    bank, answers = saturating()
    asked = {}
    for rules in ("corrected", "published"):
        found = examine(bank, answers, strategy="uncertainty", rules=rules, questions=150).to_dict()["concepts"]
        asked[rules] = sum(found["lively"]["counts"].values())
    # As published, the two saturated cells are the most uncertain ones for ever.
    assert asked["published"] < 20
    assert asked["corrected"] > 100


@pytest.mark.parametrize(("right", "asked", "of"), [(0, 1, 1), (3, 5, 40), (40, 40, 41), (7, 9, 300)])
def test_the_variance_of_a_rate_is_that_of_scipys_beta_binomial(right, asked, of):
    rest = stats.betabinom(of - asked, right + 0.5, asked - right + 0.5)
    assert rate_variance(right, asked, of) == pytest.approx(rest.var() / of**2, abs=1e-12)
