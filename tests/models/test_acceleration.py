"""What is set for a GPU, seen without one: the settings are PyTorch's, and are there on every machine."""

import pytest
import torch
from torch import nn

from retinabench.core.errors import InputError
from retinabench.experiments.config import load_run
from retinabench.experiments.resources import Resources
from retinabench.methods import dropout
from retinabench.methods.training import optimizers
from retinabench.methods.training.likelihood import Bernoulli
from retinabench.models.acceleration import compile_network, set_arithmetic
from retinabench.models.build import build_model

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture(autouse=True)
def as_before():
    kept = (
        torch.backends.cudnn.benchmark,
        torch.backends.cudnn.allow_tf32,
        torch.backends.cuda.matmul.allow_tf32,
    )
    yield
    torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = (
        kept
    )


def test_tf32_is_used_where_it_is_asked_for_and_nowhere_else():
    for precision in ("float32", "tf32", "bfloat16"):
        set_arithmetic(precision, GPU)
        asked = precision == "tf32"
        assert torch.backends.cudnn.allow_tf32 is asked
        assert torch.backends.cuda.matmul.allow_tf32 is asked
        assert torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    set_arithmetic("tf32", CPU)
    assert not torch.backends.cudnn.benchmark


def test_a_network_is_compiled_unless_its_layers_draw(monkeypatch):
    compiled = []
    monkeypatch.setattr(nn.Module, "compile", lambda model: compiled.append(model))
    run = load_run(None, ["model.name=lenet", "method=dropout"], data="none")
    plain = build_model(run.model, 0)
    compile_network(plain, fall_back=False)
    assert compiled == [plain]
    compile_network(dropout.build(plain, run, Bernoulli()).model, fall_back=True)
    assert compiled == [plain]


def test_a_step_is_one_kernel_on_a_gpu_only(monkeypatch):
    config = load_run(None, ["optimizer.name=adam"], data="none").optimizer
    assert optimizers.make_optimizer(nn.Linear(2, 1), config).defaults["fused"] is None
    made = {}
    monkeypatch.setattr(torch.optim, "Adam", lambda groups, **options: made.update(options))
    with torch.device("meta"):
        network = nn.Linear(2, 1)
    monkeypatch.setattr(nn.Parameter, "device", GPU, raising=False)
    optimizers.make_optimizer(network, config)
    assert made["fused"] is True


def test_a_precision_that_nothing_names_is_that_of_the_device(monkeypatch):
    assert Resources("cpu").precision() is None
    assert load_run(None, [], "bfloat16", data="none").optimizer.precision == "bfloat16"
    named = load_run(None, ["optimizer.precision=float32"], "bfloat16", data="none")
    assert named == load_run(None, [], data="none")


def test_two_cards_asked_for_and_one_there_is_one_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        InputError, match=r"no device 'cuda:1' here\. Valid: auto, cpu, cuda, cuda:N; this machine has 1 GPU"
    ):
        Resources("cuda:1").torch_device()
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    with pytest.raises(
        InputError,
        match=r"no device 'cuda:1' here\. Give torchrun --nproc-per-node 1: this machine has 1 GPU",
    ):
        Resources().torch_device()
