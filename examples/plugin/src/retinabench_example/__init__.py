"""A method and a data set for retinabench, as a package of their own."""
