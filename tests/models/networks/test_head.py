import torch

from retinabench.models.networks.head import Head
from retinabench.models.stochastic.dropout import Dropout, add_dropout


def test_a_head_is_linear_or_has_one_hidden_layer():
    x = torch.randn(5, 3)
    linear, hidden = Head(3, 2), Head(3, 2, hidden=4)
    assert torch.equal(linear(x), linear.fc(x))
    assert torch.equal(hidden(x), hidden.fc(torch.relu(hidden.hidden(x))))
    assert hidden.features(x).shape == (5, 4)


def test_dropout_acts_on_the_features_and_on_the_hidden_layer():
    for head, sites in ((Head(3, 1), 1), (Head(3, 1, hidden=4), 2)):
        add_dropout(head, 0.5)
        assert sum(isinstance(module, Dropout) for module in head.modules()) == sites
