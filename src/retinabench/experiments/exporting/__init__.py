"""Models that leave the machine they were trained on: export, prediction of raw images, attached thresholds."""
