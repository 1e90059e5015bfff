"""Hamiltonian Monte Carlo references."""
