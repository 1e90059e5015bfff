"""Ensemble, temperature, test-time augmentation, MC dropout and its deterministic control."""

import numpy as np
import pytest
import torch
from scipy.special import expit, logit
from torch import nn

import retinabench as rb
from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import affine, affine_matrices
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute, make_batches
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods import composed, tta
from retinabench.methods.composed import Ensemble, Temperature
from retinabench.methods.dropout import McDropout
from retinabench.methods.registry import METHODS
from retinabench.methods.training import loop
from retinabench.methods.training.checkpoint import load_tensors
from retinabench.methods.training.likelihood import Bernoulli, Gaussian
from retinabench.metrics.classification import nll
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig
from retinabench.models.stochastic.dropout import Dropout
from retinabench.predictions.io import read_predictions
from retinabench.predictions.table import Predictions
from support.helpers import TINY, make_prepared


def member(seed, samples=2, uncertainty=None, **columns):
    probs = np.random.default_rng(seed).random((4, samples)) / 2
    given = {"image_id": ["a", "b", "c", "d"], "label": [0, 1, 0, 1], **columns}
    return rb.Predictions(**given, probs=probs, uncertainty=uncertainty, metadata={"members": 1, "seed": seed})


def test_ensembles_of_other_seeds_share_no_member():
    runs = [load_run(None, ["method.name=ensemble"], data="d", seed=seed) for seed in (0, 1, 2)]
    seeds = [one.seed for run in runs for one in Ensemble.member_runs(run)]
    assert sorted(seeds) == list(range(9))
    nested = load_run(None, ["method.name=ensemble", "method.member.name=ensemble"], data="d")
    with pytest.raises(InputError, match=r"Raise method\.members"):
        Ensemble.member_runs(nested)


def test_an_uncertainty_of_the_members_own_is_averaged_where_all_have_one():
    a, b = np.arange(4.0), np.full(4, 2.0)
    found = Ensemble.combine([member(0, uncertainty=a), member(1, uncertainty=b)])
    np.testing.assert_array_equal(found.uncertainty, (a + b) / 2)
    assert Ensemble.combine([member(0, uncertainty=a), member(1)]).uncertainty is None


@pytest.mark.parametrize("columns", [{"image_id": ["a", "b", "d", "c"]}, {"label": [0, 1, 1, 1]}, {"samples": 3}])
def test_members_that_do_not_go_together_are_refused(columns):
    with pytest.raises(InputError, match="other images, labels or numbers of samples"):
        Ensemble.combine([member(0), member(1, **columns)])


def test_it_finds_the_temperature_that_made_the_labels():
    """Labels drawn at T = 1 from logits that are then multiplied by 2.5: with 20,000 labels T is known to 2 %. The Fisher
    information of log T is Σ p (1 - p) z², here about 0.2 · 20,000: a standard error of 0.016."""
    random = np.random.default_rng(0)
    z = random.normal(0, 1.5, 20_000)
    label = (random.random(20_000) < expit(z)).astype(np.int8)
    information = (expit(z) * expit(-z) * z**2).sum()
    found = composed.best_temperature(label, expit(2.5 * z)[:, None])
    assert np.log(found / 2.5) == pytest.approx(0, abs=4 / information**0.5)


def test_certain_predictions_stay_in_order_and_in_range():
    probs = np.array([0.0, 1e-300, 1e-9, 0.5, 1 - 1e-9, 1.0])
    for t in (0.1, 1.0, 7.0):
        scaled = composed.scaled(probs, t)
        assert (np.diff(scaled) >= 0).all()
        assert ((scaled >= 0) & (scaled <= 1)).all()
        assert scaled[3] == 0.5
    inner = probs[2:5]
    assert np.allclose(logit(composed.scaled(inner, 2.0)), logit(inner) / 2)


def test_without_validation_images_of_both_classes_it_refuses():
    label = np.zeros(4, np.int8)
    given = Predictions([f"i{k}" for k in range(4)], label, np.full(4, 0.3), split=["validation"] * 4)
    with pytest.raises(InputError, match="both classes"):
        Temperature.combine([given])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Predictions by description of the method: T over MAP, over the ensemble, and the ensemble over T."""
    root = tmp_path_factory.mktemp("temperature")
    prepared = str(make_prepared(root / "data"))

    def predict(*words):
        run = load_run(None, [*TINY, *words], data=prepared)
        return read_predictions(execute(run, root / "runs", Resources("cpu")) / "predictions.parquet")

    inner = 'method.member={name = "ensemble", members = 2}'
    return {
        "map": predict("method=map"), "of map": predict("method=temperature"),
        "of dropout": predict("method.name=temperature", "method.member.name=dropout"),
        "dropout": predict("method=dropout"), "of ensemble": predict("method.name=temperature", inner),
        "ensemble": predict("method.name=ensemble", "method.members=2"),
        "ensemble of": predict("method.name=ensemble", "method.members=2", "method.member.name=temperature"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("scaled", "plain"), [("of map", "map"), ("of dropout", "dropout"), ("of ensemble", "ensemble")]
)
def test_every_sample_s_logit_is_divided_by_one_number(made, scaled, plain):
    a, b = made[scaled], made[plain]
    assert (a.image_id == b.image_id).all()
    assert a.probs.shape == b.probs.shape
    assert a.metadata["members"] == b.metadata["members"]
    ratio = logit(b.probs) / logit(a.probs)
    assert np.allclose(ratio, np.median(ratio), rtol=1e-6)
    held = [p.select(domain="in_domain", split="validation") for p in (a, b)]
    assert nll(held[0].label, held[0].prob) <= nll(held[1].label, held[1].prob)


def test_an_ensemble_of_temperatures_has_one_for_each_member(made):
    ratio = logit(made["ensemble"].probs) / logit(made["ensemble of"].probs)
    assert np.allclose(ratio, np.median(ratio, axis=0), rtol=1e-6)
    assert not np.isclose(*np.median(ratio, axis=0), rtol=1e-3)
    assert made["ensemble of"].metadata["members"] == 2
    assert made["ensemble of"].metadata["title"] == "ensemble of 2 tempered MAP"
    assert made["of ensemble"].metadata["title"] == "tempered ensemble of 2 MAP"


NET = ModelConfig(name="resnet18", width=4, stem="small")


def images(count=5):
    return torch.rand(count, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def run(*words, data="d"):
    return load_run(None, [*TINY, *words], data=data)


def test_the_dihedral_views_are_the_eight_turned_and_mirrored_images():
    image = images(1)
    turned = np.rot90(image.numpy(), 1, (2, 3))
    expected = [
        flips for start in (image.numpy(), turned)
        for flips in (start, start[..., ::-1], start[..., ::-1, :], start[..., ::-1, ::-1])
    ]  # fmt: skip
    views = tta.make_views("dihedral", 8, torch.Generator())
    assert all(np.array_equal(view(image).numpy(), one) for view, one in zip(views, expected, strict=True))
    assert len({one.tobytes() for one in expected}) == 8


def test_the_affine_views_are_those_of_the_augmentation_and_the_first_is_the_image():
    generator = torch.Generator().manual_seed(7)
    torch.rand(3, generator=generator)  # its position does not matter
    first, *others = tta.make_views("affine", 3, generator)
    assert torch.equal(first(images()), images())
    drawn = torch.rand(2, 7, generator=torch_generator("cpu", 7, "views"))
    for view, matrix in zip(others, affine_matrices(drawn), strict=True):
        assert torch.equal(view(images()), affine(images(), torch.stack([matrix] * 5)))
        assert not torch.allclose(view(images()), images())
        assert torch.equal(view(images())[:2], view(images(2)))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run of MAP and one of its views, on the same images with the same seed; the weights are trained once."""
    root = tmp_path_factory.mktemp("tta")
    data = str(make_prepared(root / "data"))
    plain, views = (run(word, data=data) for word in ("method=map", "method=tta"))
    member = execute(plain, root, Resources("cpu"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "_epoch", lambda *given: pytest.fail("trained again"))
        return [member, execute(views, root, Resources("cpu"))]


def test_the_samples_are_the_member_s_predictions_of_images_turned_by_hand(finished):
    settings, member = load_posterior(finished[0])
    batches = make_batches(settings, load_task(settings.data, settings.task), torch.device("cpu"))
    stored, _ = next(batches.rows(batches.validation))
    generator = torch.Generator()
    turned = [np.rot90(stored.numpy(), turns, (2, 3)).copy() for turns in (0, 2)]
    by_hand = [member.predict(torch.from_numpy(one), 1, generator) for one in turned]
    _, posterior = load_posterior(finished[1])
    found = posterior.predict(stored, 8, generator)
    assert torch.equal(found[0], by_hand[0][0])  # view 0, the image
    assert torch.allclose(found[3], by_hand[1][0], atol=1e-6)  # view 3, turned by half; in another memory layout
    pieces = torch.cat([posterior.predict(part, 8, generator) for part in stored.split(3)], dim=1)
    assert torch.allclose(found, pieces, atol=1e-5)


def test_a_member_with_several_samples_predicts_each_view_with_all_of_them():
    settings = run("method=tta", "method.member.name=mfvi", "method.member.samples=3", "method.samples=2")
    posterior = tta.build(build_model(NET, 0), settings, Bernoulli())
    alone = settings.model_copy(update={"method": settings.method.member})
    member = METHODS["mfvi"].build(build_model(NET, 0), alone, Bernoulli())
    generator = torch.Generator().manual_seed(2)
    found = posterior.predict(images(), 2, generator)
    mirrored = member.predict(images().flip(3), 3, generator)
    assert torch.equal(found[:3], member.predict(images(), 3, generator))
    assert torch.allclose(found[3:], mirrored, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["method.samples=9"], "8 dihedral views, not 9.*views=affine"),
        (["method.member.name=ensemble"], "'ensemble' trains no network of its own.*method.member.name=tta"),
        (["method.member.name=tta"], "'tta' trains no network of its own"),
    ],
)
def test_what_it_cannot_do_is_said(words, says):
    with pytest.raises(InputError, match=says):
        run("method=tta", *words)


class Sum(nn.Module):
    """The mean of many positive activations, and a raw std."""

    def __init__(self):
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x):
        mean = self.act(x).mean(dim=1)
        return torch.stack([mean, torch.zeros_like(mean)], dim=1)


@pytest.mark.parametrize("rate", [0.0, 0.25])
def test_samples_have_the_mean_of_the_network_and_the_variance_of_the_masks(rate):
    """Of n = 64 ones: mean 1, variance rate / (1 - rate) / n; 4,000 draws, four standard errors."""
    run = load_run(None, ["method=dropout", f"method.rate={rate}"], data="d")
    posterior = McDropout.build(Sum(), run, Gaussian())
    drawn = posterior.predict(torch.ones(40, 64), 100, torch.Generator().manual_seed(0))[..., 0].flatten()
    variance = rate / (1 - rate) / 64
    assert float(drawn.mean()) == pytest.approx(1, abs=4 * (variance / 4000) ** 0.5 + 1e-6)
    assert float(drawn.var()) == pytest.approx(variance, rel=4 * (2 / 4000) ** 0.5, abs=1e-12)


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
