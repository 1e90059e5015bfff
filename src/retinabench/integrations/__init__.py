"""Other libraries: trackers of experiments (TensorBoard, Weights & Biases, MLflow), and hooks into PyTorch trainings."""
