"""The UCI regression comparison of Filos et al. (2019), Table 2."""
