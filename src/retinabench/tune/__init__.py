"""Many runs: searched, computed on one machine or a Ray cluster, ranked."""
