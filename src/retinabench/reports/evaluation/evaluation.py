"""All numbers and curves of a report, computed once into an `Evaluation`.

Scores come from `retinabench.score`. What the report adds (referral of a share of the images, the change under shift, bands of
curves) is computed here: every statistic takes a weight per image, and replicate r resamples the same patients for every method.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from retinabench.core.errors import InputError, check
from retinabench.metrics import classification, weighted_images
from retinabench.metrics.classification import sensitivity_within
from retinabench.metrics.image_sets import binary_entropy, compared_uncertainties, kept_columns, referral_uncertainty
from retinabench.metrics.paired import Methods, PairedSet
from retinabench.metrics.referral_curves import area_of, values_on_grid
from retinabench.metrics.registry import SCORES, Ends, IntervalMethod, ScoreSpec, difference_method, referred_scores
from retinabench.metrics.rejection import Rejections, compare_uncertainties
from retinabench.metrics.scoring import Scores, ScoreSettings, score_and_replicates
from retinabench.metrics.weighted_images import (
    Bools,
    Cases,
    Floats,
    Statistic,
    Weighted,
    cluster_bootstrap,
    cluster_codes,
)
from retinabench.predictions.columns import DOMAINS
from retinabench.predictions.table import Predictions, Subsets, check_seeds, seeds_of
from retinabench.reports.toolkit.figures import OTHERS, Mark, mark
from retinabench.reports.toolkit.tables import Place, Quantity, pooled

SETS = ("in_domain", "shifted", "joint")  # The sets that the report shows; labels are in `metrics.sets`.
METRICS = ("accuracy", "auroc", "nll")
GRID = np.linspace(0, 1, 101)
BINS = 10
MOST_COLORS, HIGHLIGHTED = 4, 3  # methods that a figure tells apart; of more of them, the first three
FEWEST = 0.05  # Share of the images below which a curve ends: it is too noisy where few images are left.
Progress = Callable[[float], None]  # is told the share of the work that is done
PredictionsByMethod = Mapping[str, Predictions | Sequence[Predictions]]  # several of one method are its seeds
# Scores whose replicates the report needs, for paired differences between methods and for the mean of several seeds.
BASIC = (
    "auroc", "accuracy", "nll", "sensitivity", "specificity", "brier_skill", "net_benefit_gain", "ece_positive_class",
    "referral_accuracy_area", "failure_auroc",
)  # fmt: skip
MOST_BAND_REPLICATES = 300
CHANGED = ("auroc", "accuracy", "nll")


@dataclass(frozen=True, eq=False)
class SetPredictions:
    """One predictions file on one set; arrays of N images in the order of the file."""

    image_id: NDArray[np.str_]
    label: Bools
    prob: Floats
    uncertainty: Floats
    uncertainty_name: str
    cluster: NDArray[np.str_]
    domain: NDArray[np.str_]
    grade: NDArray[np.int8] | None
    threshold: float = 0.5

    @classmethod
    def of(
        cls, predictions: Predictions, name: str, uncertainty: str = "auto", threshold: float = 0.5
    ) -> SetPredictions | None:
        """Return the test images of a set, or None where it has none (`joint`: of both domains)."""
        part = predictions.select(domain=None if name == "joint" else name, split="test")
        if part is None or (name == "joint" and len(np.unique(part.domain)) < 2):
            return None
        values, kind = referral_uncertainty(part, uncertainty, threshold=threshold)
        label, ids = part.label == 1, part.patients
        return cls(part.image_id, label, part.prob, values, kind, ids, part.domain, part.grade, threshold)

    def __len__(self) -> int:
        return len(self.label)

    @cached_property
    def cases(self) -> Cases:
        patient = cluster_codes(self.cluster)[0]
        return Cases(self.label, self.prob, self.uncertainty, threshold=self.threshold, patient=patient)

    @cached_property
    def oracle(self) -> Cases:
        """The same images in the order of their true loss: the best uncertainty. At another threshold than one half, the wrong ones come first."""
        loss = np.empty(len(self))
        first = 100.0 * self.cases.error if self.threshold != 0.5 else 0.0
        loss[self.cases.order] = self.cases.log_loss + first
        return Cases(self.label, self.prob, loss, threshold=self.threshold)

    @cached_property
    def called(self) -> Bools:
        return weighted_images.is_positive(self.prob, self.threshold)

    @cached_property
    def correct(self) -> Bools:
        return np.asarray(self.called == self.label)

    @cached_property
    def bins(self) -> NDArray[np.intp]:
        """(N,) the equally filled bin of every probability; equal probabilities share one."""
        edges = np.unique(np.quantile(self.prob, np.linspace(0, 1, BINS + 1)[1:-1]))
        return np.asarray(np.searchsorted(edges, self.prob, side="left"))

    def in_order_of(self, other: SetPredictions) -> Cases:
        """Return the cases with their rows in the order of those of the same images elsewhere."""
        if np.array_equal(self.image_id, other.image_id):
            return self.cases
        rows = np.empty(len(self), np.intp)
        rows[np.argsort(other.image_id)] = np.argsort(self.image_id)
        patient = cluster_codes(self.cluster[rows])[0]
        columns = self.label[rows], self.prob[rows], self.uncertainty[rows]
        return Cases(*columns, threshold=self.threshold, patient=patient)


def observed(case: SetPredictions, weight: Floats) -> Floats:
    total = np.bincount(case.bins, weight, BINS)
    positive = np.bincount(case.bins, weight * case.label, BINS)
    return np.asarray(np.divide(positive, total, out=np.full(BINS, np.nan), where=total > 0))


def all_curves(case: SetPredictions) -> Statistic:
    """Return all curves of the figures in one row, as a function of the weights of the images: referral by metric, ROC, reliability."""

    def statistic(weight: Floats) -> Floats:
        w = Weighted(case.cases, np.take(weight, case.cases.order, axis=1))
        curves = values_on_grid(w, GRID, FEWEST)
        seen = np.stack([observed(case, row) for row in weight])
        return np.concatenate([*(curves[name] for name in METRICS), sensitivity_within(w, GRID), seen], axis=1)

    return statistic


def replicated(
    cases: Sequence[SetPredictions], prepare: Callable[[SetPredictions], Statistic], replicates: int, seed: int
) -> tuple[Floats, Floats]:
    """Return a statistic of F files and its bootstrap replicates; `prepare` (N,) -> (F, K)."""
    functions = [prepare(case) for case in cases]
    pairs = list(zip(functions, cases, strict=True))
    values = np.stack([f(np.ones((1, len(case))))[0] for f, case in pairs])
    if not replicates:
        return values, np.full((len(cases), 1, values.shape[1]), np.nan)
    draws = [cluster_bootstrap(f, case.cluster, replicates=replicates, seed=seed) for f, case in pairs]
    return values, np.stack(draws)


def quantities(
    methods: Sequence[IntervalMethod], wholes: Sequence[Weighted], values: Floats, replicates: Floats
) -> list[Quantity]:
    """Return the mean of K numbers over F seeds, each with the interval of its kind; `values` (F, K), `replicates` (F, R, K)."""
    files, mean, drawn = len(values), values.mean(axis=0), replicates.mean(axis=0).T
    error = values.std(axis=0, ddof=1) / np.sqrt(files) if files > 1 else np.full(len(mean), np.nan)
    found = []
    for method, value, draws, scatter in zip(methods, mean.tolist(), drawn, error.tolist(), strict=True):
        known = np.isfinite(value) and np.isfinite(draws).any()
        ends = method.ends(wholes, value, draws, 0.95) if known else Ends()
        found.append(Quantity(value, ends.low, ends.high, scatter))
    return found


@dataclass(frozen=True)
class EvaluationSettings(ScoreSettings):
    """How the predictions of a page are scored; what a page adds to the scores always follows the corrected rules."""

    referred: float = 0.5  # share of the images that statements and figures refer, 0.01 to 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.01 <= self.referred <= 0.95:
            hint = "Give a share between 0.01 and 0.95, such as 0.1."
            raise InputError(f"the share referred is {self.referred:g}", hint=hint)


DEFAULTS = EvaluationSettings()


@dataclass(frozen=True)
class MethodPredictions:
    """One method by its name, with the predictions of one or more seeds."""

    name: str
    predictions: tuple[Predictions, ...]


@dataclass(frozen=True)
class Band:
    """A curve (G,) over `x` with the ends of its band."""

    x: Floats
    y: Floats
    low: Floats
    high: Floats


@dataclass
class Evaluation:
    """Everything that a report says, by the index of a method and the name of a set (`joint` last where it exists).

    `leader` has the largest referral accuracy area on the last set. `files`: per method and seed the scores of the file. `cases`:
    (method, set) -> its files on that set, `seeds` what is behind each. `estimates`: (method, set, score) -> the score. `replicates`: (method, set) -> values
    (F, K) and replicates (F, R, K) of the scores `replicated`. `curves`: (method, set, curve). `changes`: (method, score) ->
    shifted minus in-domain.
    """

    methods: list[MethodPredictions]
    settings: EvaluationSettings
    sets: list[str]
    marks: list[Mark]
    files: list[list[Scores]] = field(default_factory=list)
    leader: int = 0
    cases: dict[tuple[int, str], list[SetPredictions]] = field(default_factory=dict)
    seeds: dict[tuple[int, str], Subsets] = field(default_factory=dict)
    estimates: dict[tuple[int, str, str], Quantity] = field(default_factory=dict)
    replicates: dict[tuple[int, str], tuple[Floats, Floats]] = field(default_factory=dict)
    curves: dict[tuple[int, str, str], Band] = field(default_factory=dict)
    changes: dict[tuple[int, str], Quantity] = field(default_factory=dict)
    rejections: dict[tuple[int, str], Rejections] = field(default_factory=dict)

    @property
    def replicated(self) -> tuple[str, ...]:
        return *classification.referred_names(self.settings.referred), *BASIC

    def at(self, name: str) -> str:
        return f"{name}_at_{100 * self.settings.referred:g}"

    def spec(self, score: str) -> ScoreSpec:
        """Return label and direction of a score, also at a share referred that the registry does not name."""
        return referred_scores(self.settings.referred).get(score) or SCORES[score]

    @property
    def domains(self) -> list[str]:
        return [name for name in self.sets if name != "joint"]

    @property
    def leading(self) -> str:
        return self.methods[self.leader].name

    @property
    def same_images(self) -> bool:
        """Whether every method has the images of the leading one on every set that both have, so that they can be ranked."""
        others = (i for i in range(len(self.methods)) if i != self.leader)
        pairs = [(i, name) for i in others for name in self.sets if (i, name) in self.cases]
        return all(self._paired(self.leader, i, name) for i, name in pairs if (self.leader, name) in self.cases)

    def get(self, method: int, name: str, score: str) -> Quantity:
        found = self.estimates.get((method, name, score), Quantity(np.nan))
        return replace(found, place=Place(self.methods[method].name, name, score))

    def lead_value(self, name: str, score: str) -> Quantity:
        return self.get(self.leader, name, score)

    def change(self, method: int, score: str) -> Quantity | None:
        found = self.changes.get((method, score))
        place = Place(self.methods[method].name, "shifted_minus_in_domain", score)
        return None if found is None else replace(found, place=place)

    def first(self, method: int, name: str) -> SetPredictions | None:
        cases = self.cases.get((method, name))
        return cases[0] if cases else None

    def difference(self, a: int, b: int, name: str, score: str) -> Quantity:
        """Return the difference of a score between two methods, with the interval of the one comparison (`metrics.paired`)."""
        if score not in self.replicated or not self._paired(a, b, name):
            return Quantity(self.get(a, name, score).value - self.get(b, name, score).value)
        k = [self.replicated.index(score)]
        values, draws = (np.concatenate(part) for part in zip(*(self.replicates[i, name] for i in (a, b)), strict=True))
        drawn = draws[..., k].transpose(1, 0, 2)[: self.settings.bootstrap]
        cases = self.cases[a, name], self.cases[b, name]
        whole = tuple(case.in_order_of(cases[0][0]).weighted() for of_method in cases for case in of_method)
        one = PairedSet(name, len(cases[0][0]), None, 0, (self.spec(score),), values[:, k], drawn, whole)
        rows = range(len(cases[0])), range(len(cases[0]), len(whole))
        test = Methods(one, 0, rows, [self.seeds[i, name] for i in (a, b)]).test(0, 1, 0.95)
        return Quantity(test.difference, test.low, test.high)

    def best(self, name: str, score: str) -> int | None:
        """Return the method whose paired interval against every other one excludes 0 in its favour, if any."""
        sign = self.spec(score).sign
        known = [i for i in range(len(self.methods)) if self.get(i, name, score).defined]
        if len(known) < 2 or self.settings.rules != "corrected":  # replicates follow the corrected rules
            return None
        top = max(known, key=lambda i: sign * self.get(i, name, score).value)
        ahead = (self.difference(top, i, name, score).sign() == sign for i in known if i != top)
        return top if all(ahead) else None

    def leads(self) -> dict[str, Quantity]:
        """Return the leading method minus each other one in accuracy at the share referred, paired, on the last set."""
        found, name, score = {}, self.sets[-1], self.at("accuracy")
        for i, other in enumerate(self.methods):
            if i != self.leader:
                place = Place(f"{self.leading} − {other.name}", name, score)
                found[other.name] = replace(self.difference(self.leader, i, name, score), place=place)
        return found

    def controls(self, name: str) -> dict[str, dict[str, float]]:
        """Return what the baseline scores, which does not depend on the images, and the leading method under random and oracle referral."""
        cases = self.cases.get((self.leader, name))
        if not cases:
            return {}
        share = float(cases[0].label.mean())
        both = 0 < share < 1
        positive = share > 0.5
        baseline = {
            "auroc": 0.5 if both else np.nan, "accuracy": max(share, 1 - share), "sensitivity": float(positive),
            "specificity": float(not positive), "brier_skill": 0.0 if both else np.nan, "ece_positive_class": 0.0,
            "nll": float(binary_entropy(share)), self.at("accuracy"): max(share, 1 - share),
            "referral_accuracy_area": max(share, 1 - share), "failure_auroc": 0.5 if both else np.nan,
        }  # fmt: skip
        answer = "referable" if positive else "not referable"
        accuracy = self.lead_value(name, "accuracy").value
        area = float(np.mean([area_of(case.oracle.weighted(), "accuracy") for case in cases]))
        perfect = self.lead_value(name, self.at("perfect_accuracy")).value
        referral = {"random": (accuracy, accuracy, 0.5), "oracle": (perfect, area, 1.0 if accuracy < 1 else np.nan)}
        scores = self.at("accuracy"), "referral_accuracy_area", "failure_auroc"
        made = {f"{kind} referral": dict(zip(scores, values, strict=True)) for kind, values in referral.items()}
        return {f"always “{answer}”": baseline} | made

    def _paired(self, a: int, b: int, name: str) -> bool:
        one, two = self.first(a, name), self.first(b, name)
        return one is not None and two is not None and np.array_equal(np.sort(one.image_id), np.sort(two.image_id))


def evaluate_methods(
    given: PredictionsByMethod, settings: EvaluationSettings = DEFAULTS, progress: Progress | None = None
) -> Evaluation:
    methods, tell = _checked(given), progress or (lambda _share: None)
    sets = _sets(methods)
    found = Evaluation(methods, settings, sets, [mark(i) for i in range(len(methods))])
    for i, method in enumerate(methods):
        scored = [_scored(p, found) for p in method.predictions]
        found.files.append([scores for scores, _ in scored])
        for k, name in enumerate(sets):
            tell((i + (k + 1) / (len(sets) + 1)) / len(methods))
            made = [
                SetPredictions.of(p, name, settings.uncertainty, file.threshold.value)
                for p, file in zip(method.predictions, found.files[i], strict=True)
            ]
            cases = [case for case in made if case is not None]
            if cases:
                found.cases[i, name] = cases
                seeds = seeds_of(method.name, method.predictions)
                found.seeds[i, name] = [own for own, case in zip(seeds, made, strict=True) if case is not None]
                _add_estimates(found, i, name, [draws[name] for _, draws in scored if name in draws])
                _add_curves(found, i, name)
        _add_changes(found, i)
        if settings.rules == "corrected" and compared_uncertainties(method.predictions[0], settings.uncertainty):
            compared = compare_uncertainties(
                method.predictions[0], settings.uncertainty, threshold=found.files[i][0].threshold.value,
                bootstrap=settings.bootstrap, seed=settings.seed,
            )  # fmt: skip
            found.rejections.update({(i, name): one for name, one in compared.items()})
    areas = [found.get(i, sets[-1], "referral_accuracy_area").value for i in range(len(methods))]
    found.leader = int(np.nanargmax(areas)) if np.isfinite(areas).any() else 0
    if len(methods) > MOST_COLORS:  # the first ones are told apart, in grey behind them the range of the others
        first = sorted(range(len(methods)), key=lambda i: -np.nan_to_num(areas[i], nan=-1))[:HIGHLIGHTED]
        found.marks = [mark(first.index(i)) if i in first else OTHERS for i in range(len(methods))]
    tell(1.0)
    return found


def _scored(predictions: Predictions, found: Evaluation) -> tuple[Scores, dict[str, Floats]]:
    s = found.settings
    specs = [found.spec(name) for name in found.replicated]
    corrected, draws = score_and_replicates(predictions, replace(s, rules="corrected"), specs)
    return corrected if s.rules == "corrected" else score_and_replicates(predictions, s)[0], draws


def _checked(given: PredictionsByMethod) -> list[MethodPredictions]:
    if not given:
        raise InputError("there is nothing to report", hint="Give one predictions file or more.")
    methods = []
    for name, files in given.items():
        seeds = (files,) if isinstance(files, Predictions) else tuple(files)
        if not seeds:
            raise InputError(f"method '{name}' has no predictions", hint="Give one file or more.")
        check_seeds([name] * len(seeds), seeds)
        methods.append(MethodPredictions(name, seeds))
    return methods


def _sets(methods: Sequence[MethodPredictions]) -> list[str]:
    files = [p for method in methods for p in method.predictions]
    of_files = [{name for name in DOMAINS if p.select(domain=name, split="test") is not None} for p in files]
    sets = [name for name in SETS if any(name in domains for domains in of_files)]
    if not sets:
        raise InputError("no file has test images", column="split", hint="Report needs rows of split 'test'.")
    return [*sets, "joint"] if any(len(domains) == 2 for domains in of_files) else sets


def changes(case: SetPredictions) -> Statistic:
    """Return shifted minus in-domain scores (R, K) as a function of weights (R, N), NaN where a replicate holds one domain alone."""
    of = [np.flatnonzero(case.domain == domain) for domain in ("in_domain", "shifted")]
    parts = [Cases(case.label[r], case.prob[r], case.uncertainty[r], threshold=case.threshold) for r in of]

    def statistic(weight: Floats) -> Floats:
        found = np.full((2, len(weight), len(CHANGED)), np.nan)
        for out, rows, cases in zip(found, of, parts, strict=True):
            own = weight[:, rows]
            some = own.any(axis=1)
            if some.any():
                w = Weighted(cases, np.take(own[some], cases.order, axis=1))
                out[some] = np.stack([SCORES[name](w) for name in CHANGED], axis=1)
        return np.asarray(found[1] - found[0])

    return statistic


def _add_estimates(found: Evaluation, i: int, name: str, draws: Sequence[Floats]) -> None:
    """Add the scores of a set; `draws` are the replicates (R, K) of each file, none without a bootstrap."""
    wholes = [case.cases.weighted() for case in found.cases[i, name]]
    specs = [found.spec(key) for key in found.replicated]
    values = np.array([[spec(whole) for spec in specs] for whole in wholes])
    replicates = np.stack(draws) if draws else np.full((len(values), 1, len(specs)), np.nan)
    found.replicates[i, name] = values, replicates
    methods = [spec.interval for spec in specs]
    own = dict(zip(found.replicated, quantities(methods, wholes, values, replicates), strict=True))
    # The scores of other rules come from `score` alone, without intervals.
    if found.settings.rules != "corrected":
        own = {key: own[key] for key in classification.referred_names(found.settings.referred)}
    found.estimates.update({(i, name, key): quantity for key, quantity in own.items()})
    blocks = [file[name].scores for file in found.files[i] if name in file.sets]
    for key in {key for block in blocks for key in block}:
        mean = pooled([block[key] for block in blocks])
        if key in own and len(blocks) > 1:  # of several seeds, the interval is that of the mean
            mean = replace(mean, low=own[key].low, high=own[key].high)
        found.estimates[i, name, key] = mean


def _add_curves(found: Evaluation, i: int, name: str) -> None:
    cases, seed = found.cases[i, name], found.settings.seed
    replicates = min(found.settings.bootstrap, MOST_BAND_REPLICATES)
    parts: list[object] = [check(Path(__file__)).read_bytes(), [replicates, seed, len(cases)]]
    for case in cases:
        parts += [case.label, case.prob, case.uncertainty, cluster_codes(case.cluster)[0], case.threshold]

    def compute() -> dict[str, Floats]:
        values, curves = replicated(cases, all_curves, replicates, seed)
        low, high = weighted_images.percentile_interval(curves.mean(axis=0), points=True)
        return {"values": values.mean(axis=0), "low": low, "high": high}

    kept, start = kept_columns(parts, compute, replicates * sum(map(len, cases))), 0
    grids: dict[str, Floats] = dict.fromkeys((*METRICS, "roc"), GRID)
    for key, x in {**grids, "observed": np.arange(BINS, dtype=np.float64)}.items():
        ends = (kept[part][start : start + len(x)] for part in ("values", "low", "high"))
        found.curves[i, name, key], start = Band(x, *ends), start + len(x)


def _add_changes(found: Evaluation, i: int) -> None:
    if not all((i, name) in found.cases for name in SETS):
        return
    values, replicates = replicated(found.cases[i, "joint"], changes, found.settings.bootstrap, found.settings.seed)
    specs = [SCORES[key] for key in CHANGED]
    wholes = [case.cases.weighted() for name in SETS[:2] for case in found.cases[i, name]]
    methods = [difference_method(spec.interval) for spec in specs]
    for key, quantity in zip(CHANGED, quantities(methods, wholes, values, replicates), strict=True):
        found.changes[i, key] = quantity
