"""One module per data set; its docstring is the data card."""
