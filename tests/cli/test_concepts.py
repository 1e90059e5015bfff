import json
import shlex
from pathlib import Path

import numpy as np
import pytest

from retinabench.cli.main import run
from retinabench.concepts import examine

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def tables(tmp_path):
    rows = [(f"i{k}", k % 2, k % 3 == 0) for k in range(24)]
    for name in ("truth", "answers"):
        lines = [f"{image},{int(a)},{int(b)}" for image, a, b in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(["image_id,edema,mass", *lines]) + "\n")
    return tmp_path


TABLES = "examine --truth truth.csv --answers answers.csv"
TOO_LARGE = "--size is at least 16, and --size times --grid at most 2048"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("examine", "name either --truth (a table) or --bank (images)"),
        ("examine --truth truth.csv --bank idrid", "name either --truth"),
        (f"{TABLES} --examinee guessing", "exclude each other"),
        ("examine --truth truth.csv --examinee resnet18", "a table of truth holds no images"),
        ("examine --truth truth.csv --examinee biased1", "Did you mean 'biased-1'?"),
        (f"{TABLES} --source .", "--source is for the images"), (f"{TABLES} --grid 2", "--grid is for a network"),
        ("examine --truth truth.csv --examinee guessing --epochs 3", "--epochs is for a network"),
        ("examine --bank synthetic --examinee guessing --grid 2", "--grid is for a network"),
        ("examine --bank synthetic --answers answers.csv --size 64", "--size is for a network"),
        ("examine --bank synthetic --trained head", "Set model.weights"),
        ("examine --bank synthetic --images 20 --trained nothing", "before it is trained"),
        (f"{TABLES} --strategy cleverness", "unknown strategy 'cleverness'"),
        (f"{TABLES} --claim 'edema is fine'", "is not understood"),
        (f"{TABLES} --claim 'sensitivity of edema >= 0.5' --confidence 95", "confidence of 95"),
        (f"{TABLES} --concepts 'edema, drusen'", "has no column 'drusen'"),
        (f"{TABLES} --concepts edema,edema", "column 'edema': is named twice as a concept"),
        (f"{TABLES} --confidence 0.9", "--confidence is of the decisions of claims"),
        (f"{TABLES} --threshold 0.3", "--threshold is of the referrals of --predictions"),
        (f"{TABLES} --goal sensitivity=85", "--goal 'sensitivity=85' is not a goal"),
        ("lesions eyepacs", "unknown bank 'eyepacs'"), ("lesions synthetics", "Did you mean 'synthetic'"),
        ("lesions idrid", "Name it with --source DIR"), ("lesions idrid --source nowhere", "is not a folder"),
        ("lesions idrid --source . --images 50", "--images is for synthetic data only"),
        ("lesions synthetic --source .", "rendered, not read"), ("lesions synthetic --images 5", "too few"),
        ("lesions synthetic --images 1000001", "1,000,001 images are more than are drawn (1,000,000)"),
        ("lesions synthetic --images 20 --size 9", TOO_LARGE), ("lesions synthetic --images 20 --grid 64", TOO_LARGE),
        ("occlude . --bank folder --source .", "says what is in an image, not where"),
        ("occlude . --bank synthetic --images 20", "holds no exported model"),
        ("occlude . --bank idrid", "Name it with --source DIR"), ("occlude . --bank retina", "unknown bank 'retina'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line_and_leaves_nothing_behind(command, message, tables, monkeypatch, capsys):
    monkeypatch.chdir(tables)
    (tables / "labels.csv").write_text("image,x\na.png,1\n")
    (tables / "a.png").write_bytes(b"")
    assert run([*shlex.split(command), "--out", "out", "--quiet"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tables / "out").exists()


@pytest.mark.parametrize(
    "words",
    [["--claim", "sensitivity of edema >= 0.8"], ["--concepts", "edema"], ["--cut", "none.toml"], ["--questions", "0"]],
)
@pytest.mark.parametrize("examinee", [["--examinee", "guessing"], []])
def test_nothing_is_trained_or_left_behind_after_a_wrong_option(words, examinee, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["examine", "--bank", "synthetic", "--images", "40", *examinee, *words, "--out", "out", "-q"]) == 2
    assert not (tmp_path / "out").exists()


def test_the_default_strategy_follows_the_goal(tables):
    """As README has it: a claim is what questions are spent on; without one every kind of sample is asked about in turn."""
    command = ["examine", "--answers", str(tables / "answers.csv"), "--truth", str(tables / "truth.csv"), "-q"]
    claim = ["--claim", "sensitivity of mass >= 0.5"]
    for more, strategy in (([], "round-robin"), (claim, "claims")):
        out = tables / strategy
        assert run([*command, *more, "--out", str(out)]) == 0
        found = json.loads((out / "examination.json").read_text())
        assert found["strategy"] == strategy
    assert found["claims"][0]["decided"] == "holds"
    assert found["asked"] == found["claims"][0]["asked"] < 8  # no question about anything else


@pytest.fixture
def studies(tmp_path, monkeypatch):
    """Studies with three readers, scores of a model that says yes from 0.9 on, and answers to other studies."""
    random = np.random.default_rng(0)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").mkdir()
    for folder, count in (("", 120), ("other", 200)):
        severity = random.normal(size=count)
        readers = (severity[:, None] + random.normal(0, 0.3, (count, 3)) > 0.5).astype(int)
        scores = 0.9 + 0.2 * (severity - 0.5 + random.normal(0, 0.3, count))
        name = folder or "s"
        truth = [f"{name}{k},{','.join(map(str, row))}" for k, row in enumerate(readers)]
        header = "image_id,edema@x,edema@y,edema@z"
        if folder:
            header, truth = "image_id,edema", [f"{name}{k},{int(row.sum() > 1)}" for k, row in enumerate(readers)]
        (tmp_path / folder / "truth.csv").write_text("\n".join([header, *truth]) + "\n")
        rows = [f"{name}{k},{score:.4f}" for k, score in enumerate(scores)]
        (tmp_path / folder / "answers.csv").write_text("\n".join(["image_id,edema", *rows]) + "\n")
    return tmp_path


ASK = ["examine", "--answers", "answers.csv", "--truth", "truth.csv", "--out", "out", "-q"]


def told(capsys, *more):
    """Run `examine`, and return its exit code, what it said, and `examination.json`."""
    code = run([*ASK, *more])
    said = capsys.readouterr()
    content = json.loads(Path("out/examination.json").read_text()) if not code else {}
    return code, said.out + said.err, content


@pytest.mark.parametrize("cut", ["0.9", "cuts.toml", "youden@other", "sensitivity=0.9@other"])
def test_scores_above_one_are_judged_by_a_cut(studies, capsys, cut):
    Path("cuts.toml").write_text("all = 5\nedema = 0.9\n")
    code, said, _ = told(capsys)
    assert code == 2
    assert "outside [0, 1]. A probability lies between 0 and 1; for other scores" in said
    _, _, found = told(capsys, "--cut", cut)
    stated = found["cut"]["edema"]
    truth = np.loadtxt("truth.csv", delimiter=",", skiprows=1, usecols=(1, 2, 3)).sum(axis=1) > 1
    yes = np.loadtxt("answers.csv", delimiter=",", skiprows=1, usecols=1) >= stated
    one = found["concepts"]["edema"]
    assert one["counts"] == {
        "tn": int((~yes & ~truth).sum()), "fp": int((yes & ~truth).sum()),
        "fn": int((~yes & truth).sum()), "tp": int((yes & truth).sum()),
    }  # fmt: skip
    if cut.startswith("sensitivity"):
        other = np.loadtxt("other/truth.csv", delimiter=",", skiprows=1, usecols=1) == 1
        scores = np.loadtxt("other/answers.csv", delimiter=",", skiprows=1, usecols=1)
        best = max(cut for cut in scores if np.mean(scores[other] >= cut) >= 0.9)
        assert stated == best
    page = Path("out/index.html").read_text()
    assert "At a threshold of one half" not in page
    assert "yes is an answer of the concept" in page


@pytest.mark.parametrize(
    ("cut", "says"),
    [
        ("high", "--cut 'high' is not understood"), ("cuts.toml", "unknown concept 'oedema'"),
        ("youden@none", "none/truth.csv"), ("youden@same", "same: holds images that will be asked about"),
    ],
)  # fmt: skip
def test_a_cut_that_cannot_be_read(studies, capsys, cut, says):
    Path("cuts.toml").write_text("oedema = 0.9\n")
    Path("same").mkdir()
    Path("same/truth.csv").write_text("image_id,edema\ns7,1\nt,0\n")
    code, said, _ = told(capsys, "--cut", cut)
    assert code == 2
    assert says in said
    assert said.count("\n") == 1


def test_a_claim_says_what_it_is_about(studies, capsys):
    """One is decided once all was asked, the other one never: 37 positive studies say so much of this bank alone."""
    claims = ["sensitivity of edema >= 0.75", "sensitivity of edema >= 0.75 in new patients"]
    _, said, found = told(capsys, "--cut", "0.9", "--claim", claims[0], "--claim", claims[1])
    assert [(one["scope"], one["decided"]) for one in found["claims"]] == [
        ("this bank", "holds"), ("new patients", "undecided"),
    ]  # fmt: skip
    assert said.startswith(f"Holds in this bank: {claims[0]}, decided after ")
    assert f"Undecided in new patients: {claims[1]};" in said
    assert found["stopped"] == "no sample left"
    assert "no question was left that could decide a claim" in Path("out/index.html").read_text()


def test_an_auditor_verifies_what_was_asked(studies, capsys):
    """With truth and answers; every change of the transcript, of the truth or of the answers is refused."""
    nonce = ["--nonce", "17 of November", "--cut", "0.9"]
    _, said, found = told(capsys, *nonce, "--questions", "30")
    assert found["transcript"] in said
    assert found["seed"] != 0
    verify = ["examine", "--truth", "truth.csv", "--verify", "out/transcript.jsonl"]
    for answers in ([], ["--answers", "answers.csv"]):
        assert run([*verify, *answers]) == 0
        out = capsys.readouterr().out
        assert out.startswith("Verified: every line of out/transcript.jsonl follows from the first one")
        assert found["transcript"] in out
    transcript, answers = Path("out/transcript.jsonl"), Path("answers.csv")
    lines, given = transcript.read_bytes().splitlines(keepends=True), answers.read_text()
    kept = b"".join(lines)
    for changed, says in (
        (lines[:9] + lines[10:], "row 9: does not continue the line before it"),
        ([*lines, lines[-1]], "does not continue the line before it"),
        ([lines[0].replace(b"November", b"October!"), *lines[1:]], "holds no transcript with answers"),
    ):
        transcript.write_bytes(b"".join(changed))
        assert run(verify) == 2
        assert says in capsys.readouterr().err
    transcript.write_bytes(kept)
    answers.write_text(given.replace("\ns3,0", "\ns3,1", 1))
    assert run([*verify, "--answers", "answers.csv"]) == 2
    assert "its examinee differs" in capsys.readouterr().err
    Path("truth.csv").write_text(Path("truth.csv").read_text().replace("s3,1", "s3,0").replace("s4,0,0,0", "s4,1,1,1"))
    assert run(verify) == 2
    assert "its bank differs" in capsys.readouterr().err
    assert run([*ASK, *nonce, "--seed", "3"]) == 2
    assert "--nonce decides the seed" in capsys.readouterr().err


def test_intervals_for_all_questions_are_stated_beforehand(studies, capsys):
    widths = {}
    for kind in ("sequence", "fixed"):
        assert run([*ASK, "--cut", "0.9", "--intervals", kind, "--reference", "x", "--out", kind]) == 0
        content = json.loads(Path(kind, "examination.json").read_text())
        ends = content["concepts"]["edema"]["sensitivity"]["simultaneous"]
        widths[kind] = ends["high"] - ends["low"]
        assert content["intervals"] == kind
    assert widths["fixed"] < 0.9 * widths["sequence"]
    assert "every question was asked, as was written down before" in Path("fixed/index.html").read_text()
    code, said, _ = told(capsys, "--cut", "0.9", "--intervals", "fixed", "--questions", "9")
    assert code == 2
    assert "need that all are asked" in said


def test_a_long_examination_says_first_what_it_will_ask(tables, capsys, monkeypatch):
    monkeypatch.setattr(examine, "MANY", 20)
    command = ["examine", "--answers", str(tables / "answers.csv"), "--truth", str(tables / "truth.csv"), "--out"]
    assert run([*command, str(tables / "long")]) == 0
    assert "48 questions will be asked" in capsys.readouterr().err
    assert run([*command, str(tables / "short"), "--questions", "9"]) == 0
    assert "will be asked" not in capsys.readouterr().err
