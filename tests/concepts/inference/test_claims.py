"""Confidence sequences: the formulas by brute force, and exact coverage by dynamic programming with a look after every answer."""

import math
from functools import cache

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees import Answers
from retinabench.concepts.inference import claims
from retinabench.concepts.inference.claims import Claim, Wealth, bank_sequence, needed, new_sequence, parse_claim
from retinabench.concepts.questioning.examination import examine
from retinabench.core.errors import InputError
from support.concept_banks import make_answers, make_bank


def log_mixture(k, n):
    """P(answers in their order) with p ~ Beta(1/2, 1/2), by numerical integration over p = sin^2 x."""
    value = integrate.quad(lambda x: np.sin(x) ** (2 * k) * np.cos(x) ** (2 * (n - k)) * 2 / np.pi, 0, np.pi / 2)
    return math.log(value[0])


@pytest.mark.parametrize(("k", "n"), [(0, 5), (9, 12), (16, 16), (41, 50)])
def test_new_samples_by_integration_and_root_finding(k, n):
    limit = log_mixture(k, n) + math.log(0.05)

    def excess(p):
        return special.xlogy(k, p) + special.xlogy(n - k, 1 - p) - limit

    low, high = new_sequence(k, n, 0.05)
    assert low == pytest.approx(optimize.brentq(excess, 1e-9, k / n) if k else 0.0, abs=1e-9)
    assert high == pytest.approx(optimize.brentq(excess, k / n, 1 - 1e-9) if k < n else 1.0, abs=1e-9)


def order_probability(total, right, asked, of):
    """P(one order of the answers | K = total): the hypergeometric probability over the number of orders."""
    return stats.hypergeom.pmf(right, of, total, asked) / math.comb(asked, right)


@pytest.mark.parametrize(
    ("k", "n", "of"), [(0, 0, 7), (3, 5, 20), (0, 9, 30), (28, 30, 41), (40, 40, 41), (17, 20, 20)]
)
def test_the_bank_by_trying_every_number(k, n, of):
    mixture = sum(stats.betabinom.pmf(K, of, 0.5, 0.5) * order_probability(K, k, n, of) for K in range(of + 1))
    assert math.log(mixture) == pytest.approx(log_mixture(k, n), abs=1e-8)
    held = [total for total in range(of + 1) if order_probability(total, k, n, of) > 0.05 * mixture]
    assert held == list(range(held[0], held[-1] + 1))
    assert bank_sequence(k, n, of, 0.05) == (held[0] / of, held[-1] / of)


def missed_ever(ends, of, chance):
    """Exact probability that a sequence ever misses: `chance(asked, right)` of a correct answer, `ends[n][k]` whether it holds."""
    alive, missed = {0: 1.0}, 0.0
    for asked in range(of):
        following: dict[int, float] = {}
        for right, weight in alive.items():
            p = chance(asked, right)
            for more, q in ((1, p), (0, 1 - p)):
                if q > 0 and ends[asked + 1][right + more]:
                    following[right + more] = following.get(right + more, 0.0) + weight * q
                elif q > 0:
                    missed += weight * q
        alive = following
    return missed


def test_the_exact_coverage_with_a_look_after_every_answer():
    """Over every bank of 40 samples and a grid of rates: at most 5 % ever miss, and some come near it."""
    of, alpha = 40, 0.05
    bank = [[bank_sequence(k, n, of, alpha) for k in range(n + 1)] for n in range(of + 1)]
    missed = []
    for total in range(of + 1):
        held = [[low * of - 1e-9 <= total <= high * of + 1e-9 for low, high in row] for row in bank]
        possible = [[k <= total and n - k <= of - total for k in range(n + 1)] for n in range(of + 1)]
        assert any(held[n][k] for n in (of,) for k in range(n + 1) if possible[n][k])
        missed.append(missed_ever(held, of, lambda asked, right, total=total: (total - right) / (of - asked)))
    assert max(missed) <= alpha
    assert max(missed) > 0.015
    new = [[new_sequence(k, n, alpha) for k in range(n + 1)] for n in range(of + 1)]
    rates = (0.02, 0.1, 0.3, 0.5, 0.85, 0.95)
    held = [[[low <= p <= high for low, high in row] for row in new] for p in rates]
    missed = [missed_ever(ends, of, lambda *_, p=p: p) for ends, p in zip(held, rates, strict=True)]
    assert max(missed) <= alpha
    assert max(missed) > 0.01


def test_ends_and_symmetry():
    assert new_sequence(0, 0, 0.05) == bank_sequence(0, 0, 9, 0.05) == (0.0, 1.0)
    low, high = new_sequence(3, 11, 0.01)
    assert new_sequence(8, 11, 0.01) == pytest.approx((1 - high, 1 - low), abs=1e-12)
    assert bank_sequence(17, 20, 20, 0.05) == (0.85, 0.85)
    # A small part of a large bank is like new samples.
    assert bank_sequence(9, 12, 10**7, 0.05) == pytest.approx(new_sequence(9, 12, 0.05), abs=1e-5)


def test_the_number_needed_is_the_smallest_that_suffices():
    for goal, alpha in ((0.5, 0.05), (0.85, 0.05), (0.85, 0.05 / 28), (0.99, 0.05)):
        least = needed(goal, alpha)
        assert new_sequence(least, least, alpha).low >= goal > new_sequence(least - 1, least - 1, alpha).low


def claim(of, goal, at_least=True, confidence=0.95, **more):
    return Claim("", 0, 1, at_least, goal, confidence, of, **more)


def tell(one, answers):
    """Feed a claim with answers; what it says after each."""
    said = []
    for number, correct in enumerate(answers, start=1):
        one.update(0, 1, bool(correct), number)
        said.append(one.decided)
    return said


def chances(K, of, right, asked):
    """P(a given order of `right` right answers among `asked` | K), by falling factorials, 0 where impossible."""
    with np.errstate(invalid="ignore", divide="ignore"):
        log = special.gammaln(K + 1) - special.gammaln(K - right + 1)
        log = log + special.gammaln(of - K + 1) - special.gammaln(of - K - (asked - right) + 1)
        log = log - special.gammaln(of + 1) + special.gammaln(of - asked + 1)
    return np.where((right <= K) & (asked - right <= of - K), np.exp(log), 0.0)


def test_the_wealth_by_brute_force():
    random = np.random.default_rng(0)
    of, null = 40, 33
    others = np.arange(null + 1, of + 1)
    one = Wealth(null, others, of)
    answers = random.permutation(np.arange(of) < 36)
    for asked in range(1, 30):
        log = one.update(bool(answers[asked - 1]), int(answers[: asked - 1].sum()), asked - 1)
        right = int(answers[:asked].sum())
        by_hand = np.mean(chances(others, of, right, asked)) / chances(np.array([null]), of, right, asked)[0]
        assert log == pytest.approx(math.log(by_hand), abs=1e-9)


@cache
def decisions(of, goal, at_least=True, confidence=0.95):
    """(of + 1, of + 1) of "", "holds", "fails": what is said at (asked, right) if nothing was said before."""
    table = np.full((of + 1, of + 1), "", object)
    least = math.ceil(goal * of - 1e-9)
    above, below = np.arange(least, of + 1), np.arange(least)
    limit = 1 / (1 - confidence)
    for asked in range(1, of + 1):
        for right in range(asked + 1):
            larger = (np.mean(chances(above, of, right, asked)), chances(np.array([least - 1]), of, right, asked)[0])
            smaller = (np.mean(chances(below, of, right, asked)), chances(np.array([least]), of, right, asked)[0])
            if right >= least or larger[0] >= limit * larger[1] > 0:
                table[asked, right] = "holds"
            elif asked - right > of - least or smaller[0] >= limit * smaller[1] > 0:
                table[asked, right] = "fails"
    return table


def wrong_share(table, K):
    """Exact probability that the first word said is wrong, with K right answers in the bank, and the mean number of questions."""
    of = len(table) - 1
    alive = {0: 1.0}
    said, questions = {"holds": 0.0, "fails": 0.0}, 0.0
    for asked in range(of):
        following: dict[int, float] = {}
        for right, chance in alive.items():
            questions += chance
            p = (K - right) / (of - asked)
            for more, q in ((1, p), (0, 1 - p)):
                if q > 0:
                    word = table[asked + 1, right + more]
                    if word:
                        said[word] += chance * q
                    else:
                        following[right + more] = following.get(right + more, 0.0) + chance * q
        alive = following
    return said, questions


@pytest.mark.parametrize(("of", "goal"), [(20, 0.85), (60, 0.85), (60, 0.5), (37, 0.3)])
def test_the_exact_error_rate_with_a_look_after_every_question(of, goal):
    table = decisions(of, goal)
    least = math.ceil(goal * of - 1e-9)
    errors = []
    for K in range(of + 1):
        said, _ = wrong_share(table, K)
        assert sum(said.values()) == pytest.approx(1.0, abs=1e-9)  # all asked, all known
        errors.append(said["fails" if least <= K else "holds"])
    assert max(errors) <= 0.05
    # The test is not idle: at the border, in both directions, it errs in a fair part of what it may.
    assert errors[least - 1] > 0.005
    assert errors[least] > 0.005


@pytest.mark.parametrize(("of", "goal"), [(20, 0.85), (60, 0.85), (37, 0.3)])
def test_claims_say_what_the_table_says(of, goal):
    table = decisions(of, goal)
    random = np.random.default_rng(5)
    for K in (0, of // 3, math.ceil(goal * of) - 1, math.ceil(goal * of), of):
        answers = random.permutation(np.arange(of) < K)
        expected, word = [], "undecided"
        for asked in range(1, of + 1):
            word = word if word != "undecided" else table[asked, answers[:asked].sum()] or "undecided"
            expected.append(word)
        assert tell(claim(of, goal), answers) == expected


def test_the_other_direction_is_the_mirror():
    answers = np.random.default_rng(2).permutation(np.arange(50) < 30)
    # "<= 0.59" of 50 is K <= 29, the contrary of K >= 30 which is ">= 0.6".
    mirrored = {"holds": "fails", "fails": "holds", "undecided": "undecided"}
    assert [mirrored[word] for word in tell(claim(50, 0.6), answers)] == tell(claim(50, 0.59, at_least=False), answers)


@pytest.mark.parametrize("at_least", [True, False])
def test_a_claim_about_new_patients_is_decided_when_its_confidence_sequence_leaves_the_goal(at_least):
    """Of two claims together at 90 %: each at 95 %. The answers are those of seed 3."""
    random, words = np.random.default_rng(3), ("holds", "fails") if at_least else ("fails", "holds")
    for rate in (0.7, 0.85, 0.97):
        answers, expected = random.random(200) < rate, "undecided"
        one = claim(200, 0.85, at_least, 0.9, together=2, new=True)
        for asked, (said, right) in enumerate(zip(tell(one, answers), answers.cumsum().tolist(), strict=True), start=1):
            low, high = new_sequence(right, asked, 0.05)
            if expected == "undecided" and not low < 0.85 < high:
                expected = words[high < 0.85]
            assert said == expected
        assert expected == {0.7: words[1], 0.85: "undecided", 0.97: words[0]}[rate]


def simulated_errors(of, goal, K, studies, seed):
    random = np.random.default_rng(seed)
    wrong = "fails" if goal * of <= K else "holds"
    errors = 0
    for _ in range(studies):
        one, answers = claim(of, goal), random.permutation(np.arange(of) < K)
        while one.decided == "undecided":
            one.update(0, 1, bool(answers[one.asked]), one.asked + 1)
        errors += one.decided == wrong
    return errors / studies


@pytest.mark.parametrize("strategy", ["uncertainty", pytest.param("claims", marks=pytest.mark.slow)])
def test_the_error_rate_where_answers_decide_which_cell_is_asked(strategy):
    # 50 of 60 right where 51 are claimed: "holds" is wrong. A second claim and the other cells are asked in between, in an
    # order that follows the answers. The decision must be that of the cell's answers alone at the level of one of two claims, 97.5 %,
    # and the error the exact one; standard error of 100 studies: 0.015.
    truth = np.repeat([[0, 0], [1, 1]], [20, 60], axis=0).astype(np.int8)
    bank = Bank(None, "ab", truth)
    table = decisions(60, 0.85, confidence=0.975)
    exact = wrong_share(table, 50)[0]["holds"]
    assert 0.005 < exact <= 0.025
    wrong = 0
    for study in range(100):
        random = np.random.default_rng([7, study])
        right = np.ones((80, 2), bool)
        right[20 + random.permutation(60)[:10], 0] = False  # the same samples are hard for both concepts
        right[:, 1] = right[:, 0] & (random.random(80) < 0.9)
        sure = random.uniform(0.5, 1, right.shape)
        answers = Answers(bank, np.where(right == (truth == 1), sure, 1 - sure))
        stated = ["sensitivity of a >= 0.85", "sensitivity of b >= 0.6"]
        found = examine(bank, answers, strategy=strategy, claim=stated, seed=study)
        correct = found.record.said(0)[found.record.about(0)[1] == 1]
        said = [table[asked, correct[:asked].sum()] for asked in range(1, len(correct) + 1)]
        assert found.claims[0].decided == next(filter(None, said))
        wrong += found.claims[0].decided == "holds"
    assert wrong / 100 == pytest.approx(exact, abs=3 * 0.015)


@pytest.mark.parametrize("K", [254, 255])
def test_errors_where_the_mixture_is_thinned(K, monkeypatch):
    # 300 samples, goal 0.85: K = 254 makes "holds" an error, K = 255 "fails". Standard error with 60 studies: 0.028.
    monkeypatch.setattr(claims, "MIXTURE", 20)
    assert simulated_errors(300, 0.85, K, 60, seed=K) <= 0.05 + 2 * 0.028


def test_what_is_certain_needs_no_question_and_a_share_means_what_it_says():
    assert claim(20, 0.0).decided == "holds"
    assert claim(20, 1.0, at_least=False).decided == "holds"
    assert claim(20, 1.0).decided == "undecided"
    assert tell(claim(20, 1.0), [1, 0])[-1] == "fails"  # one wrong answer refutes "all are right"
    assert tell(claim(3, 1.0), [1, 1, 1])[-1] == "holds"
    one = claim(20, 0.85)  # 17 of 20, though 0.85 * 20 is 17.000000000000004 or 16.99… in floats
    assert tell(one, [1] * 17)[-1] == "holds"
    assert tell(claim(20, 0.85, confidence=0.9999999), [1] * 17)[-1] == "holds"
    assert tell(claim(20, 0.85, confidence=0.9999999), [1] * 16)[-1] == "undecided"


@pytest.mark.parametrize(
    ("text", "concept", "truth", "at_least", "goal"),
    [
        ("sensitivity of haemorrhage >= 0.85", 1, 1, True, 0.85),
        ("Specificity of hard exudate ≤ 60 %", 2, 0, False, 0.6),
        ("sensitivity of soft exudate>=90%", 3, 1, True, 0.9),
    ],
)
def test_sentences(text, concept, truth, at_least, goal):
    one = parse_claim(text, make_bank())
    assert (one.concept, one.truth, one.at_least) == (concept, truth, at_least)
    assert one.goal == pytest.approx(goal)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sensitivity of haemorrhage is fine", "is not understood. Write it as 'sensitivity of microaneurysm >= 0.85'"),
        ("sensitivity of hemorrhage >= 0.8", "Did you mean 'haemorrhage'"),
        ("sensitivity of haemorrhage >= 85", "is not a share"),
        ("sensitivity of haemorrhage >= 0.8.5", "is not a number"),
    ],
)
def test_wrong_sentences(text, says):
    with pytest.raises(InputError, match=says):
        parse_claim(text, make_bank())


def test_a_claim_about_an_empty_cell_is_refused():
    bank = Bank(None, ["a"], np.zeros((3, 1), np.int8))
    with pytest.raises(InputError, match="no positive sample"):
        parse_claim("sensitivity of a >= 0.5", bank)
    with pytest.raises(InputError, match="not between 0 and 1"):
        parse_claim("specificity of a >= 0.5", bank, confidence=1.0)


@pytest.mark.parametrize("strategy", ["unpredictability", "uncertainty+unpredictability"])
def test_strategies_that_select_samples_decide_no_claim(strategy):
    bank = make_bank()
    with pytest.raises(InputError, match="no claim can be decided"):
        examine(bank, make_answers(bank), strategy=strategy, claim="sensitivity of haemorrhage >= 0.5")


def test_the_claims_strategy_asks_what_the_claim_is_about():
    bank = make_bank(samples=400)
    stated = ["sensitivity of haemorrhage >= 0.2", "specificity of hard exudate <= 0.3"]
    found = examine(bank, make_answers(bank), strategy="claims", claim=stated).to_dict()
    assert found["stopped"] == "claims"
    first, second = found["claims"]
    assert (first["decided"], second["decided"]) == ("holds", "fails")
    assert found["asked"] == first["asked"] + second["asked"] == max(first["after"], second["after"])
    assert any("2 registered claims are decided together" in note for note in found["notes"])


def test_claims_stated_together_are_decided_at_a_part_of_the_level():
    answers = np.random.default_rng(3).permutation(np.arange(60) < 40)
    three, alone = claim(60, 0.85, together=3), claim(60, 0.85, confidence=1 - 0.05 / 3)
    assert tell(three, answers) == tell(alone, answers)
    first = tell(claim(60, 0.85), answers).index("fails")
    assert tell(claim(60, 0.85, together=3), answers).index("fails") >= first


def test_an_exploratory_claim_is_counted_and_never_decided():
    one = claim(20, 0.5, registered=False)
    assert set(tell(one, [1] * 20)) == {"undecided"}
    assert (one.asked, one.right, one.open) == (20, 20, False)
    assert one.to_dict(make_bank())["decided"] is None
    assert claim(20, 0.0, registered=False).decided == "undecided"
