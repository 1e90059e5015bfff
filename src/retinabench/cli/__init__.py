"""The command line: one module per group of verbs, which holds arguments and nothing else."""
