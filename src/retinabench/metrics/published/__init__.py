"""The released Retina Benchmark protocol, faults included."""
