import pytest
from PIL import Image

from retinabench.data.datasets import idrid


@pytest.fixture
def write_grading(tmp_path):
    """Write images of a (number, grade, shade) in both parts, in other colours; return the folder that holds the archive."""

    def write(*images):
        for split, (folder, labels) in idrid.OFFICIAL.items():
            place = tmp_path / "B. Disease Grading"
            (place / "1. Original Images" / folder).mkdir(parents=True)
            (place / "2. Groundtruths").mkdir(exist_ok=True)
            lines = ["Image name,Retinopathy grade,Risk of macular edema ,,"]
            for number, grade, shade in images:
                file = place / "1. Original Images" / folder / f"IDRiD_{number:03d}.jpg"
                Image.new("RGB", (40, 30), (shade, 80, 40 if split == "train" else 80)).save(file)
                lines.append(f"IDRiD_{number:03d},{grade},0,,")
            (place / "2. Groundtruths" / labels).write_text("\n".join([*lines, ",,,,", ""]))
        return tmp_path

    return write
