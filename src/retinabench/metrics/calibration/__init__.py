"""How far probabilities are from risks: binned and debiased errors, null bands, the calibration line and its correction."""
