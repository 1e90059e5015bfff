"""Structure-aware fuzzing: inputs of every reader, and a second, plain reading of each that is accepted."""
