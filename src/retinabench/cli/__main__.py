"""`python -m retinabench.cli`, which torchrun starts in every process: the same as `retinabench`."""

from retinabench.cli import main

if __name__ == "__main__":
    main()
