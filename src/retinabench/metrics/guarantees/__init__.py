"""Referral thresholds with finite-sample guarantees, what they do on new patients, and whether they still hold there."""
