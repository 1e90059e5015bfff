"""Every method: stopped after its training it gives the same bits; samples of weights are functions of all images."""

from __future__ import annotations

import filecmp

import pytest
import torch

from retinabench.data.tasks import load_task
from retinabench.experiments import execution
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute, make_batches
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from support.helpers import TINY

ENGINE = Resources("cpu")
SINGLE = [name for name, method in METHODS.items() if not is_composed(method)]
FAST = ("map", "swag", "laplace", "csghmc", "ensemble")
OVER_WEIGHTS = (
    "map", "fsvi", "vbll", "laplace", "sngp", "swag", "ivon", "vogn", "gaussian_vi", "batch_ensemble", "head_ensemble",
    "lora_ensemble",
)  # fmt: skip


class StoppedError(Exception):
    """Stands for the end of the process."""


def save_nothing(path, content):
    raise StoppedError


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_stopped_before_its_posterior_is_saved_it_ends_with_the_same_bits(trained, prepared, tmp_path, name):
    run = load_run(None, [*TINY, f"method.name={name}"], data=prepared)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(execution, "save_tensors", save_nothing)
        with pytest.raises(StoppedError):
            execute(run, tmp_path, ENGINE)
    assert not list(tmp_path.glob("*/done"))
    torch.manual_seed(1)  # the global generator is where a new process has it: anywhere
    reference, folder = trained(f"method.name={name}"), execute(run, tmp_path, ENGINE)
    for file in ["predictions.parquet", *(["posterior.pt"] if name in SINGLE else [])]:
        assert filecmp.cmp(reference / file, folder / file, shallow=False), file


@pytest.mark.parametrize("name", OVER_WEIGHTS)
def test_a_sample_is_one_function_however_the_images_are_cut(trained, name):
    """The draws are the same; float32 sums may differ in their last digits with the size of a batch."""
    run, posterior = load_posterior(trained(f"method.name={name}"))
    data = make_batches(run, load_task(run.data, run.task), torch.device("cpu"))
    images, _ = next(data.rows(data.validation))
    generator = torch.Generator().manual_seed(3)
    whole = posterior.predict(images, 4, generator)
    pieces = torch.cat([posterior.predict(part, 4, generator) for part in images.split(5)], dim=1)
    assert torch.allclose(whole, pieces, atol=1e-5)
    if name != "map":
        assert (whole[0] != whole[1]).any()
        # Fewer samples are the first of more.
        assert torch.equal(posterior.predict(images, 2, generator), whole[:2])
