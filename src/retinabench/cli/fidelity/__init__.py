"""The verbs of `retinabench fidelity`."""
