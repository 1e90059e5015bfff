"""Log-likelihoods whose gradient is known in closed form, for the samplers."""
