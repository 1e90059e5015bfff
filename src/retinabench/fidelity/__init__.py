"""Closeness of approximate posteriors to the true one; `problem` is its interface for samplers of any framework."""

from retinabench.fidelity.problems import Problem, problem

__all__ = ["Problem", "problem"]
