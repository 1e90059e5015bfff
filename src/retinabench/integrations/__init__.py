"""Export of run folders to TensorBoard and Weights & Biases."""
