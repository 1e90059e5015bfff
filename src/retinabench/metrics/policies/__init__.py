"""Other thresholds of decision and referral than the frozen ones, for exploration."""
