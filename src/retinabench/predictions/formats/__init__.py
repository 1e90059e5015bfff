"""The predictions file as CSV, Parquet and NPZ."""
