"""The deterministic baseline of 2019: the weights of MC dropout, and no mask."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.training import loop
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.models.stochastic.dropout import Dropout
from retinabench.predictions.io import read_predictions
from support.helpers import TINY, make_prepared

DROPOUT = ["method.name=dropout", "method.rate=0.3", "method.samples=4"]
OFF = ["method.name=dropout_off", *(word.replace("method.", "method.member.") for word in DROPOUT)]


def test_the_weights_are_those_of_the_dropout_run_which_is_trained_once(tmp_path, monkeypatch):
    data = str(make_prepared(tmp_path / "data"))
    out, cpu = tmp_path / "runs", Resources("cpu")
    sampled, off = (load_run(None, [*TINY, *words], data=data) for words in (DROPOUT, OFF))
    folder = execute(sampled, out, cpu)
    monkeypatch.setattr(loop, "_epoch", lambda *given: pytest.fail("trained again"))
    deterministic = execute(off, out, cpu)
    one, other = (load_tensors(path / "posterior.pt") for path in (folder, deterministic))
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)

    found = read_predictions(deterministic / "predictions.parquet")
    assert (found.samples, found.metadata["title"]) == (1, "Deterministic")
    # The network of the dropout run with every mask at its mean gives the same probabilities.
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    _, trained = load_posterior(folder)
    for module in trained.model.modules():
        if isinstance(module, Dropout):
            module.steps = 0
    _, posterior = load_posterior(deterministic)
    expected = trained.predict(images, 2, torch.Generator().manual_seed(0))
    assert torch.equal(posterior.predict(images, 5, torch.Generator()), expected[:1])
    assert not np.array_equal(found.prob, read_predictions(folder / "predictions.parquet").prob)


def test_another_member_has_no_dropout_to_switch_off():
    with pytest.raises(InputError, match=r"'map' has no dropout to switch off\. Set member\.name=dropout"):
        load_run(None, ["method.name=dropout_off", "method.member.name=map"], data="d")
