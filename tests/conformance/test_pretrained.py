"""Every method on a pretrained network: its cached features, and the network itself with its first stages frozen."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from retinabench.core.errors import InputError
from retinabench.core.random_streams import torch_generator
from retinabench.data.loader import array_batches
from retinabench.experiments.config import load_run
from retinabench.experiments.conformance import easy_points, errors_of
from retinabench.experiments.execution import Resources
from retinabench.experiments.run import execute
from retinabench.experiments.run_folder import load_posterior
from retinabench.methods.base import is_composed
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli, Categorical, Gaussian, MultiLabel
from retinabench.models.build import build_model, initialise
from retinabench.models.networks.small import Head
from retinabench.models.settings import ModelConfig
from retinabench.predictions.io import read_predictions
from support.helpers import fast, make_prepared, short_chain

PAGE = Path(__file__).resolve().parents[2] / "docs" / "methods.md"
CPU = Resources("cpu")
OWN = [name for name in METHODS if METHODS.is_builtin(name)]
SINGLE = [name for name in METHODS if not is_composed(METHODS[name])]
OTHER_NAMES = ("sngp", "ddu")  # of the tensors of convolutions with a bound
CHAINS = ("sgld", "sghmc", "csghmc", "sequential_anchored")
FIRST = ("conv1.weight", "layer1.0.conv1.weight", "layer1.0.bn1.weight", "layer1.0.bn1.running_mean")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """The state of a network, and runs that begin with it."""
    root = tmp_path_factory.mktemp("pretrained")
    network = build_model(ModelConfig(name="resnet18", width=4, stem="small"), seed=7)
    torch.save(network.state_dict(), root / "w.pt")
    words = ["model.name=resnet18", "model.width=4", "model.stem=small", f"model.weights={root / 'w.pt'}",
             "optimizer.epochs=1", "optimizer.batch_size=16", "optimizer.select=last"]  # fmt: skip
    data = str(make_prepared(root / "data"))

    def folder(name, *more):
        few = ["method.samples=2"] if name in CHAINS else short_chain(name)  # of four steps
        return execute(load_run(None, [*words, f"method.name={name}", *few, *more], data=data), root / "runs", CPU)

    return network.state_dict(), folder


@pytest.mark.parametrize("name", METHODS)
def test_it_trains_on_cached_features_or_says_that_it_needs_images(pretrained, name):
    _, folder = pretrained
    words = ("model.trained=head", "optimizer.augment=none")
    if METHODS[name].Config.needs_images:
        with pytest.raises(InputError, match=f"'{name}' needs images, and the inputs are features"):
            folder(name, *words)
    else:
        assert np.isfinite(read_predictions(folder(name, *words) / "predictions.parquet").probs).all()


@pytest.mark.parametrize("name", fast(METHODS, ("map", "mfvi", "rank1", "laplace", "vogn", "sngp", "ensemble")))
def test_it_fine_tunes_the_last_stages_and_leaves_the_first_ones(pretrained, name):
    before, folder = pretrained
    found = folder(name, "model.trained=2", "model.trunk_lr=0.1", "optimizer.augment=none")
    assert np.isfinite(read_predictions(found / "predictions.parquet").probs).all()
    if name in SINGLE:
        state = load_posterior(found)[1].state()
        named = {key: re.compile(rf"(trunk\.|beside/\d+/)?{re.escape(key)}") for key in FIRST}
        kept = [torch.equal(one, before[k]) for k in FIRST for place, one in state.items() if named[k].fullmatch(place)]
        assert all(kept)
        assert kept or name in OTHER_NAMES
        spread = [tensor for place, tensor in state.items() if place == f"beside/{FIRST[1]}"]
        assert all((tensor == 0).all() for tensor in spread)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [None, 8])
@pytest.mark.parametrize("name", [name for name in SINGLE if not METHODS[name].Config.needs_images])
def test_a_head_learns_under_every_likelihood_of_the_method(name, hidden):
    """And the restored posterior predicts the same bits. SGLD wants its steps ten times as long as the others."""
    cpu = torch.device("cpu")
    words = [f"method.name={name}", f"optimizer.lr={0.2 if name == 'sgld' else 0.02}", "optimizer.epochs=30",
             "optimizer.batch_size=20", "optimizer.warmup=0", "optimizer.reweight=none",
             "optimizer.select=last"]  # fmt: skip
    run = load_run(None, words, data="d")
    for likelihood in (Bernoulli(), Categorical(3), Gaussian(floor=0.3), MultiLabel(3)):
        if likelihood.name not in run.method.supported():
            continue
        inputs, targets = easy_points(likelihood.name)
        heads = [Head(3, likelihood.outputs, hidden) for _ in range(2)]
        for head in heads:
            initialise(head, torch_generator(cpu, 0, "weights"))
        batches = array_batches(inputs.numpy(), targets.numpy(), 20, 0, cpu)
        trained = METHODS[name].fit(heads[0], batches, run, Checkpoint(), likelihood)
        restored = METHODS[name].build(heads[1], run, likelihood)
        restored.restore(trained.state())
        with torch.no_grad():
            one, two = (each.predict(inputs, 8, torch.Generator().manual_seed(1)) for each in (trained, restored))
        assert torch.equal(one, two)
        error, constant = errors_of(likelihood.name, one.mean(dim=0), targets)
        assert error < 0.85 * constant, likelihood.name


def test_the_page_of_methods_names_every_method_that_does_not_work_with_every_trunk():
    configs = {name: METHODS[name].Config for name in OWN if not is_composed(METHODS[name])}
    found = {"the images": [name for name, config in configs.items() if config.needs_images]}
    found["its trunk"] = [name for name, config in configs.items() if config.keeps_trunk]
    found["their members"] = sorted(name for name in OWN if is_composed(METHODS[name]))
    listed = {line for line in PAGE.read_text().splitlines() if line.startswith("- `")}
    for what, names in found.items():
        (line,) = (line for line in listed if what in line)
        assert re.findall(r"`(\w+)`", line) == names
    assert len(listed) == len(found)
