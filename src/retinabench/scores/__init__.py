"""Scores of anyone's predictions: NumPy and SciPy only, every one a pure function of weighted images.

Read in this order: `uncertainty` (what orders the referral), `cases` (images sorted once, weighted often), `referral`
(curves; `pairs` and `precision` make AUROC and AUPRC exact at every count), `classification`, `calibration`,
`recalibration`, `summaries`, `shift`, `seeds`; `table` names them, `sets` and `evaluation` apply them to a file.
`published…` is the released Retina Benchmark, faults included. `intervals` and what follows from them (`compare`,
`clinic`, `transfer`, …) stand on these.
"""
