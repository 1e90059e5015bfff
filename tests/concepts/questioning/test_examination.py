import json

import numpy as np
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.examinees import Answers
from retinabench.concepts.inference.unpredictability import bin_of
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.strategies import STRATEGIES
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
        (raises, "raised OSError: the network is down"),
        (lambda s, c: float("nan"), "answered nan, outside"),
        (lambda s, c: 1.2, r"answered 1.2, outside \[0, 1\]"),
        (lambda s, c: None, "answered None, not a number"),
    ],
)
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
        ({"questions": 0}, "--questions 0"),
        ({"patience": -1}, "patience -1"),
        ({"tolerance": 0.0}, "tolerance 0"),
        ({"strategy": "claims"}, "needs a claim"),
        ({"confidence": 95.0}, "confidence of 95"),
    ],
)
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
