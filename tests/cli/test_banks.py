"""The options of the verbs that ask about images, and `occlude`'s own."""

from __future__ import annotations

from retinabench.cli.banks import Asked
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


def test_options_out_of_range_are_refused(capsys):
    for words in (["--grid", "0"], ["--epochs", "0"], ["--images", "many"]):
        assert run(["examine", "--bank", "synthetic", *words]) == 2
        assert words[0] in capsys.readouterr().err
