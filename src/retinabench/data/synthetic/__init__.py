"""Synthetic fundus images with known truth: the data card.

**What it is.** A procedural camera: image `index` of a population depends on (seed, index, size) alone,
and has the same content at every size. Images 2k and 2k + 1 are the left and right eye of patient k.

**Populations.** `in_domain` has the grade mix of EyePACS and a good table-top camera with the colours of
IDRiD; `shifted` has the grade mix of APTOS and a park of lesser cameras (`camera.py`). The eyes themselves,
and the reader who reports their grades, are the same in both: the shift is one of camera and of prevalence.

**Truth.** Lesion counts by the international clinical severity scale with a mask each, camera settings, the
true grade, a grade reported by a fallible reader (`CONFUSION`), and so the true probability of the label
referable. The error and the log-likelihood that no model can beat follow from `CONFUSION` and `GRADE_MIX`.

**Not modelled.** Other eye diseases, treatment scars, age, ethnicity beyond pigment, ungradable images,
readers who err more on bad images. Lesion shapes and frequencies are plausible, not fitted to patients: a
score on these images does not show how a model would do in a clinic.

**Reproducibility.** NumPy only, every number from a generator keyed by what it belongs to. Between processor
types the linear algebra may round differently, which can move a pixel by one grey level.
"""
