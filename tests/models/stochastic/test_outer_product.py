"""W_k = W ∘ (s_k r_kᵀ): a row with factors of its own equals a layer of the multiplied weight, of every kind."""

import pytest
import torch
from torch import nn

from retinabench.models.stochastic.drawing import Draw, use_draws
from retinabench.models.stochastic.outer_product import OuterProduct


class Fixed(OuterProduct):
    """Factors that are parameters."""

    def __init__(self, layer, pairs):
        super().__init__(layer, pairs)
        outputs, groups = layer.weight.shape[0], getattr(layer, "groups", 1)
        self.into = nn.Parameter(torch.randn(pairs, layer.weight.shape[1] * groups))
        self.out = nn.Parameter(torch.randn(pairs, outputs))
        self.bias = nn.Parameter(torch.randn(pairs, outputs))

    def factors(self, chosen, draw):
        return self.into[chosen], self.out[chosen]

    def biases(self, chosen):
        return self.bias[chosen]


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (lambda: nn.Linear(4, 3), (4,)),
        (lambda: nn.Conv2d(4, 6, 3, padding=1), (4, 5, 5)),
        (lambda: nn.Conv2d(4, 6, 3, groups=2), (4, 5, 5)),
    ],
)
def test_training_and_evaluation_are_the_multiplied_weight(layer, shape):
    torch.manual_seed(0)
    found = Fixed(layer(), 3)
    x = torch.randn(6, *shape)
    use_draws(found, [Draw(torch.Generator())])
    trained = found.train()(x)  # row n has the pair n mod 3
    found.eval()
    for number in range(3):
        use_draws(found, [Draw(torch.Generator(), number)])
        whole = found(x)
        torch.testing.assert_close(whole[number::3], trained[number::3], rtol=1e-4, atol=1e-5)
    if shape == (4,):
        weight = found.weight * torch.outer(found.out[2], found.into[2])
        torch.testing.assert_close(whole, x @ weight.T + found.bias[2])
