"""The options of the verbs that ask about images, and `occlude`'s own."""

from __future__ import annotations

import json

import pytest

from retinabench.cli.concepts import Asked
from retinabench.cli.main import run
from retinabench.core.progress import QUIET


def test_options_become_those_of_the_network():
    asked = Asked(examinee="resnet18", trained="2", size=64, grid=2, epochs=3, device="cpu", readers=1)
    network = asked.network(5, QUIET)
    assert (network.examinee, network.trained, network.size, network.grid) == ("resnet18", "2", 64, 2)
    assert (network.epochs, network.seed, network.images, network.weights) == (3, 5, None, None)
    assert (network.resources.device, network.resources.readers) == ("cpu", 1)
    assert not network.synthetic
    assert Asked(examinee="guessing").network(0, QUIET).synthetic


@pytest.fixture
def tables(tmp_path):
    rows = [(f"i{k}", k % 2, k % 3 == 0) for k in range(24)]
    for name in ("truth", "answers"):
        lines = [f"{image},{int(a)},{int(b)}" for image, a, b in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(["image_id,edema,mass", *lines]) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name either --truth (a table) or --bank (images)"),
        (["--truth", "truth.csv", "--bank", "idrid"], "name either --truth"),
        (["--truth", "truth.csv", "--answers", "answers.csv", "--examinee", "guessing"], "exclude each other"),
        (["--truth", "truth.csv", "--examinee", "resnet18"], "a table of truth holds no images"),
        (["--truth", "truth.csv", "--examinee", "biased1"], "Did you mean 'biased-1'?"),
        (["--truth", "truth.csv", "--answers", "answers.csv", "--source", "."], "--source is for the images"),
        (["--truth", "truth.csv", "--answers", "answers.csv", "--grid", "2"], "--grid is for a network"),
        (["--truth", "truth.csv", "--examinee", "guessing", "--epochs", "3"], "--epochs is for a network"),
        (["--bank", "synthetic", "--examinee", "guessing", "--grid", "2"], "--grid is for a network"),
        (["--bank", "synthetic", "--answers", "answers.csv", "--size", "64"], "--size is for a network"),
    ],
)
def test_what_does_not_go_together_is_one_line(words, message, tables, monkeypatch, capsys):
    monkeypatch.chdir(tables)
    assert run(["examine", *words, "--quiet"]) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_the_default_strategy_follows_the_goal(tables):
    """As README has it: a claim is what questions are spent on; without one they narrow the widest interval."""
    command = [
        "examine", "--answers", str(tables / "answers.csv"), "--truth", str(tables / "truth.csv"), "-q",
    ]  # fmt: skip
    claim = ["--claim", "sensitivity of mass >= 0.5"]
    for more, strategy in (([], "precision"), (claim, "claims")):
        out = tables / strategy
        assert run([*command, *more, "--out", str(out)]) == 0
        found = json.loads((out / "examination.json").read_text())
        assert found["strategy"] == strategy
    assert found["claims"][0]["decided"] == "holds"
    assert found["asked"] == found["claims"][0]["asked"] < 8  # no question about anything else
