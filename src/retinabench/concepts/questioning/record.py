"""What was asked and answered, question by question."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from retinabench.concepts.inference.gaussian_process import says_yes


@dataclass
class Record:
    """The questions in their order; item i of every list belongs to question i + 1."""

    sample: list[int] = field(default_factory=list)
    concept: list[int] = field(default_factory=list)
    truth: list[int] = field(default_factory=list)
    prob: list[float] = field(default_factory=list)

    def add(self, sample: int, concept: int, truth: int, prob: float) -> bool:
        """Add a question with its answer."""
        for values, value in ((self.sample, sample), (self.concept, concept), (self.truth, truth)):
            values.append(value)
        self.prob.append(prob)
        return says_yes(prob) == bool(truth)

    def about(self, concept: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Return sample, truth and answer of the questions about a concept, (q,) each."""
        mine = np.asarray(self.concept, np.int64) == concept
        sample, truth = (np.asarray(values, np.int64)[mine] for values in (self.sample, self.truth))
        return sample, truth, np.asarray(self.prob, np.float64)[mine]

    def answers(self, concept: int) -> dict[str, list[float]]:
        """Return P(yes) about the samples ``without`` a concept and about those ``with`` it."""
        _, truth, prob = self.about(concept)
        return {"without": prob[truth == 0].tolist(), "with": prob[truth == 1].tolist()}
