import errno
import io
import os
import signal

import numpy as np
import pytest

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.inference.rates import CellAnswers
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.strategies import STRATEGIES
from retinabench.concepts.questioning.transcript import recorded_header, seed_of
from retinabench.core.errors import InputError, WorkError
from retinabench.core.files import sealed, unsealed
from support.concept_banks import make_answers, make_bank
from support.forking import forked


def test_a_cell_counts_all_samples_and_one_of_each_patient():
    bank = make_bank(80)
    eyes = Bank(None, bank.concepts, bank.truth, patient=[f"p{k // 2}" for k in range(80)])
    answers = make_answers(bank)
    found = examine(eyes, answers, questions=150)
    plain = examine(bank, answers, questions=150)
    assert plain.record == found.record  # patients change no question
    assert plain.answered.patients is None
    for place in range(4):
        sample, truth, prob = found.record.about(place)
        for sign in (0, 1):
            right = (prob > 0.5) == sign
            asked = sample[truth == sign].tolist()
            cell = found.answered.cell(place, sign)
            members = np.flatnonzero(bank.truth[:, place] == sign)
            assert (cell.right, cell.asked, cell.of) == (int(right[truth == sign].sum()), len(asked), len(members))
            assert plain.answered.cell(place, sign) == CellAnswers(cell.right, cell.asked, cell.of)
            counted = found.answered.patients.counted(bank.truth[:, place] == sign)
            if counted is None:
                assert cell.patients is None
                continue
            mine = [one for one in asked if one in counted]
            said = {int(s): bool(r) for s, r in zip(sample, right, strict=True)}
            assert cell.patients == (sum(said[one] for one in mine), len(mine), len(set(members // 2)))


def test_a_ranking_compares_all_answers_and_says_nothing_of_selected_samples():
    bank = make_bank(40)
    answers = make_answers(bank)
    random, selected = (examine(bank, answers, strategy=name, questions=60) for name in ("random", "unpredictability"))
    cell = random["haemorrhage"].counts
    assert random.answered.ranking(1).pairs == (cell["tn"] + cell["fp"]) * (cell["fn"] + cell["tp"])
    assert selected.answered.ranking(0)[1:3] == (0.0, 1.0)
    whole = examine(bank, answers, strategy="unpredictability").answered.ranking(0)
    assert whole == examine(bank, answers).answered.ranking(0)
    assert 0 < whole.low < whole.value < whole.high < 1


FIRST, SECOND = "sensitivity of haemorrhage >= 0.3", "specificity of haemorrhage >= 0.3"


def decided(found):
    return {claim["text"]: claim["decided"] for claim in found.to_dict()["claims"]}


def test_a_claim_guides_the_questions_and_stands_in_the_first_line(tmp_path):
    bank, path = make_bank(400), tmp_path / "transcript.jsonl"
    found = examine(bank, make_answers(bank), claim=[FIRST, f"  {SECOND}", FIRST], transcript=path)
    assert (found.strategy, found.stopped) == ("claims", "claims")
    header = recorded_header(path)
    assert header["claims"] == [f"{FIRST} @ 0.95", f"{SECOND} @ 0.95"]
    assert [claim.together for claim in found.claims] == [2, 2]
    assert {row["concept"] for row in rows(path)} == {"haemorrhage"}


def rows(path):
    return [unsealed(line) for line in path.read_bytes().splitlines()[1:]]


@pytest.mark.parametrize("strategy", ["precision", "claims"])
def test_a_later_claim_is_exploratory(tmp_path, strategy):
    bank, path = make_bank(400), tmp_path / "transcript.jsonl"
    answers = make_answers(bank)
    first = examine(bank, answers, strategy=strategy, claim=FIRST, transcript=path)
    content = path.read_bytes()
    # The strategy is that of the transcript where none is named; the later claim neither continues nor guides it.
    later = examine(bank, answers, claim=[SECOND, FIRST], transcript=path)
    assert decided(later) == {**decided(first), SECOND: None}
    assert path.read_bytes() == content
    assert any("exploratory" in note for note in later.notes)
    # Leaving a registered claim out does not take it back, nor does another confidence state it anew.
    assert decided(examine(bank, answers, transcript=path)) == decided(first)
    lax = examine(bank, answers, claim=FIRST, confidence=0.5, transcript=path)
    assert [(one.confidence, one.registered) for one in lax.claims] == [(0.95, True), (0.5, False)]


def test_no_claim_is_registered_after_questions_without_one(tmp_path):
    bank, path = make_bank(), tmp_path / "transcript.jsonl"
    answers = make_answers(bank)
    examine(bank, answers, questions=30, transcript=path)
    later = examine(bank, answers, questions=30, claim=FIRST, transcript=path)
    assert (later.strategy, later.stopped) == ("round-robin", "questions")
    assert decided(later) == {FIRST: None}
    assert later.to_dict()["claims"][0]["asked"] > 0


def test_before_the_first_answer_claims_may_be_stated_anew(tmp_path):
    bank, path = make_bank(), tmp_path / "transcript.jsonl"
    answers = make_answers(bank)
    examine(bank, answers, questions=30, transcript=path)
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    found = examine(bank, answers, claim=FIRST, transcript=path)
    assert found.claims[0].registered
    assert recorded_header(path)["claims"] == [f"{FIRST} @ 0.95"]


def as_version_1(path, **changes):
    header, *lines = (unsealed(line) for line in path.read_bytes().splitlines())
    header |= {"schema": "retinabench.transcript/1", **changes}
    unchained = [{name: value for name, value in line.items() if name != "previous"} for line in lines]
    path.write_bytes(b"".join(sealed(line) for line in [header, *unchained]))


def test_old_transcripts_are_read_and_continued(tmp_path):
    bank, path = make_bank(400), tmp_path / "transcript.jsonl"
    answers = make_answers(bank)
    examine(bank, answers, claim=FIRST, transcript=path)
    as_version_1(path)
    old = examine(bank, answers, claim=FIRST, strategy="claims", transcript=path)
    assert decided(old) == {FIRST: "holds"}
    assert old.claims[0].together == 1
    # Version 1 registered no claims beside another strategy: on its answers they are exploratory.
    other = tmp_path / "other.jsonl"
    examine(bank, answers, questions=20, transcript=other)
    as_version_1(other)
    later = examine(bank, answers, questions=40, claim=FIRST, transcript=other)
    assert decided(later) == {FIRST: None}
    assert len(rows(other)) == 40
    assert recorded_header(other)["schema"] == "retinabench.transcript/1"


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no json\n{}\n", b"[" * 99999 + b"\n\n",
        b'{"schema": "retinabench.transcript/2", "strategy": "claims", "claims": 5}\n{}\n',
    ],
)  # fmt: skip
def test_nothing_is_concluded_from_a_first_line_that_is_none(tmp_path, content):
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(content)
    assert recorded_header(path) == {}
    assert recorded_header(tmp_path) == recorded_header(None) == {}


ALL = [name for name in STRATEGIES if name != "claims"]


@pytest.mark.parametrize("strategy", ALL)
@pytest.mark.parametrize("cut", [0, 1, 40, 99, 100, -1, -30])
def test_cut_anywhere_it_ends_the_same(tmp_path, strategy, cut):
    """cut: whole lines kept (0: all is lost); negative: so many bytes off the end."""
    bank = make_bank()
    answers, path = make_answers(bank), tmp_path / "transcript.jsonl"
    whole = examine(bank, answers, strategy=strategy, questions=100, transcript=path).to_dict()
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    path.write_bytes(content[:cut] if cut < 0 else b"".join(lines[: cut + 1]))
    if cut == 0:
        path.unlink()
    asked = []
    again = examine(bank, counted(answers, asked), strategy=strategy, questions=100, transcript=path).to_dict()
    assert again == whole
    assert path.read_bytes() == content
    assert len(asked) == (1 if cut < 0 else 100 - cut)


def counted(answers, asked):
    def ask(sample, concept):
        asked.append((sample, concept))
        return answers(sample, concept)

    ask.hash = answers.hash
    return ask


def test_more_questions_continue_the_same_examination(tmp_path):
    bank = make_bank()
    answers, path, asked = make_answers(bank), tmp_path / "transcript.jsonl", []
    examine(bank, answers, questions=50, transcript=path)
    longer = examine(bank, counted(answers, asked), questions=120, transcript=path)
    assert len(asked) == 70
    np.testing.assert_array_equal(longer.bins, examine(bank, answers, questions=120).bins)
    shorter = examine(bank, answers, questions=20, transcript=path)
    assert shorter.bins.sum() == 20
    assert len(path.read_text().splitlines()) == 121


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({"bank": make_bank(seed=9)}, "bank"), ({"strategy": "random"}, "strategy"), ({"seed": 4}, "seed"),
        ({"reading": "variance"}, "reading"), ({"rules": "published"}, "rules"),
        ({"answers": make_answers(make_bank(), seed=8)}, "examinee"),
    ],
)  # fmt: skip
def test_a_transcript_from_elsewhere_is_refused(tmp_path, change, differs):
    bank, path = make_bank(), tmp_path / "transcript.jsonl"
    examine(bank, make_answers(bank), questions=10, transcript=path)
    before = path.read_bytes()
    options = {name: value for name, value in change.items() if name not in ("bank", "answers")}
    bank = change.get("bank", bank)
    answers = change.get("answers", make_answers(bank))
    with pytest.raises(InputError, match=f"another examination: its {differs} differs"):
        examine(bank, answers, questions=10, transcript=path, **options)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("row", "line", "says"),
    [
        (3, "not json", "row 3: is not a line of a transcript"),
        (3, "[1, 2]", "row 3: is not a line of a transcript"),
        (3, '{"question": 3}', "row 3: does not continue the line before it"),
        (0, '{"schema": "other"}', "its schema differs"),
    ],
)
def test_a_changed_transcript_is_refused(tmp_path, row, line, says):
    bank, path = make_bank(), tmp_path / "transcript.jsonl"
    examine(bank, make_answers(bank), questions=10, transcript=path)
    lines = path.read_text().splitlines()
    lines[row] = line
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(InputError, match=says):
        examine(bank, make_answers(bank), questions=10, transcript=path)


@pytest.mark.parametrize("key", ["sample", "image_id", "concept", "truth", "question", "answer"])
def test_a_forged_line_is_refused(tmp_path, key):
    """Whoever changes a line may seal it anew: the last one is then another question, and any other breaks the chain."""
    bank, path = make_bank(), tmp_path / "transcript.jsonl"
    examine(bank, make_answers(bank), questions=10, transcript=path)
    lines = path.read_bytes().splitlines(keepends=True)
    forged = {"sample": 59, "image_id": "image59", "concept": "drusen", "truth": 2, "question": 7, "answer": 2.0}
    for row, says in ((10, "row 10: is not the question"), (3, "row 4: does not continue the line before it")):
        changed = [*lines]
        changed[row] = sealed(unsealed(lines[row]) | {key: forged[key]})
        path.write_bytes(b"".join(changed))
        with pytest.raises(InputError, match=says):
            examine(bank, make_answers(bank), questions=10, transcript=path)
    path.write_bytes(b"".join(lines[:3] + lines[4:]))
    with pytest.raises(InputError, match="row 3: does not continue the line before it"):
        examine(bank, make_answers(bank), questions=10, transcript=path)


def test_a_nonce_decides_the_seed(tmp_path):
    bank, path = make_bank(), tmp_path / "transcript.jsonl"
    answers = make_answers(bank)
    first = examine(bank, answers, questions=10, nonce="dice: 4 1 6", transcript=path)
    assert (first.seed, recorded_header(path)["nonce"]) == (seed_of(bank.hash, "dice: 4 1 6"), "dice: 4 1 6")
    assert first.record == examine(bank, answers, questions=10, seed=first.seed).record
    seeds = {first.seed, seed_of(bank.hash, "dice: 4 1 5"), seed_of(make_bank(seed=9).hash, "dice: 4 1 6")}
    assert len(seeds) == 3
    with pytest.raises(InputError, match="its seed differs"):
        examine(bank, answers, questions=10, seed=3, transcript=path)


def test_what_was_stated_before_the_first_answer_cannot_be_changed(tmp_path):
    bank, path = make_bank(), tmp_path / "transcript.jsonl"
    answers = make_answers(bank)
    found = examine(bank, answers, fixed=True, transcript=path)
    assert (found.asked, found.stopped, recorded_header(path)["intervals"]) == (240, "all asked", "fixed")
    with pytest.raises(InputError, match="its intervals differs"):
        examine(bank, answers, transcript=path)
    with pytest.raises(InputError, match="its cut differs"):
        examine(bank, answers, fixed=True, cut={"haemorrhage": 0.4}, transcript=path)
    for stop in ({"questions": 20}, {"patience": 9}, {"claim": FIRST}):
        with pytest.raises(InputError, match="need that all are asked"):
            examine(bank, answers, fixed=True, **stop)


def test_killed_in_the_middle_it_ends_the_same(tmp_path):
    bank, path = make_bank(), tmp_path / "transcript.jsonl"
    answers, asked = make_answers(bank), []

    def until_killed(sample, concept):
        asked.append((sample, concept))
        if len(asked) > 20:
            os.kill(os.getpid(), signal.SIGKILL)
        return answers(sample, concept)

    assert forked(lambda: examine(bank, until_killed, questions=200, transcript=path)) == -signal.SIGKILL
    answered = path.read_bytes().count(b"\n") - 1
    assert answered == 20
    ask = counted(answers, asked)
    ask.hash = None
    continued = examine(bank, ask, questions=200, transcript=path).to_dict()
    assert len(asked) == 200 - answered
    assert continued == examine(bank, answers, questions=200).to_dict() | {"transcript": continued["transcript"]}


def test_two_examinations_do_not_write_one_transcript(tmp_path):
    bank, path = make_bank(), tmp_path / "transcript.jsonl"
    answers, refused = make_answers(bank), []

    def ask(sample, concept):
        if not refused:
            with pytest.raises(InputError, match=r"another examination command is at work.* Wait") as caught:
                examine(bank, answers, questions=10, transcript=path)
            refused.append(str(caught.value))
        return answers(sample, concept)

    ask.hash = answers.hash
    examine(bank, ask, questions=10, transcript=path)
    assert refused
    before = path.read_bytes()
    assert examine(bank, answers, questions=10, transcript=path).bins.sum() == 10  # the lock ended with it
    assert path.read_bytes() == before


def test_a_header_cut_short_starts_again(tmp_path):
    bank, path = make_bank(), tmp_path / "transcript.jsonl"
    examine(bank, make_answers(bank), questions=5, transcript=path)
    content = path.read_bytes()
    path.write_bytes(content[:40])
    examine(bank, make_answers(bank), questions=5, transcript=path)
    assert path.read_bytes() == content
    path.write_text("notes of somebody else")
    with pytest.raises(InputError, match="its schema differs"):
        examine(bank, make_answers(bank), questions=5, transcript=path)
    assert path.read_text() == "notes of somebody else"


@pytest.mark.parametrize("fails", ["write", "truncate"])
def test_a_disk_that_fails_is_one_line_and_the_examination_continues(tmp_path, monkeypatch, fails):
    bank, path = make_bank(), tmp_path / "transcript.jsonl"
    answers = make_answers(bank)
    whole = examine(bank, answers, questions=10, transcript=path).to_dict()
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]))

    class Failing(io.FileIO):
        """Writes one byte, and then the disk is full."""

        def write(self, data):
            if fails == "write" and len(data) == 1:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(data[:1])

        def truncate(self, size=None):
            if fails == "truncate":
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().truncate(size)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdopen", lambda descriptor, *_, **__: Failing(descriptor, "r+"))
        with pytest.raises(WorkError, match=r"transcript.jsonl: no space left on the disk"):
            examine(bank, answers, questions=10, transcript=path)
    assert examine(bank, answers, questions=10, transcript=path).to_dict() == whole
    assert path.read_bytes() == b"".join(lines)
