"""Networks that are collected along a training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from retinabench.experiments.config import load_run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.posteriors.collected import (
    SAMPLES,
    CollectedPosterior,
    before_steps,
    evenly,
)
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.methods.training.losses import BatchInfo
from retinabench.models.build import build_model
from support.helpers import TINY, make_prepared
from support.linear_gaussian import fitted, make_run


def test_an_action_comes_once_before_its_step():
    seen = []
    objective = before_steps(lambda *_: seen.append("step") or {}, [1, 3], seen.append)
    for step in (0, 1, 1, 2, 3):  # step 1 in two parts
        objective(torch.zeros(1), torch.zeros(1), BatchInfo.of(torch.zeros(1), step))
    assert seen == ["step", 0, "step", "step", "step", 1, "step"]


def test_evenly_spaced_samples_answer_for_all():
    samples = [{"w": torch.tensor(float(k))} for k in range(10)]
    assert [float(s["w"]) for s in evenly(samples, 5)] == [1, 3, 5, 7, 9]
    assert len(evenly(samples, 99)) == 10


def test_samples_lie_in_the_run_s_folder_and_then_in_its_posterior(tmp_path, monkeypatch):
    run = load_run(
        None, [*TINY, "method.name=sghmc", "method.samples=3"], data=str(make_prepared(tmp_path / "data"))
    )
    seen = []
    checkpoint = Checkpoint.save
    monkeypatch.setattr(
        Checkpoint,
        "save",
        lambda self, state: (
            seen.append(sorted(file.name for file in (self.folder / SAMPLES).glob("*.pt"))),
            checkpoint(self, state),
        ),
    )
    folder = execute(run, tmp_path / "runs", Resources("cpu"))
    # 3 epochs of 4 steps, samples after 8, 10 and 12: a sample is there when the step after it begins.
    assert seen == [[], [], ["00000.pt", "00001.pt"]]
    assert not (folder / SAMPLES).exists()
    _, posterior = load_posterior(folder)
    assert len(posterior.samples) == 3
    # Batch norm's statistics are those of each sample.
    running = [sample["bn1.running_mean"] for sample in posterior.samples]
    assert not torch.equal(running[0], running[2])
    # Every sample is the network's own answer.
    images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    answers = posterior.predict(images, 3, torch.Generator())
    model = build_model(run.model, 0).eval()
    for sample, answer in zip(posterior.samples, answers, strict=True):
        model.load_state_dict(sample)
        assert torch.equal(model(images).sigmoid()[:, 0], answer[:, 1])


def test_samples_are_mapped_from_their_files_not_read(tmp_path):
    if not (maps := Path("/proc/self/maps")).exists():
        pytest.skip("needs a system that lists what is mapped")
    run = make_run("sgld", "method.samples=3", "optimizer.lr=0.1")
    posterior, _ = fitted(run, Checkpoint(tmp_path, interval=1e9))
    assert len(posterior.samples) == 3
    for number in range(3):
        assert str(tmp_path / SAMPLES / f"0000{number}.pt") in maps.read_text()


def test_an_untrained_posterior_answers_with_its_network():
    model = build_model(load_run(None, TINY, data="d").model, 0)
    images = torch.rand(2, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    assert CollectedPosterior(model, Bernoulli()).predict(images, 4, torch.Generator()).shape == (1, 2, 2)
