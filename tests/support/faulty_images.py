"""A prepared folder with every kind of fault, for the inspection of data sets."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from PIL import Image

from retinabench.data.dataset import make_records
from retinabench.data.synthetic.fundus import draw
from support.helpers import make_retinas, write_files

N, SIDE = 48, 64
HOSTILE = '<script>alert("1")</script>|`x`'


def write_faulty(folder: Path) -> Path:
    """48 drawn retinas: 1 copies 0 across splits with another grade, 3 is 2 saved again, 5 is black."""
    images = np.stack([draw(k, size=SIDE, masks=False).image for k in range(N)])
    images[1] = images[0]
    with io.BytesIO() as out:
        Image.fromarray(images[2]).save(out, "JPEG", quality=90)
        images[3] = np.asarray(Image.open(out).convert("RGB"))
    images[5] = 0
    split = np.where(np.arange(N) % 4 == 1, "test", "train")
    grade = np.arange(N) % 5
    grade[[2, 3]] = 2
    names = [f"i{k:02d}" for k in range(N)]
    names[0] = HOSTILE
    patients = [f"p{k}" for k in range(N)]
    patients[8] = patients[9]  # train and test
    records = make_records(names, grade, patient_id=patients, eye=["left", "right"] * (N // 2), split=split)
    path = make_retinas(folder, records, images)
    rows = [
        {"image_id": name, "sha256": f"{k:064x}", "bytes": 1000 + k, "width": 640, "height": 480}
        for k, name in enumerate(names)
    ]
    rows[1]["sha256"] = rows[0]["sha256"]
    rows[7] |= {"width": 6400, "height": 4800}
    rows.append({"image_id": "lost", "source": "a/<b>.jpg", "status": "bad", "reason": "is a broken image"})
    write_files(path, rows)
    return path
