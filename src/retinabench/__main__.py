"""`python -m retinabench`, which torchrun starts in every process: the same as the command `retinabench`."""

from retinabench.cli.main import main

if __name__ == "__main__":
    main()
