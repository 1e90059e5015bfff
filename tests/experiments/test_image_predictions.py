"""Predictions of a task's images by a posterior that is made up, and the metadata of their file."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit

from retinabench.core.errors import DivergedError
from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.image_predictions import combine, metadata, predict
from retinabench.experiments.run import make_batches
from retinabench.experiments.trained_inputs import describe_inputs
from support.helpers import TINY, make_prepared


class Brightness:
    """P(referable) is the mean of an image, in every sample; its uncertainty is P."""

    def __init__(self, scale=1.0):
        self.scale = scale

    def predict(self, images, samples, generator):
        p = self.uncertainty(images) * self.scale
        return torch.stack([1 - p, p], dim=1).expand(samples, -1, -1)

    def uncertainty(self, images):
        return images.mean(dim=(1, 2, 3)).sigmoid()

    def state(self):
        return {"scale": torch.tensor(self.scale)}

    def restore(self, state):
        self.scale = float(state["scale"])


@pytest.fixture
def opened(tmp_path):
    data = make_prepared(tmp_path / "data")
    run = load_run(None, [*TINY, "method=dropout", "method.samples=3"], data=str(data))
    return run, load_task(data, run.task)


def test_all_splits_but_the_training_one_are_predicted_in_every_sample(opened):
    run, task = opened
    batches = make_batches(run, task, torch.device("cpu"))
    found = predict(run, task, Brightness(), batches)
    assert found.probs.shape == (96, 3)
    assert set(zip(found.domain, found.split, strict=True)) == {
        (domain, split) for domain in ("in_domain", "shifted") for split in ("validation", "test")
    }
    np.testing.assert_array_equal(found.uncertainty, found.probs[:, 0])
    row = {name: k for k, name in enumerate(task.image_id.tolist())}
    scale = describe_inputs(run, task)
    pixels = task.data.images([row[name] for name in found.image_id.tolist()]) / 255
    logit = ((pixels - scale.mean) / scale.std).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(found.probs[:, 0], expit(logit), atol=1e-5)
    with pytest.raises(DivergedError, match="not finite"):
        predict(run, task, Brightness(float("nan")), batches)


def test_the_metadata_say_what_was_trained(opened):
    run, task = opened
    found = metadata(run, task, members=1)
    assert (found["method"], found["seed"], found["members"]) == ("dropout", 0, 1)
    assert found["config_hash"] == run.hash(task.data.fingerprint)
    assert "blur" not in found


def test_folds_are_joined_in_the_order_of_the_images(opened):
    run, task = opened
    whole = predict(run, task, Brightness(), make_batches(run, task, torch.device("cpu"))).select(
        split="test"
    )
    parts = [whole.take(np.arange(k, len(whole), 2)) for k in (1, 0)]
    division = run.model_copy(
        update={"cross_validation": load_run(None, ["cross_validation.folds=2"], data="d").cross_validation}
    )
    joined = combine(division, task, [replace(one, metadata=whole.metadata) for one in parts])
    row = {name: k for k, name in enumerate(task.image_id.tolist())}
    assert np.all(np.diff([row[name] for name in joined.image_id.tolist()]) > 0)
    assert sorted(joined.image_id) == sorted(whole.image_id)
    weights = whole.metadata["weights"]
    assert joined.metadata["weights"] == f"{weights}+{weights}"
