import numpy as np


def write_set(folder, points=40, seed=0):
    """Three features and a target in the second of four columns."""
    random = np.random.default_rng(seed)
    folder.mkdir(parents=True)
    table = random.normal(5, 3, (points, 4))
    np.savetxt(folder / "data.txt", table)
    np.savetxt(folder / "index_features.txt", [0, 2, 3], fmt="%d")
    np.savetxt(folder / "index_target.txt", [1], fmt="%d")
    return table
