"""The UCI regression comparison of the 2019 paper (Table 2): MC dropout, mean-field VI and deep ensembles.

`sets.py`: the nine sets and their random splits; `folds.py`: training rows, rows to judge on, and their standardisation;
`networks.py`: many small networks trained at once; `dropout.py`, `variational.py`, `ensemble.py`: one method each;
`likelihood.py`: what is measured; `comparison.py`: every set by every method, resumable; `published.py`: the printed
values; `tables.py`, `figure.py`: both side by side.
"""
