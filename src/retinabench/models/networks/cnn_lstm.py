"""The convolutional LSTM for IMDB reviews of Izmailov et al. 2021: 2,700,098 weights at 2 outputs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import max_pool1d

from retinabench.models.registry import takes

WORDS, EMBEDDED, FILTERS, KERNEL, POOL, CELLS = 20_000, 128, 64, 5, 4, 128


class Embedding(nn.Module):
    """A vector for every word."""

    def __init__(self, words: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(words, size))

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) -> (B, T, size)."""
        return self.weight[tokens]

    def initialise(self, generator: torch.Generator) -> None:
        """Unit normal."""
        self.weight.normal_(0, 1, generator=generator)


class LSTM(nn.Module):
    """One layer with one bias per gate; the forget gate's argument is raised by 1 (Jozefowicz et al. 2015), as in Haiku.

    PyTorch's own has two biases per gate, which would be another prior.
    """

    def __init__(self, inputs: int, cells: int) -> None:
        super().__init__()
        self.cells = cells
        self.gates = nn.Linear(inputs + cells, 4 * cells)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, inputs) -> the last hidden state (B, cells)."""
        hidden = x.new_zeros(len(x), self.cells)
        cell = hidden
        for step in x.unbind(dim=1):
            given, new, forget, shown = self.gates(torch.cat([step, hidden], dim=1)).chunk(4, dim=1)
            cell = (forget + 1).sigmoid() * cell + given.sigmoid() * new.tanh()
            hidden = shown.sigmoid() * cell.tanh()
        return hidden


class CnnLstm(nn.Module):
    """Embedding, one convolution over the words, pooling, LSTM, one linear layer."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.embedding = Embedding(WORDS, EMBEDDED)
        self.conv, self.act = nn.Conv1d(EMBEDDED, FILTERS, KERNEL), nn.ReLU()
        self.lstm = LSTM(FILTERS, CELLS)
        self.fc = nn.Linear(CELLS, outputs)

    def features(self, tokens: Tensor) -> Tensor:
        """(B, T) word numbers -> (B, 128), the input of the last layer."""
        x = self.act(self.conv(self.embedding(tokens).transpose(1, 2)))
        features: Tensor = self.lstm(max_pool1d(x, POOL).transpose(1, 2))
        return features

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) word numbers -> logits (B, outputs)."""
        logits: Tensor = self.fc(self.features(tokens))
        return logits


@takes("tokens")
def cnn_lstm(*, outputs: int = 2) -> CnnLstm:
    """For 20,000 words; 2,700,098 weights with 2 outputs."""
    return CnnLstm(outputs)
