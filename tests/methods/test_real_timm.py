"""Every surgery on real networks of timm, small and with random weights. CI installs timm; elsewhere these tests are skipped."""

import warnings

import pytest
import torch

from retinabench.data.loader import array_batches
from retinabench.experiments.config import load_run
from retinabench.methods.registry import METHODS
from retinabench.methods.training.checkpoint import Checkpoint
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.build import build_model
from support.real_timm import real_timm

NETWORKS = {
    "resnet50": {"layers": (1, 1, 1, 1)},
    "convnext_tiny": {"depths": (1, 1, 1, 1), "dims": (16, 24, 32, 48)},
    "vit_tiny_patch16_224": {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 3},
    "efficientnet_b0": {},
    "swin_tiny_patch4_window7_224": {"img_size": 32, "window_size": 4, "embed_dim": 24, "depths": (1, 1), "num_heads": (2, 4)},
    "coatnet_rmlp_nano_rw_224": {"img_size": 64},
}  # fmt: skip
SURGERIES = {
    "mfvi": {"samples": 3},
    "rank1": {},
    "dropout": {"rate": 0.3, "samples": 3},
    "batch_ensemble": {"members": 2},
    "lora_ensemble": {"members": 2, "rank": 2},
    "sngp": {},
}  # fmt: skip


@pytest.fixture(params=NETWORKS)
def network(request, monkeypatch):
    """A setting `model` of a network that timm makes small, and the side of its images."""
    timm, small = real_timm(), NETWORKS[request.param]
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, **given: create(name, **given, **small))
    return request.param, small.get("img_size", 32)


@pytest.mark.parametrize("method", SURGERIES)
def test_a_surgery_trains_and_predicts(method, network):
    name, size = network
    settings = [f"method.{key}={value}" for key, value in SURGERIES[method].items()]
    optimizer = {"epochs": 1, "warmup": 0, "select": "last", "batch_size": 4, "augment": "none"}
    settings += [f"optimizer.{key}={value}" for key, value in optimizer.items()]
    run = load_run(None, [f"model.name=timm:{name}", f"method.name={method}", *settings], data="x")
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(8, 3, size, size, generator=generator)
    batches = array_batches(images.numpy(), (torch.arange(8) % 2).float().numpy(), 4, 0, torch.device("cpu"))
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", UserWarning)
        posterior = METHODS[method].fit(build_model(run.model, 0), batches, run, Checkpoint(), Bernoulli())
    for one in left:  # parameters of the network itself, such as the embedding of positions
        assert "(" not in str(one.message), one.message
    idle = [key for key, p in posterior.model.named_parameters() if p.requires_grad and p.grad is None]
    assert not idle
    probabilities = posterior.predict(images, 3, torch.Generator().manual_seed(0))
    torch.testing.assert_close(probabilities.sum(dim=-1), torch.ones(len(probabilities), 8))
    assert len(probabilities) > 1 or method == "sngp"
    if len(probabilities) > 1:
        assert probabilities[..., 1].std(dim=0).max() > 1e-8  # of random networks, some of which saturate
