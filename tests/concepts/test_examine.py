import json
import re
import shutil

import numpy as np
import pytest

from retinabench.cli.main import run
from support.concept_banks import LESIONS, make_answers, make_bank

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def files(tmp_path):
    bank = make_bank()
    answers = make_answers(bank)
    header = "image_id," + ",".join(LESIONS) + "\n"
    names = [bank.name(k) for k in range(bank.samples)]
    truth = [",".join(map(str, row)) for row in bank.truth.tolist()]
    probs = [",".join(repr(answers(k, name)) for name in LESIONS) for k in range(bank.samples)]
    for name, rows in (("truth", truth), ("answers", probs)):
        lines = "".join(f"{one},{row}\n" for one, row in zip(names, rows, strict=True))
        (tmp_path / f"{name}.csv").write_text(header + lines)
    return tmp_path


def arguments(files, *more):
    out = ["--out", str(files / "out")]
    return ["examine", "--answers", str(files / "answers.csv"), "--truth", str(files / "truth.csv"), *out, *more]


def test_one_command_writes_everything(files, capsys):
    claim = "sensitivity of haemorrhage >= 0.3"
    more = ["--strategy", "precision", "--questions", "150", "--claim", claim, "-q"]
    more += ["--goal", "sensitivity of haemorrhage=0.1"]
    assert run(arguments(files, *more)) == 0
    found = json.loads((files / "out" / "examination.json").read_text())
    lines = (files / "out" / "transcript.jsonl").read_text().splitlines()
    assert found["asked"] == len(lines) - 1
    shown = capsys.readouterr()
    assert (found["goals"]["haemorrhage"], found["claims"][0]["registered"]) == ({"sensitivity": 0.1}, True)
    met = {"concept": "haemorrhage", "measure": "sensitivity", "goal": 0.1, "finding": "met"}
    assert found["findings"] in ([], [met])
    said = {"holds": "Holds", "fails": "Does not hold", "undecided": "Undecided"}[found["claims"][0]["decided"]]
    assert shown.out.startswith(f"{said} in this bank: {claim}")
    value = found["concepts"]["haemorrhage"]["sensitivity"]["value"]
    assert f"{value:.2f} [" in shown.out
    assert shown.err == "".join(f"note: {note}\n" for note in found["notes"])


def test_the_first_line_and_the_page_begin_with_the_verdicts(files, capsys):
    """Of claims each one; of goals the open ones, too."""
    claim = "sensitivity of haemorrhage >= 0.99"
    assert run(arguments(files, "--claim", claim, "-q")) == 0
    assert capsys.readouterr().out.startswith(f"Does not hold in this bank: {claim}, decided after ")
    page = (files / "out" / "index.html").read_text()
    answer = re.search(r'class="answer">(.*?)</p>', page, flags=re.DOTALL)[1]
    assert " ".join(answer.split()) == f"Does not hold in this bank: {claim.replace('>', '&gt;')}."
    assert "Nothing can be said" not in page
    assert "Nothing is judged" not in page
    shutil.rmtree(files / "out")
    assert run(arguments(files, "--goal", "sensitivity=0.97", "--questions", "20", "-q")) == 0
    first = capsys.readouterr().out.splitlines()[0]
    concepts = json.loads((files / "out" / "examination.json").read_text())["concepts"]
    page = (files / "out" / "index.html").read_text()
    for name in concepts:
        assert name in first.removeprefix("Goal open: sensitivity >= 0.97 of ")
        assert name in re.search(r"<b>Open, sensitivity of 97\s%:</b>(.*?)</p>", page, flags=re.DOTALL)[1]


def test_the_same_command_continues(files):
    more = ["--questions", "60", "-q"]
    assert run(arguments(files, *more)) == 0
    path = files / "out" / "transcript.jsonl"
    whole = {name: (files / "out" / name).read_bytes() for name in ("transcript.jsonl", "examination.json")}
    path.write_bytes(whole["transcript.jsonl"][:1500])
    assert run(arguments(files, *more)) == 0
    assert {name: (files / "out" / name).read_bytes() for name in whole} == whole


def test_the_idrid_concepts(shared, tmp_path, capsys):
    rows = shared("data", "idrid_lesions", "concepts.csv").read_text().replace("file,", "image_id,", 1)
    (tmp_path / "truth.csv").write_text(rows)
    lines = rows.splitlines()
    random = np.random.default_rng(0)
    answers = [f"{line.split(',')[0]},{','.join(f'{p:.3f}' for p in random.random(4))}" for line in lines[1:]]
    (tmp_path / "answers.csv").write_text("image_id,MA,HE,EX,SE\n" + "\n".join(answers) + "\n")
    more = ["--concepts", "MA,HE,EX,SE", "--questions", "100", "-q"]
    assert run(arguments(tmp_path, *more)) == 0
    found = json.loads((tmp_path / "out" / "examination.json").read_text())
    assert found["bank"]["positives"]["SE"] == 26
    assert found["bank"]["samples"] == 143


@pytest.fixture
def read_by_five(tmp_path):
    """150 images whose severity five equal readers see with noise; the model sees it less well."""
    random = np.random.default_rng(3)
    severity = random.random(150)
    votes = (severity[:, None] + random.normal(0, 0.08, (150, 5)) > 0.6).astype(int)
    prob = np.clip(severity + random.normal(0, 0.3, 150) - 0.1, 0, 1)
    heads = ",".join(f"edema@{name}" for name in "vwxyz")
    lines = [f"i{k}," + ",".join(map(str, row)) for k, row in enumerate(votes.tolist())]
    (tmp_path / "truth.csv").write_text("\n".join([f"image_id,{heads}", *lines]) + "\n")
    lines = [f"i{k},{value}" for k, value in enumerate(prob.tolist())]
    (tmp_path / "answers.csv").write_text("\n".join(["image_id,edema", *lines]) + "\n")
    return tmp_path


def test_the_model_beside_the_readers_is_said_and_shown(read_by_five, capsys):
    assert run(arguments(read_by_five, "--intervals", "fixed", "-q")) == 0
    said = capsys.readouterr().out
    assert re.search(r"The model beside the mean reader.*\n.*\nedema  0\.\d\d lower, −0\.\d\d \[−0", said)
    assert "The model beside the readers" in (read_by_five / "out" / "index.html").read_text()
    assert "of what another panel of 5 would say" in said
    found = json.loads((read_by_five / "out" / "examination.json").read_text())
    assert found["readers"]["concepts"]["edema"]["beside"]["sensitivity"]["model_minus_mean"]["high"] < 0


def test_the_truth_may_weigh_the_readers(read_by_five, capsys):
    assert run(arguments(read_by_five, "--reference", "dawid-skene", "-q")) == 0
    found = json.loads((read_by_five / "out" / "examination.json").read_text())
    assert found["readers"]["truth"] == "dawid-skene"
    rate = found["concepts"]["edema"]["sensitivity"]
    assert rate["low"] < rate["value"] < rate["high"]  # what another panel may say
    transcript = str(read_by_five / "out" / "transcript.jsonl")
    again = ["examine", "--verify", transcript, "--truth", str(read_by_five / "truth.csv"), "--reference"]
    assert (run([*again, "dawid-skene"]), run([*again, "majority"])) == (0, 2)


def test_only_open_questions_are_admissible(files):
    """Brute force: the share of the samples with the same history that have the concept is 0.35 to 0.65."""
    assert run(arguments(files, "--strategy", "round-robin+admissible", "-q")) == 0
    found = json.loads((files / "out" / "examination.json").read_text())
    assert (found["stopped"], found["companion_valid"]) == ("none admissible", False)
    header, *rows = map(json.loads, (files / "out" / "transcript.jsonl").read_text().splitlines())
    assert header["strategy"] == "round-robin+admissible"
    truth, known, asked = make_bank().truth, {}, set()

    def share(sample, concept):
        past = known.get(sample, [])
        same = truth[(truth[:, past] == truth[sample, past]).all(axis=1), concept]
        return np.mean(same[same >= 0] == 1)

    for row in rows:
        sample, concept = row["sample"], LESIONS.index(row["concept"])
        assert abs(share(sample, concept) - 0.5) <= 0.15 + 1e-9
        known.setdefault(sample, []).append(concept)
        asked.add((sample, concept))
    left = [pair for pair in np.argwhere(truth >= 0).tolist() if tuple(pair) not in asked]
    assert rows
    assert all(abs(share(*pair) - 0.5) > 0.15 for pair in left)
