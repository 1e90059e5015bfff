"""How many patients a study needs: precision and power of sensitivity, specificity, AUROC, calibration and net benefit."""
