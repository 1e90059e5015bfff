"""From a configuration to predictions; searches and studies over many runs."""
