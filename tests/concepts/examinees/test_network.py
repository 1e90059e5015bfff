"""The multi-label network: it learns, repeats itself bit for bit, and continues after an interruption."""

from __future__ import annotations

import numpy as np
import pytest

from retinabench.concepts.banks import lesion_images
from retinabench.concepts.examinees.network import answer, network_examinee, train_network
from retinabench.core.errors import DivergedError
from retinabench.methods.settings import Optimizer
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.metrics.classification import auroc
from retinabench.models.settings import ModelConfig

MODEL = ModelConfig(width=4, stem="small")


def coloured(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a red and a green patch, each in half of the images, at random places: (n, 16, 16, 3), (n, 2)."""
    random = np.random.default_rng(seed)
    images = random.integers(40, 90, (n, 16, 16, 3), dtype=np.uint8)
    truth = random.random((n, 2)) < 0.5
    for image, present in zip(images, truth, strict=True):
        for channel in np.flatnonzero(present):
            row, column = random.integers(0, 11, 2)
            image[row : row + 5, column : column + 5, channel] += 100
    return images, truth


def optimizer(epochs: int) -> Optimizer:
    return Optimizer(name="adam", lr=0.01, momentum=0.9, epochs=epochs, batch_size=16)


def test_a_network_learns_to_tell_two_concepts_apart():
    network = train_network(
        *coloured(96, 0), model=MODEL, optimizer=optimizer(10), seed=0, checkpoint=Checkpoint()
    )
    images, truth = coloured(100, 1)
    found = answer(network, images)
    assert found.shape == (100, 2)
    assert ((found > 0) & (found < 1)).all()
    for column in range(2):
        # Under guessing the standard error of an AUROC with 50 of either class is 0.058: this is five of them.
        assert auroc(truth[:, column].astype(np.int8), found[:, column]) > 0.79
    # The one concept does not answer for the other.
    assert auroc(truth[:, 0].astype(np.int8), found[:, 1]) < 0.79


def test_the_same_seed_gives_the_same_answers_and_another_does_not():
    images, truth = coloured(32, 0)
    first, again, other = (
        answer(
            train_network(
                images, truth, model=MODEL, optimizer=optimizer(2), seed=seed, checkpoint=Checkpoint()
            ),
            images,
        )
        for seed in (7, 7, 8)
    )
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_answers_do_not_depend_on_what_else_is_asked():
    images, truth = coloured(70, 0)
    network = train_network(
        images, truth, model=MODEL, optimizer=optimizer(1), seed=0, checkpoint=Checkpoint()
    )
    assert answer(network, images)[66:] == pytest.approx(answer(network, images[66:]), abs=1e-6)


def test_a_diverging_loss_is_reported():
    wild = Optimizer(name="sgd", lr=1e30, epochs=3, batch_size=16, warmup=0)
    with pytest.raises(DivergedError, match="not finite"):
        train_network(*coloured(32, 0), model=MODEL, optimizer=wild, seed=0, checkpoint=Checkpoint())


def test_an_examinee_that_reads_on_demand_answers_as_the_table():
    known = lesion_images.drawn(12, seed=5, population="shifted", mask_size=32)
    samples = lesion_images.gather(known, np.arange(12), size=16, grid=2)
    network = train_network(
        samples.images, samples.truth, model=MODEL, optimizer=optimizer(1), seed=0, checkpoint=Checkpoint()
    )
    table = answer(network, samples.images)
    lazy = network_examinee(network, known, size=16, grid=2)
    for sample, concept in ((0, "microaneurysm"), (13, "haemorrhage"), (47, "new_vessels")):
        expected = table[sample, known.concepts.index(concept)]
        assert lazy(sample, concept) == pytest.approx(expected, abs=1e-6)


def test_an_interrupted_training_continues_to_the_same_answers(tmp_path, monkeypatch):
    images, truth = coloured(48, 3)

    def trained(folder):
        checkpoint = Checkpoint(folder)
        network = train_network(
            images, truth, model=MODEL, optimizer=optimizer(4), seed=1, checkpoint=checkpoint
        )
        return answer(network, images)

    undisturbed = trained(tmp_path / "undisturbed")
    save = Checkpoint.save

    def stop_after_two_epochs(self, state):
        save(self, state)
        if state["epoch"] == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", stop_after_two_epochs)
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path / "stopped")
    assert np.array_equal(trained(tmp_path / "stopped"), undisturbed)
