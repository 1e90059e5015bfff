"""The clinic's page: what a model's referral misses, costs and spares, and for whom it fails."""
