import torch

from retinabench.models.networks.cnn_lstm import LSTM


def test_the_lstm_is_that_of_its_equations():
    """Against PyTorch's LSTM, whose gates are ordered i, f, g, o, with the second bias 0 and the forget bias raised."""
    generator = torch.Generator().manual_seed(3)
    own, oracle = LSTM(5, 4).double(), torch.nn.LSTM(5, 4, batch_first=True).double()
    x = torch.randn(3, 7, 5, generator=generator, dtype=torch.float64)
    weight, bias = own.gates.weight.detach(), own.gates.bias.detach()
    given, new, forget, shown = weight.chunk(4)
    raised = [bias.chunk(4)[k] + (1.0 if k == 2 else 0.0) for k in (0, 2, 1, 3)]
    ordered = torch.cat([given, forget, new, shown])
    oracle.load_state_dict(
        {
            "weight_ih_l0": ordered[:, :5],
            "weight_hh_l0": ordered[:, 5:],
            "bias_ih_l0": torch.cat(raised),
            "bias_hh_l0": torch.zeros(16, dtype=torch.float64),
        }
    )
    torch.testing.assert_close(own(x), oracle(x)[0][:, -1])
