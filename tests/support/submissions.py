"""Submissions to two small targets, as `fidelity run` would write them."""

from support.evaluators import ENERGY, FUNDUS, data_of

DATA = {chosen.name: data_of(chosen).sha256 for chosen in (FUNDUS, ENERGY)}


def submission_meta(chosen, title, seed=0, **more):
    """Return the metadata of a submission of one method and seed; `more` are settings of its run."""
    run = {"seed": seed, "method": title, **more}
    sha = DATA[chosen.name]
    return {
        "task": chosen.name, "target": chosen.fingerprint(sha), "data": sha, "method": title.lower(), "title": title,
        "seed": seed, "run": run, "budget": {"limit": 10, "used": 8.0, "over": False}, "seconds": 1.0,
        "implied": {"temperature": 1.0, "prior_variance": chosen.prior_variance, "how": "its mode"},
    }  # fmt: skip
