"""Questioning a classifier concept by concept: the concept-centric visual Turing test (NumPy and SciPy; torch only in
`trained_answers.py`)::

    from retinabench.concepts.banks.tables import read_bank
    from retinabench.concepts.examinees import read_answers
    from retinabench.concepts.questioning.examination import examine

    bank = read_bank("truth.csv")                                  # image_id, one 0/1 column per concept
    found = examine(bank, read_answers("answers.csv", bank), questions=200, claim="sensitivity of haemorrhage >= 0.85")
    found["haemorrhage"].sensitivity.value
    found.to_dict()

A *question* is a pair (sample, concept): "is there a haemorrhage in this image?". A *cell* is a concept and a truth: all
positive samples of haemorrhage are one cell, all negative ones another. An *examinee* is any callable
`answer(sample_index: int, concept: str) -> float`, P(yes), or a table of such probabilities (`Answers`).

`Examination.to_dict()`:

    {"schema": "retinabench.examination/2", "strategy", "seed", "reading", "rules", "asked": n,
     "stopped": "questions" | "tolerance" | "patience" | "claims" | "no sample left" | "none admissible" | "all asked",
     "cut": {name: number}, "intervals": "sequence" | "fixed", "nonce": text or None, "transcript": SHA-256 or None,
     "bank": {"hash", "samples", "concepts": [names], "positives": {name: n}, "negatives": {name: n}, "unknown": {name: n}},
     "concepts": {name: {
         "counts": {"tn", "fp", "fn", "tp"}, "bins": [100 counts],
         "answers": {"without": [P(yes) of every question about a sample without it], "with": the same},
         "gp": {"grid": [101], "mean": [101], "sd": [101], "u_minus", "u_plus", "kernel": {"signal", "noise", "length"}},
         "sensitivity": {"value", "low", "high", "asked", "of", "new": {"low", "high"}, "simultaneous": {"low", "high"}},
         "specificity": the same,
         "accuracy": {"value", "low", "high"},
         "auroc": {"value", "low", "high", "pairs": n}}},
     "progress": {"questions": [0, 1, …, n], "uncertainty": [mean over concepts and signs after so many questions]},
     "claims": [{"text", "concept", "measure", "scope", "goal", "confidence", "together": n, "registered": bool,
                 "decided": "holds" | "fails" | "undecided", None if not registered, "after": n or None, "asked", "of"}],
     "error_control": {"alpha": 0.05, "rates": n},
     "companion_valid": bool, "notes": [sentences]}

A value is the share of correct answers; low and high are a confidence sequence for this bank, `new` one for new samples, and
`simultaneous` one that holds together with those of all other rates. Where patients have several samples in a cell, its rate has
"patients": {"right", "asked", "of"}, which is what its intervals for new samples count (`inference/rates.py`). The verb `examine` adds "goals": {concept: {measure: rate}}, as
`--goal` states them, "findings": [{"concept", "measure", "goal", "finding": "met" | "missed"}], and to `bank` the pairs of concepts that
come "together": [{"concepts": [2 names], "both": n, "one": n}]. Where a cell is empty (no positive in the bank), value, low and
high of its rate are None and "why" says so; where it was not asked, value is None and the interval is [0, 1].

Several readers add "readers": {"truth", "names", "concepts": {name: {"disputed", "against", "range", "beside": {measure: {"images",
"readers", "model", "mean_reader", "model_minus_mean", "p_value"}}}}}; `beside` judges each by the majority of the other readers.

Source of the method: Fountoukidou and Sznitman, Concept-Centric Visual Turing Tests for Method Validation, MICCAI 2019.
"""
