"""Untrusted input: names of files, text that we write again, and the limits of what is read.

| limits of | |
|---|---|
| a predictions file, or one table of a bank | 20,000,000 rows, 400,000,000 values, 3.2 GB of numbers, 4.3 GB of one column of text, 1,000 characters of \
an id, 2 GiB of CSV, 20,000 columns |
| further columns | the first 100, 200 characters a cell, 1 GiB together |
| a Parquet file | a footer of 32 MiB; no text in the encoding DELTA_BYTE_ARRAY |
| an NPZ file | stored or deflated members, as large as their headers say |
| a PyTorch archive | not compressed; dense tensors no larger than their storage; together at most four times the file |
| a safetensors file | a header of 16 MiB |
| an image | 100 megapixels, known before decoding; a file of 256 MiB |
| an archive | members of 256 MiB; three levels; compressed archives inside it 512 MiB together |
| a prepared folder | images of 4,096 pixels a side, of the shape that its manifest states |
| a study | 100,000 trials, 1,000 seeds, 10,000 ensembles of a method, 1,000,000 replicates and drawn images |
| a run; a report; a board; `track` | 100,000 samples; 2,000 files; 10,000 submissions; 10,000 runs |
| a download | 4 GiB |
"""
