"""Write the extracts of references that come with the package: the means of the chains of every classification.

    python tools/extract_references.py

Run it after a reference in `references/` has changed; `tests/fidelity/reference/test_data_package.py` compares both.
"""

from pathlib import Path

from retinabench.fidelity.reference import reference_file

CHAINS = Path(__file__).parents[1] / "references/src/retinabench_references/chains"
SHIPPED = Path(reference_file.__file__).parent / "shipped"


def main() -> None:
    for file in sorted(CHAINS.glob("*.npz")):
        with file.open("rb") as stream:
            reference = reference_file._read(stream, file)
        if reference.chain_probs is not None:
            reference_file.write_extract(SHIPPED / f"{file.stem}-means.npz", reference)


if __name__ == "__main__":
    main()
