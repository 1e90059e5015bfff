"""A reference without a sampler: chains of chosen probabilities or draws, as `fidelity/reference.py` gives them."""

from dataclasses import dataclass, field

import numpy as np

from retinabench.fidelity.distances import epistemic
from retinabench.fidelity.reference.reference_file import Judgement, ReferenceAbout


@dataclass(frozen=True, eq=False)
class FakeReference:
    chain_probs: np.ndarray | None = None
    samples: np.ndarray | None = None
    chain_draws: np.ndarray | None = None
    mcse: np.ndarray | None = None
    epistemic: np.ndarray | None = None
    states: np.ndarray | None = None
    passed: bool = True
    why: list = field(default_factory=list)

    external = False
    about = ReferenceAbout(task="", target="", data="", chains=4)

    @property
    def judgement(self):
        return Judgement(tuple(self.why))

    @property
    def chains(self):
        return len(self.chain_draws if self.chain_probs is None else self.chain_probs)

    @property
    def probs(self):
        return self.chain_probs.mean(axis=0)

    @property
    def draws(self):
        return np.concatenate(list(self.chain_draws), axis=1)


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def classified(points, classes, seed=0, chains=4, samples=40, spread=0.7, **more):
    """K chains of samples around the same logits."""
    random = np.random.default_rng(seed)
    logits = 2 * random.normal(size=(points, classes))
    drawn = softmax(logits + spread * random.normal(size=(samples, points, classes)))
    per_chain = drawn.reshape(chains, -1, points, classes).mean(axis=1)
    values = {"mcse": np.full((points, classes), 0.01), "epistemic": epistemic(drawn)}
    return FakeReference(per_chain, drawn, **values, **more)


def regressed(points, seed=0, chains=4, draws=500, **more):
    """K chains of draws of y around a mean and a deviation of each point."""
    random = np.random.default_rng(seed)
    mean, deviation = random.normal(size=points), 0.2 + random.random(points)
    drawn = mean[:, None] + deviation[:, None] * random.normal(size=(chains, points, draws))
    return FakeReference(chain_draws=drawn.astype(np.float32), epistemic=np.full(points, 0.1), **more)
