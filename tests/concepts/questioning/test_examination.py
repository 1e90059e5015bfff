import json

import numpy as np
import pytest
from scipy import stats

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees import Answers
from retinabench.concepts.inference.unpredictability import bin_of
from retinabench.concepts.questioning import strategies
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.strategies import STRATEGIES, AtRandom, most_uncertain, rate_variance
from retinabench.core.errors import InputError, WorkError
from support.concept_banks import LESIONS, Lowest, make_answers, make_bank


@pytest.mark.parametrize("reading", ["variance", "std"])
def test_the_golden_loop(shared, reading):
    golden = json.loads(shared("golden", "evaluation", "vtt_outputs.json").read_text())["loop"]
    bank = Bank(None, "ab", np.array(golden["gt"], np.int8))
    answers, order = Answers(bank, np.array(golden["f"])), []

    def ask(sample, concept):
        order.append([sample, "ab".index(concept)])
        return answers(sample, concept)

    found = examine(bank, ask, strategy="uncertainty", reading=reading, random=Lowest())
    assert order == golden[reading]["order"]
    uncertainty = [np.mean(step["u"]) for step in golden[reading]["first3"]]
    assert found.uncertainty[:3] == pytest.approx(uncertainty, abs=1e-10)
    for place, one in enumerate(found.to_dict()["concepts"].values()):
        found = [one["gp"]["u_minus"], one["gp"]["u_plus"]]
        assert found == pytest.approx(golden[reading]["final_u"][place], abs=1e-10)
        counts = golden[reading]["outcome_counts"][place]
        assert one["counts"] == {name.lower(): count for name, count in counts.items()}


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name != "claims"])
def test_all_asked_the_state_is_the_same_for_every_strategy(strategy):
    bank = make_bank()
    answers = make_answers(bank)
    found = examine(bank, answers, strategy=strategy)
    bins = np.zeros((4, 100), np.int64)
    for sample in range(bank.samples):
        for place, name in enumerate(LESIONS):
            bins[place, bin_of(int(bank.truth[sample, place]), answers(sample, name))] += 1
    assert found.stopped == "all asked"
    np.testing.assert_array_equal(found.bins, bins)
    assert found.uncertainty[0] == pytest.approx(2.0)
    assert (np.diff(found.uncertainty) < 1e-12).all()  # a question never makes the model less certain


def test_the_json_is_what_the_docs_say():
    bank = make_bank()
    found = examine(bank, make_answers(bank), strategy="precision", questions=50).to_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert (found["asked"], found["stopped"], found["companion_valid"]) == (50, "questions", True)
    assert found["progress"]["questions"] == list(range(51))
    one = found["concepts"]["haemorrhage"]
    assert sum(one["bins"]) == sum(one["counts"].values()) == one["sensitivity"]["asked"] + one["specificity"]["asked"]
    assert [len(one["gp"][name]) for name in ("grid", "mean", "sd")] == [101, 101, 101]
    assert one["gp"]["kernel"] == {"signal": 1.0, "noise": 0.025, "length": 0.1}


def test_ways_to_stop():
    bank = make_bank()
    answers = make_answers(bank)
    whole = examine(bank, answers, seed=3)
    found = examine(bank, answers, seed=3, tolerance=1.0)
    assert found.stopped == "tolerance"
    assert found.uncertainty[-1] <= 1.0 < found.uncertainty[-2]
    np.testing.assert_array_equal(found.uncertainty, whole.uncertainty[: len(found.uncertainty)])
    lazy = examine(bank, lambda sample, concept: 1.0, patience=15)
    assert lazy.stopped == "patience"
    assert lazy.uncertainty[-16] - lazy.uncertainty[-1] < 1e-3
    # Each of 8 cells fills one bin, after which no question tells anything.
    assert len(lazy.uncertainty) - 1 <= 8 + 8 * 10 + 15
    claimed = examine(bank, answers, claim="specificity of soft exudate >= 0.3", strategy="precision")
    assert claimed.stopped == "claims"
    assert claimed.claims[0].after == len(claimed.uncertainty) - 1


def test_a_claim_that_needs_no_question_asks_none():
    bank = make_bank()
    found = examine(bank, raises, claim="sensitivity of haemorrhage >= 0").to_dict()
    assert (found["asked"], found["stopped"], found["claims"][0]["after"]) == (0, "claims", 0)
    assert found["concepts"]["haemorrhage"]["sensitivity"]["value"] is None
    assert found["progress"] == {"questions": [0], "uncertainty": [pytest.approx(2.0)]}


def test_a_concept_without_positives_is_a_lack_of_the_data():
    truth = np.zeros((12, 2), np.int8)
    truth[:5, 0] = 1
    truth[3:6, 1] = -1
    bank = Bank(None, ("seen", "never"), truth)
    found = examine(bank, make_answers(bank)).to_dict()
    assert found["asked"] == 21
    assert found["concepts"]["never"]["sensitivity"]["value"] is None
    assert found["concepts"]["never"]["sensitivity"]["why"] == "the bank has no such sample"


def test_a_selecting_strategy_states_only_what_is_certain():
    bank = make_bank()
    found = examine(bank, make_answers(bank), strategy="unpredictability", questions=20).to_dict()
    assert not found["companion_valid"]
    assert "by their other concepts" in found["notes"][0]
    for one in found["concepts"].values():
        for measure, right in (("sensitivity", one["counts"]["tp"]), ("specificity", one["counts"]["tn"])):
            rate = one[measure]
            assert rate["low"] == right / rate["of"]
            assert rate["high"] == (right + rate["of"] - rate["asked"]) / rate["of"]
            assert rate["new"] == rate["simultaneous"] == {"low": 0.0, "high": 1.0}


def test_one_half_is_a_no_as_in_the_scores():
    bank = make_bank()
    found = examine(bank, lambda sample, concept: 0.5).to_dict()
    for name, one in found["concepts"].items():
        assert one["counts"]["tp"] == one["counts"]["fp"] == 0
        assert one["counts"]["tn"] == found["bank"]["negatives"][name]
    assert bin_of(1, np.nextafter(0.5, 1)) == 75
    assert bin_of(1, 0.5) == bin_of(1, np.nextafter(0.5, 0)) == 74


def raises(*arguments):
    raise OSError("the network is down")


@pytest.mark.parametrize(
    ("failure", "says"),
    [
        (raises, "raised OSError: the network is down"), (lambda s, c: float("nan"), "answered nan, outside"),
        (lambda s, c: 1.2, r"answered 1.2, outside \[0, 1\]"), (lambda s, c: None, "answered None, not a number"),
    ],
)  # fmt: skip
def test_an_examinee_that_fails_on_question_57(tmp_path, failure, says):
    bank = make_bank()
    answers, asked = make_answers(bank), []

    def ask(sample, concept):
        asked.append((sample, concept))
        return failure(sample, concept) if len(asked) == 57 else answers(sample, concept)

    path = tmp_path / "transcript.jsonl"
    with pytest.raises(WorkError, match=rf"question 57 \(image '.*', concept '.*'\): the examinee {says}") as caught:
        examine(bank, ask, transcript=path)
    assert f"'image{asked[-1][0]}', concept '{asked[-1][1]}'" in str(caught.value)
    assert len(path.read_text().splitlines()) == 1 + 56
    # The failing question is asked again, none of the others.
    continued = examine(bank, lambda *question: (asked.append(question), answers(*question))[1], transcript=path)
    assert asked[57] == asked[56]
    assert len(asked) == 57 + 240 - 56
    np.testing.assert_array_equal(continued.bins, examine(bank, answers).bins)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"questions": 0}, "--questions 0"), ({"patience": -1}, "patience -1"), ({"tolerance": 0.0}, "tolerance 0"),
        ({"strategy": "claims"}, "needs a claim"), ({"confidence": 95.0}, "confidence of 95"),
    ],
)  # fmt: skip
def test_options_without_sense(options, says):
    bank = make_bank()
    with pytest.raises(InputError, match=says):
        examine(bank, make_answers(bank), **options)


def test_notes_name_what_the_bank_cannot_say():
    truth = np.zeros((30, 2), np.int8)
    truth[:4, 0], truth[20:, 1] = 1, -1
    found = examine(Bank(None, "ab", truth, patient=np.arange(30) // 3), lambda *question: 0.2, questions=5)
    notes = " ".join(found.notes)
    for text in (
        "only 4 positive samples of 'a'",
        "no positive sample of 'b': nothing can be said of its sensitivity",
        "The truth of 'b' is unknown for 10 samples",
        "Patients have several samples",
    ):
        assert text in notes
    assert "selects samples" not in notes
    selecting = examine(make_bank(), lambda *question: 0.2, strategy="unpredictability", questions=5)
    assert "selects samples by their other concepts" in " ".join(selecting.notes)
    saturated = examine(make_bank(), lambda *question: 0.2, strategy="uncertainty", questions=5)
    assert "is skipped while others are fresher" in " ".join(saturated.notes)


ALL = [name for name in STRATEGIES if name != "claims"]


def asked_by(bank, strategy, seed=0, **options):
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
