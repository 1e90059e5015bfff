"""NUTS of BlackJAX on a target of the fidelity benchmark, submitted: pip install blackjax, then run this file."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

import retinabench as rb

problem = rb.fidelity.problem("idrid-head")


def log_density(w):
    return problem.log_density(w, jnp)


first, adaptation, sampling = jax.random.split(jax.random.key(0), 3)
start = jnp.sqrt(problem.prior_variance) * jax.random.normal(first, (problem.dimension,))
warmup = blackjax.window_adaptation(blackjax.nuts, log_density)
(state, settings), adapted = warmup.run(adaptation, start, num_steps=500)
kernel = jax.jit(blackjax.nuts(log_density, **settings).step)
draws, steps = [], int(np.sum(adapted.info.num_integration_steps))
for key in jax.random.split(sampling, 1000):
    state, info = kernel(key, state)
    draws.append(state.position)
    steps += int(info.num_integration_steps)
print(problem.submit(np.stack(draws), gradients=steps, method="BlackJAX NUTS"))
