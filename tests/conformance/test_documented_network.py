"""The network in `docs/pretrained.md` trains as the page says."""

import re
import sys
from pathlib import Path

from retinabench.cli.main import run as command
from retinabench.predictions.io import read_predictions
from support.helpers import make_prepared

PAGE = Path(__file__).parents[2] / "docs" / "pretrained.md"


def test_the_example_of_a_network_trains(tmp_path, monkeypatch, capsys):
    code, commands = re.search(
        r"## Your own network.*?```python\n(.*?)```.*?```sh\n(.*?)```", PAGE.read_text(), re.DOTALL
    ).groups()
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    (tmp_path / "eyenet.py").write_text(code)
    make_prepared(tmp_path / "data" / "idrid")
    train, check = commands.splitlines()
    assert command([*train.split()[1:], "optimizer.epochs=1", "-q"]) == 0
    predictions = read_predictions(capsys.readouterr().out.strip())
    assert predictions.metadata["model"] == "eyenet:small"
    assert check.startswith("retinabench check laplace --model eyenet:small")
    monkeypatch.delitem(sys.modules, "eyenet")
