"""Every method of `METHODS` through one oracle: it learns, it is reproducible, it saves, loads and predicts."""

from __future__ import annotations

import filecmp

import numpy as np
import pytest
import torch

from retinabench.data.tasks import load_task
from retinabench.experiments.config import load_run
from retinabench.experiments.execution import Resources, is_composed
from retinabench.experiments.run import execute, load_posterior, make_batches, predict
from retinabench.methods.ensembles import ensemble
from retinabench.methods.registry import METHODS
from retinabench.metrics.classification import auroc
from retinabench.predictions.io import read_predictions
from support.helpers import TINY, make_prepared

SINGLE = [name for name, method in METHODS.items() if not is_composed(method)]
ENGINE = Resources("cpu")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return make_prepared(tmp_path_factory.mktemp("data") / "prepared")


@pytest.fixture(scope="module")
def finished(prepared, tmp_path_factory):
    """Run every method once; (run, folder) by name."""
    out = tmp_path_factory.mktemp("runs")
    runs = {name: load_run(None, [*TINY, f"method.name={name}"], data=str(prepared)) for name in METHODS}
    return {name: (run, execute(run, out, ENGINE)) for name, run in runs.items()}


@pytest.mark.parametrize("name", METHODS)
def test_it_learns_what_is_easy_to_see(finished, name):
    predictions = read_predictions(finished[name][1] / "predictions.parquet")
    assert set(predictions.split) == {"validation", "test"}
    assert set(predictions.domain) == {"in_domain", "shifted"}
    test = predictions.select(split="test")
    # A bright patch on every referable picture; chance is 0.5 with standard error 0.08.
    assert auroc(test.label, test.prob) > 0.9


@pytest.mark.parametrize("name", METHODS)
def test_the_file_says_where_it_comes_from(finished, name):
    run, folder = finished[name]
    metadata = read_predictions(folder / "predictions.parquet").metadata
    assert metadata["method"] == name
    assert metadata["seed"] == run.seed
    assert folder.name.endswith(metadata["config_hash"])
    assert metadata["samples"] % metadata["members"] == 0


@pytest.mark.parametrize("name", METHODS)
def test_the_same_run_elsewhere_is_the_same_file(finished, prepared, tmp_path, name):
    run, folder = finished[name]
    torch.manual_seed(int(np.random.default_rng().integers(1 << 30)))  # the global generator must not matter
    again = execute(run, tmp_path, ENGINE)
    assert again.name == folder.name
    assert filecmp.cmp(folder / "predictions.parquet", again / "predictions.parquet", shallow=False)


@pytest.mark.parametrize("name", METHODS)
def test_another_seed_is_another_answer(finished, prepared, tmp_path, name):
    run, folder = finished[name]
    other = execute(run.model_copy(update={"seed": 9}), tmp_path, ENGINE)
    one, two = (read_predictions(f / "predictions.parquet").probs for f in (folder, other))
    assert not np.array_equal(one, two)


@pytest.mark.parametrize("name", METHODS)
def test_a_finished_run_is_not_computed_again(finished, name):
    run, folder = finished[name]
    before = (folder / "predictions.parquet").stat().st_mtime_ns
    assert execute(run, folder.parent, ENGINE) == folder
    assert (folder / "predictions.parquet").stat().st_mtime_ns == before


@pytest.mark.parametrize("name", SINGLE)
def test_a_loaded_posterior_predicts_the_same_bits(finished, name):
    run, folder = finished[name]
    loaded, posterior = load_posterior(folder)
    assert loaded == run
    task = load_task(run.data, run.task)
    batches = make_batches(run, task, torch.device("cpu"))
    again = predict(run, task, posterior, batches)
    assert np.array_equal(again.probs, read_predictions(folder / "predictions.parquet").probs)


@pytest.mark.parametrize("name", SINGLE)
def test_predictions_have_the_contract_s_shape(finished, name):
    _, posterior = load_posterior(finished[name][1])
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    probs = posterior.predict(images, 4, torch.Generator().manual_seed(1))
    assert probs.shape in {(4, 3, 2), (1, 3, 2)}
    assert torch.allclose(probs.sum(dim=2), torch.ones(probs.shape[:2]))
    again = posterior.predict(images, 4, torch.Generator().manual_seed(1))
    assert torch.equal(probs, again)


def test_an_ensemble_is_its_members_pooled(finished, prepared):
    run, folder = finished["ensemble"]
    pooled = read_predictions(folder / "predictions.parquet")
    members = [
        read_predictions(execute(m, folder.parent, ENGINE) / "predictions.parquet")
        for m in ensemble.member_runs(run)
    ]
    assert pooled.metadata["members"] == pooled.samples == 3
    assert np.array_equal(pooled.probs, np.concatenate([m.probs for m in members], axis=1))
    assert np.allclose(pooled.prob, np.mean([m.prob for m in members], axis=0), atol=1e-15)
    # A member is the single run of its seed: the run with seed 0 was trained once.
    assert np.array_equal(
        members[0].probs, read_predictions(finished["map"][1] / "predictions.parquet").probs
    )


def test_ensembles_of_other_seeds_share_no_member():
    runs = [load_run(None, ["method.name=ensemble"], data="d", seed=seed) for seed in (0, 1, 2)]
    seeds = [member.seed for run in runs for member in ensemble.member_runs(run)]
    assert sorted(seeds) == list(range(9))


def test_dropout_samples_differ_and_map_has_one(finished):
    probs = read_predictions(finished["dropout"][1] / "predictions.parquet").probs
    assert probs.shape[1] == 5
    assert (np.ptp(probs, axis=1) > 0).mean() > 0.9
    assert read_predictions(finished["map"][1] / "predictions.parquet").samples == 1
