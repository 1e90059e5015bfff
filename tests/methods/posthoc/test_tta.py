"""Test-time augmentation against predictions of images that are turned by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.augment import affine, affine_matrices
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.resources import Resources
from retinabench.experiments.run import execute, make_batches
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.posthoc import tta
from retinabench.methods.registry import METHODS
from retinabench.methods.training import loop
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model
from retinabench.models.settings import ModelConfig
from retinabench.predictions.io import read_predictions
from support.helpers import TINY, make_prepared

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


def test_without_a_run_to_share_the_member_is_trained_as_if_alone(finished):
    settings, member = load_posterior(finished[0])
    task = load_task(settings.data, settings.task)
    batches = make_batches(settings, task, torch.device("cpu"))
    views = run("method=tta", data=settings.data)
    found = tta.fit(build_model(settings.model, 0), batches, views, Checkpoint(), Bernoulli()).state()
    assert all(torch.equal(found[name], tensor) for name, tensor in member.state().items())


def test_the_samples_are_the_member_s_predictions_of_images_turned_by_hand(finished):
    settings, member = load_posterior(finished[0])
    batches = make_batches(settings, load_task(settings.data, settings.task), torch.device("cpu"))
    stored, _ = next(batches.rows(batches.validation))
    generator = torch.Generator()
    by_hand = [
        member.predict(torch.from_numpy(np.rot90(one, turns, (2, 3)).copy()), 1, generator)
        for one, turns in ((stored.numpy(), 0), (stored.numpy(), 2))
    ]
    _, posterior = load_posterior(finished[1])
    found = posterior.predict(stored, 8, generator)
    assert torch.equal(found[0], by_hand[0][0])  # view 0, the image
    assert torch.allclose(
        found[3], by_hand[1][0], atol=1e-6
    )  # view 3, turned by half; in another memory layout
    pieces = torch.cat([posterior.predict(part, 8, generator) for part in stored.split(3)], dim=1)
    assert torch.allclose(found, pieces, atol=1e-5)


def test_with_the_same_seed_the_first_sample_is_the_member_s_own_and_the_prediction_their_mean(finished):
    own, views = (read_predictions(folder / "predictions.parquet") for folder in finished)
    assert views.samples == 8
    assert views.metadata["title"] == "MAP with augmented views"
    assert np.array_equal(views.probs[:, 0], own.probs[:, 0])
    assert np.allclose(views.prob, views.probs.mean(axis=1), atol=1e-12)
    assert (np.ptp(views.probs, axis=1) > 0).mean() > 0.9


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


def test_an_uncertainty_of_the_member_is_kept():
    plain, own = (
        tta.build(build_model(NET, 0), run("method=tta", f"method.member.name={name}"), Bernoulli())
        for name in ("map", "ddu")
    )
    assert not hasattr(plain, "uncertainty")
    assert hasattr(own, "uncertainty")


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
