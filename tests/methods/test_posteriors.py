import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from retinabench.cli.main import run as command
from retinabench.data.loader import FILE
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods import posteriors
from retinabench.methods.posteriors import SAMPLES, CollectedPosterior, DrawCache, SampledPosterior, WeightPosterior
from retinabench.methods.registry import METHODS
from retinabench.methods.training import gradients as gradients_module
from retinabench.methods.training.likelihood import Bernoulli, Gaussian
from retinabench.methods.training.posterior import fingerprint
from retinabench.methods.training.prediction import ValidationPlan, validation_plan
from retinabench.models.build import build_model
from retinabench.predictions.io import read_predictions
from support.helpers import TINY, generator, make_prepared


def test_fewer_samples_are_evenly_spaced():
    samples = [{"weight": torch.tensor([[float(k)]])} for k in range(10)]
    posterior = CollectedPosterior(nn.Linear(1, 1, bias=False), Bernoulli(), samples)
    probs = posterior.predict(torch.ones(1, 1), 5, torch.Generator())[:, 0, 1]
    assert torch.equal(probs, torch.tensor([1.0, 3.0, 5.0, 7.0, 9.0]).sigmoid())
    assert len(posterior.predict(torch.ones(1, 1), 99, torch.Generator())) == 10


def test_every_sample_has_the_batch_norms_and_the_predictions_of_its_own(tmp_path):
    run = load_run(None, [*TINY, "method.name=sghmc", "method.samples=3"], data=str(make_prepared(tmp_path / "data")))
    folder = execute(run, tmp_path / "runs", Resources("cpu"))
    assert not (folder / SAMPLES).exists()
    _, posterior = load_posterior(folder)
    assert len(posterior.samples) == 3
    running = [sample["bn1.running_mean"] for sample in posterior.samples]
    assert not torch.equal(running[0], running[2])
    images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    answers = posterior.predict(images, 3, torch.Generator())
    model = build_model(run.model, 0).eval()
    for sample, answer in zip(posterior.samples, answers, strict=True):
        model.load_state_dict(sample)
        assert torch.equal(model(images).sigmoid()[:, 0], answer[:, 1])


OVER_WEIGHTS = ["mfvi", "radial", "rank1", "ivon", "swag"]
NOISY = ["dropout", "mfvi", "radial", "rank1"]
WIDE = {"mfvi": ["method.stddev_mean_init=0.05"], "radial": ["method.stddev_mean_init=0.5"]}


def images_of(count=4, seed=5):
    return torch.rand(count, 3, 16, 16, generator=generator(seed)).to(memory_format=torch.channels_last)


def posterior(name, *words):
    run = load_run(None, [*TINY[:3], f"method.name={name}", *WIDE.get(name, []), *words], data="d")
    made = METHODS[name].build(build_model(run.model, 3), run, Bernoulli())
    if name == "ivon":
        made.stds = {key: torch.full_like(p, 0.02) for key, p in made.stds.items()}
    if name == "swag":
        made.variance = torch.full_like(made.variance, 4e-4)
        made.deviations = 0.02 * torch.randn(3, len(made.variance), generator=generator())
    return made


@pytest.fixture
def normals(monkeypatch):
    """Count the draws of normal numbers."""
    drawn, randn = [], torch.randn
    monkeypatch.setattr(torch, "randn", lambda *a, **k: (drawn.append(1), randn(*a, **k))[1])
    return drawn


@pytest.mark.parametrize("name", OVER_WEIGHTS)
def test_nothing_stale_is_kept(name):
    """After a step of the optimiser, after `restore`, for another seed, for more samples."""
    subject, images = posterior(name), images_of()
    start, before = subject.state(), subject.predict(images, 3, generator(1))
    assert not torch.equal(subject.predict(images, 3, generator(2)), before)
    subject.predict(images, 3, generator(1))
    assert subject.predict(images, 4, generator(1)).shape[0] == 4
    subject.predict(images, 3, generator(1))
    step = torch.optim.SGD(subject.model.parameters(), lr=0.1)
    for p in subject.model.parameters():
        p.grad = torch.full_like(p, 0.05)
    step.step()
    after = subject.predict(images, 3, generator(1))
    assert not torch.equal(after, before)
    nothing_kept = replace(subject, cache=DrawCache()).predict(images, 3, generator(1))
    assert torch.equal(after, nothing_kept)
    subject.restore(start)
    assert torch.equal(subject.predict(images, 3, generator(1)), before)


@pytest.mark.parametrize("name", OVER_WEIGHTS)
def test_more_than_the_memory_allows_is_drawn_anew_to_the_same_bits(name, normals, monkeypatch):
    subject, images = posterior(name), images_of()
    expected = subject.predict(images, 3, generator(1))
    monkeypatch.setattr(posteriors, "CACHED_VALUES", 10)
    normals.clear()
    assert torch.equal(subject.predict(images, 3, generator(1)), expected)
    assert normals


def posterior_of_drawn_weights(std):
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    return WeightPosterior(model, Gaussian(), {name: torch.full_like(p, std) for name, p in model.named_parameters()})


def test_predictions_have_the_mean_and_variance_of_a_linear_model_of_gaussian_weights():
    """Mean w·x + b, variance s² (|x|² + 1); 4,000 draws, four standard errors."""
    found, x = posterior_of_drawn_weights(0.3), torch.tensor([[1.0, -2.0]])
    drawn = found.predict(x, 4000, torch.Generator().manual_seed(1))[:, 0, 0]
    variance = 0.3**2 * (5 + 1)
    assert float(drawn.mean()) == pytest.approx(float(found.model(x).detach()[0, 0]), abs=4 * (variance / 4000) ** 0.5)
    assert float(drawn.var()) == pytest.approx(variance, rel=4 * (2 / 4000) ** 0.5)


def test_a_point_has_no_width_and_the_state_makes_the_round_trip():
    run = load_run(None, ["method.name=gaussian_vi"], data="d")
    network = WeightPosterior.build(nn.Linear(2, 2), run, Gaussian())
    drawn = network.predict(torch.randn(3, 2), 4, torch.Generator())
    assert torch.equal(drawn, drawn[:1].expand_as(drawn))
    one, x = posterior_of_drawn_weights(0.3), torch.randn(3, 2)
    network.restore(one.state())
    assert set(network.stds) == {"weight", "bias"}
    torch.testing.assert_close(
        network.predict(x, 2, torch.Generator().manual_seed(3)), one.predict(x, 2, torch.Generator().manual_seed(3))
    )


def predict_samples(model, images, count, seed, monkeypatch=None, together=1):
    if monkeypatch is not None:
        monkeypatch.setitem(posteriors.PASS_VALUES, "cpu", together * images.numel())
    return SampledPosterior(model, Bernoulli(), per_image=True).predict(images, count, generator(seed))


@pytest.mark.parametrize("name", NOISY)
def test_the_number_of_samples_in_a_pass_changes_only_rounding(name, monkeypatch):
    model, images = posterior(name).model, images_of(6)
    probs = [predict_samples(model, images, 7, 1, monkeypatch, together) for together in (1, 2, 7)]
    assert probs[0].shape == (7, 6, 2)
    assert len(probs[0][:, 0, 1].unique()) == 7
    for other in probs[1:]:
        # The convolution kernels may add in another order for another batch size.
        assert torch.allclose(probs[0], other, atol=1e-6, rtol=0)


def test_a_mixture_predicts_the_average_over_its_components():
    """With no noise within a component, S = 2K samples are each of the K networks twice."""
    model = posterior("rank1", "method.components=3", "method.samples=3").model
    for name, parameter in model.named_parameters():
        if name.endswith(("input_rho", "output_rho")):
            parameter.data.fill_(-40.0)
    probs = predict_samples(model, images_of(6), 6, 1)
    assert torch.allclose(probs[:3], probs[3:], atol=1e-6, rtol=0)
    networks = []
    for component in range(3):
        plain = posterior("map").model.eval()
        for name, layer in plain.named_modules():
            if isinstance(layer, (nn.Linear, nn.Conv2d)):
                made = model.get_submodule(name)
                outer = torch.outer(made.output_mean[component], made.input_mean[component]).detach()
                layer.weight.data = made.weight.data * outer.view(*outer.shape, *[1] * (layer.weight.ndim - 2))
        networks.append(plain(images_of(6)).sigmoid().squeeze(1).detach())
    # Another order of multiplication: single precision through 18 layers.
    assert torch.allclose(probs[..., 1].mean(dim=0), torch.stack(networks).mean(dim=0), atol=1e-5)


@pytest.mark.parametrize(
    ("words", "training", "held_out", "plan"),
    [
        (["filos2019/deterministic"], 28_000, 7_000, (1, 1)),  # 7,000 of 91,000 passes
        (["filos2019/dropout"], 28_000, 7_000, (1, 1)),  # all 100 samples would be 700,000 of 784,000
        ([None, "method=dropout"], 90_000, 1_000, (5, 1)),
        ([None, "method=mfvi", "method.train_samples=5"], 6_000, 2_000, (5, 1)),  # five gradients per image and step
        ([None], 70, 24, (1, 2)),
        ([None, "method=dropout", "optimizer.validation_share=0.01"], 1_000, 1_000, (1, 33)),
        ([None, "method=dropout", "optimizer.validation_share=1"], 10, 1_000, (5, 1)),
        ([None, "method=dropout"], 10, 0, (5, 1)),
    ],
)
def test_validation_takes_a_tenth_of_the_passes(words, training, held_out, plan):
    run = load_run(words[0], words[1:], data="none")
    found = validation_plan(run, training, held_out)
    assert found == ValidationPlan(*plan)
    if held_out and run.optimizer.validation_share < 1:
        passes = held_out * found.samples / found.every
        gradients = 3 * training * run.method.gradients_per_example(run.optimizer) / run.optimizer.epochs
        assert passes / (passes + gradients) <= run.optimizer.validation_share


TRAIN = ("--task", "in_domain", "--device", "cpu", "model.name=lenet", "method=dropout", "optimizer.epochs=2",
         "optimizer.batch_size=16", "optimizer.augment=none", "optimizer.validation_share=1")  # fmt: skip


def scarce(monkeypatch, most):
    """Let passes of more than `most` images run out of memory, in training and in prediction."""
    objective, predict = gradients_module.with_less, SampledPosterior.predict

    def short(self, images, samples, generator):
        found = predict(self, images, samples, generator)
        if len(images) > most:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
        return found

    def step(attempt, begin, limits, work, size, device, least=1):
        def checked(images):
            if images > most:
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")
            return attempt(images)

        return objective(checked, begin, limits, work, size, device, least)

    monkeypatch.setattr(SampledPosterior, "predict", short)
    monkeypatch.setattr(gradients_module, "with_less", step)


def test_a_run_goes_on_where_memory_runs_out(prepared, tmp_path, monkeypatch, capsys):
    scarce(monkeypatch, 6)
    assert command(["train", "--data", prepared, "--out", str(tmp_path), *TRAIN]) == 0
    (folder,) = tmp_path.iterdir()
    record = json.loads((folder / FILE).read_text())
    assert (record["training"], record["validation"], record["prediction"]) == (4, 6, 3)
    said = capsys.readouterr()
    assert said.err.count("out of memory with") == len(record["history"])  # each is said once
    assert len(read_predictions(folder / "predictions.parquet").label) == 24 + 32
    # A run that continues has the limits from the start, and predicts the same numbers.
    probs = read_predictions(folder / "predictions.parquet").probs
    (folder / "done").unlink()
    assert command(["train", "--data", prepared, "--out", str(tmp_path), *TRAIN]) == 0
    assert "out of memory" not in capsys.readouterr().err
    assert np.array_equal(read_predictions(folder / "predictions.parquet").probs, probs)


def test_too_little_memory_for_one_image_is_one_line(prepared, tmp_path, monkeypatch, capsys):
    scarce(monkeypatch, 0)
    assert command(["train", "--data", prepared, "--out", str(tmp_path), *TRAIN]) == 1
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("retinabench: error: cpu ran out of memory: training with 1 image at a time")
    assert "Traceback" not in "".join(said)


def test_the_fingerprint_is_the_stated_hash_whatever_the_order():
    digest = hashlib.sha256()
    for name, tensor in (("a", torch.ones(2)), ("b", torch.zeros(1, dtype=torch.int64))):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    state = {"b": torch.zeros(1, dtype=torch.int64), "a": torch.ones(2)}
    assert fingerprint(state) == digest.hexdigest()[:16]
    assert fingerprint({**state, "a": torch.ones(2, 1)}) != fingerprint(state)
