"""Files of references and boards; `retinabench.fidelity` finds them."""
