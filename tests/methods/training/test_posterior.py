"""States of posteriors, and the streams from which they draw."""

import hashlib

import torch
from torch import nn

from retinabench.experiments.config import load_run
from retinabench.methods.training.posterior import (
    fingerprint,
    network_state,
    precision,
    restore_with,
    rewound,
    sample_seeds,
    state_with,
)


def test_the_fingerprint_is_the_stated_hash_whatever_the_order():
    digest = hashlib.sha256()
    for name, tensor in (("a", torch.ones(2)), ("b", torch.zeros(1, dtype=torch.int64))):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.numpy().tobytes())
    state = {"b": torch.zeros(1, dtype=torch.int64), "a": torch.ones(2)}
    assert fingerprint(state) == digest.hexdigest()[:16]
    assert fingerprint({**state, "a": torch.ones(2, 1)}) != fingerprint(state)


def test_a_rewound_generator_starts_anew_and_leaves_the_other_where_it_is():
    generator = torch.Generator().manual_seed(4)
    first = torch.rand(3, generator=generator)
    before = generator.get_state()
    assert torch.equal(torch.rand(3, generator=rewound(generator)), first)
    assert torch.equal(generator.get_state(), before)


def test_seeds_of_samples_are_drawn_from_the_position():
    one, two = (torch.Generator().manual_seed(4) for _ in range(2))
    assert sample_seeds(3, one) == sample_seeds(3, two)
    assert sample_seeds(3, one) != sample_seeds(3, rewound(one))
    assert all(0 <= seed < 2**63 for seed in sample_seeds(5, one))


def test_tensors_beside_a_network_are_kept_apart_from_its_own():
    model, beside = nn.BatchNorm1d(2), {"weight": torch.full((2,), 7.0)}
    state = state_with(model, beside)
    assert set(state) == {*network_state(model), "beside/weight"}
    other = nn.BatchNorm1d(2)
    other.weight.data.fill_(3.0)
    found = restore_with(other, state)
    assert torch.equal(found["weight"], beside["weight"])
    assert torch.equal(other.weight, model.weight)


def test_the_precision_is_that_of_the_run():
    for name, kind in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        run = load_run(None, [f"optimizer.precision={name}"], data="d")
        with precision(run, torch.device("cpu")):
            assert nn.Linear(2, 2)(torch.zeros(1, 2)).dtype == kind
