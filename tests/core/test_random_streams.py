import pytest

from retinabench.core.random_streams import torch_generator
from retinabench.core.seeds import derive


def test_a_torch_stream_is_seeded_in_the_same_way():
    torch = pytest.importorskip("torch")
    drawn = torch.rand(3, generator=torch_generator("cpu", 5, "x"))
    expected = torch.rand(3, generator=torch.Generator("cpu").manual_seed(derive(5, "x")))
    assert torch.equal(drawn, expected)
