"""Run folders shown in TensorBoard or Weights & Biases."""
