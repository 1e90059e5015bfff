"""Fidelity: how close an approximate posterior comes to the true one, as Hamiltonian Monte Carlo finds it."""
