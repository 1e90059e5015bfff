"""HMC against posteriors that others know: NUTS on a logistic regression, simulation-based calibration.

`python tests/methods/mcmc/test_hmc_posteriors.py` prints the table of NUTS anew; it needs numpyro, which nothing else here does.
"""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from retinabench.fidelity.reference.diagnostics import mcse, rank_rhat
from retinabench.methods.mcmc import hmc

POINTS, PRIOR = 60, 1.5
# Mean and deviation of the three weights: NUTS of numpyro 0.22.0, float64, 4 chains of 25,000 draws after 1,000.
NUTS_MEAN = (1.0960, -0.5958, 0.4135)
NUTS_DEVIATION = (0.3473, 0.2203, 0.3229)
NUTS_ERROR = 0.0013  # Monte Carlo standard error of each mean and deviation, at most


def problem():
    """(60, 3) inputs, the last one constant, and labels."""
    random = np.random.default_rng(17)
    inputs = np.column_stack([random.normal(size=(POINTS, 2)) * [1.0, 2.0], np.ones(POINTS)])
    chance = 1 / (1 + np.exp(-inputs @ [1.2, -0.7, 0.4]))
    return inputs, (random.random(POINTS) < chance).astype(float)


def logistic(inputs, labels):
    """The log-likelihood of (K, P) weights, for shared (N, P) inputs and labels (N,) or (K, N)."""
    x, y = torch.from_numpy(inputs), torch.from_numpy(labels)

    def log_likelihood(weights):
        logits = weights @ x.T
        value = (y * logits - torch.nn.functional.softplus(logits)).sum(dim=1)
        return value, (y - logits.sigmoid()) @ x

    return log_likelihood


def run(log_likelihood, chains, parameters, prior, step, steps, burn_in, keep, seed):
    generator = torch.Generator().manual_seed(seed)
    state = hmc.start(log_likelihood, torch.zeros(chains, parameters, dtype=torch.float64))
    found = []
    for number in range(burn_in + keep):
        state, _ = hmc.transition(
            log_likelihood, state, prior_variance=prior, step=step, steps=steps, generator=generator
        )  # fmt: skip
        if number >= burn_in:
            found.append(state.weights)
    return torch.stack(found, dim=1).numpy()


def test_a_logistic_regression_has_the_moments_that_nuts_finds():
    # Not the quarter period of the prior, by which this near-Gaussian posterior would come back to where it was.
    draws = run(logistic(*problem()), 20, 3, PRIOR, 0.12, 4, 30, 500, seed=1)
    assert (rank_rhat(draws) < 1.02).all()
    error = np.hypot(mcse(draws), NUTS_ERROR)
    assert (np.abs(draws.mean(axis=(0, 1)) - NUTS_MEAN) < 4 * error).all()
    # The second moment about NUTS's mean, whose own error is 2 s times that of a deviation.
    squares = (draws - NUTS_MEAN) ** 2
    error = np.hypot(mcse(squares), 2 * np.array(NUTS_DEVIATION) * NUTS_ERROR)
    assert (np.abs(squares.mean(axis=(0, 1)) - np.square(NUTS_DEVIATION)) < 4 * error).all()


@pytest.mark.parametrize("refused", [False, True])
def test_ranks_of_the_truth_among_posterior_draws_are_uniform(refused):
    # Simulation-based calibration (Talts et al. 2018): truth from the prior, data from the truth, one chain each. With
    # independent draws the rank is uniform. The larger step is refused often: repeats must be counted for this to hold.
    chains, draws, thin, bins = 600, 19, 8, 10
    random = np.random.default_rng(23)
    truth = random.normal(0, np.sqrt(PRIOR), (chains, 2))
    inputs = random.normal(size=(25, 2))
    labels = (random.random((chains, 25)) < 1 / (1 + np.exp(-truth @ inputs.T))).astype(float)
    step, steps = (0.95, 3) if refused else (0.3, 7)
    found = run(logistic(inputs, labels), chains, 2, PRIOR, step, steps, 40, draws * thin, seed=5)[
        :, thin - 1 :: thin
    ]
    for value in (found[:, :, 0] - truth[:, None, 0], found[:, :, 1] - truth[:, None, 1],
                  found.sum(axis=2) - truth.sum(axis=1)[:, None]):  # fmt: skip
        ranks = (value < 0).sum(axis=1)  # 0 to 19
        counts = np.bincount(ranks * bins // (draws + 1), minlength=bins)
        # Chi-square with 9 degrees of freedom on 600 ranks; each of the six tests fails by chance once in 1,000 seeds.
        assert chisquare(counts).pvalue > 0.001, counts


if __name__ == "__main__":
    import jax
    import numpyro

    jax.config.update("jax_enable_x64", True)
    inputs, labels = problem()

    def model():
        """The same density in numpyro's words."""
        w = numpyro.sample("w", numpyro.distributions.Normal(np.zeros(3), np.sqrt(PRIOR)).to_event(1))
        numpyro.sample("y", numpyro.distributions.Bernoulli(logits=inputs @ w), obs=labels)

    sampler = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model),
        num_warmup=1000,
        num_samples=25_000,
        num_chains=4,
        chain_method="vectorized",
    )
    sampler.run(jax.random.PRNGKey(0))
    w = np.asarray(sampler.get_samples(group_by_chain=True)["w"])
    print("mean", w.mean(axis=(0, 1)), "±", mcse(w))
    print("deviation", w.std(axis=(0, 1)), "±", mcse((w - w.mean(axis=(0, 1))) ** 2) / 2 / w.std(axis=(0, 1)))
