"""The scores of every set, in the order of files and tables."""

CONTRACT = [
    "accuracy", "auroc", "auprc", "nll", "brier", "ece_top_label", "ece_positive_class", "sensitivity", "specificity",
    "referral_accuracy_area", "referral_nll_area", "referral_auroc_area", "referral_auprc_area", "rc_index", "aurc",
    "e_aurc", "augrc", "failure_auroc", "prr",
]  # fmt: skip
