"""`retinabench track`: what run folders hold, shown in TensorBoard or Weights & Biases.

An exporter reads finished and unfinished run folders; training knows nothing of it. `record.py`: what a folder says;
`event_files.py`, `weights_and_biases.py`: one tracker each; `export.py`: the command.
"""
