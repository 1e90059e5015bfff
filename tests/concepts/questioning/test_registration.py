"""Claims are decided only if the transcript registers them before the first question; old transcripts are read."""

from __future__ import annotations

import pytest

from retinabench.concepts.questioning.loop import examine
from retinabench.concepts.questioning.transcript import recorded_header
from retinabench.core.files import sealed, unsealed
from support.concept_banks import make_answers, make_bank

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
    assert (later.strategy, later.stopped) == ("precision", "questions")
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
    """Rewrite a transcript as version 1 wrote it."""
    lines = path.read_bytes().splitlines(keepends=True)
    header = {**unsealed(lines[0]), "schema": "retinabench.transcript/1", **changes}
    path.write_bytes(b"".join([sealed(header), *lines[1:]]))


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
        b"",
        b"{}\n",
        b"no json\n{}\n",
        b"\xff\n\n",
        b'{"schema": "other"}\n{}\n',
        b"[" * 99999 + b"\n\n",
        b'{"schema": "retinabench.transcript/2", "strategy": "claims", "claims": 5}\n{}\n',
        b'{"schema": "retinabench.transcript/2", "strategy": [], "claims": []}\n{}\n',
    ],
)
def test_nothing_is_concluded_from_a_first_line_that_is_none(tmp_path, content):
    path = tmp_path / "transcript.jsonl"
    path.write_bytes(content)
    assert recorded_header(path) == {}
    assert recorded_header(tmp_path) == recorded_header(None) == {}
