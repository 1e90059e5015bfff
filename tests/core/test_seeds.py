"""Seeds of named streams, against the hash that defines them."""

import hashlib

import numpy as np
import pytest

from retinabench.core.random_streams import torch_generator
from retinabench.core.seeds import derive, numpy_generator


def test_the_seed_of_a_stream_is_the_stated_hash():
    digest = hashlib.sha256(b"7/order/3").digest()
    assert derive(7, "order", 3) == int.from_bytes(digest[:8], "big") // 2
    assert 0 <= derive(7, "order", 3) < 2**63


def test_streams_depend_on_seed_and_name_alone():
    draws = [numpy_generator(0, "a").random(3)]
    np.random.default_rng().random()
    draws += [numpy_generator(*name).random(3) for name in ((0, "a"), (1, "a"), (0, "b"), (0, "a", 1))]
    assert np.array_equal(draws[0], draws[1])
    assert len({draw.tobytes() for draw in draws}) == 4


def test_a_torch_stream_is_seeded_in_the_same_way():
    torch = pytest.importorskip("torch")
    drawn = torch.rand(3, generator=torch_generator("cpu", 5, "x"))
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator("cpu").manual_seed(derive(5, "x"))))
