"""NUTS of NumPyro on a target of the fidelity benchmark, submitted: pip install numpyro, then run this file."""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer import MCMC, NUTS

import retinabench as rb

problem = rb.fidelity.problem("idrid-head")
sampler = NUTS(potential_fn=lambda w: -problem.log_density(w, jnp))
chains = MCMC(sampler, num_warmup=500, num_samples=1000, progress_bar=False)
first, sampling = jax.random.split(jax.random.key(0))
start = jnp.sqrt(problem.prior_variance) * jax.random.normal(first, (problem.dimension,))
chains.warmup(sampling, init_params=start, extra_fields=("num_steps",), collect_warmup=True)
steps = int(np.sum(chains.get_extra_fields()["num_steps"]))
chains.run(sampling, extra_fields=("num_steps",))
steps += int(np.sum(chains.get_extra_fields()["num_steps"]))
print(problem.submit(np.asarray(chains.get_samples()), gradients=steps, method="NumPyro NUTS"))
