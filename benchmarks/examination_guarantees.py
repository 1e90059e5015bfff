"""Do the statements of an examination keep their word? Coverage, false findings, power and claims, by simulation.

    python benchmarks/examination_guarantees.py [--examinations 400] [--parts coverage]

At most 5 % of the intervals may miss the rate, at the end of an examination or at any time before it, as if somebody had stopped at
the worst moment. Beside them stands what the page used before: Jeffreys' interval, DeLong's, each claim by itself. `README.md` says what
is drawn in every part and what came of it. `fixed` draws files in CheXpert's layout; with `--files FOLDER`, a clone of
github.com/rajpurkarlab/cheXpert-test-set-labels, it takes the released ones too.
"""

import csv
from functools import cache
from itertools import product
from unittest.mock import patch

import numpy as np
from scipy import stats
from toolkit import parse, print_head, print_row, share

from retinabench.concepts.banks.bank import Bank
from retinabench.concepts.banks.tables import ReaderPanel, latent_truth, majority
from retinabench.concepts.examinees import Answers
from retinabench.concepts.inference.claims import Claim, bank_sequence, new_sequence
from retinabench.concepts.inference.rates import LEAST
from retinabench.concepts.inference.unpredictability import ranking as ranking_at
from retinabench.concepts.inference.unpredictability import says_yes
from retinabench.concepts.questioning import readers as questioning
from retinabench.concepts.questioning.examination import examine
from retinabench.concepts.questioning.readers import enter_readers
from retinabench.concepts.questioning.referral import agreement, decisions
from retinabench.metrics.image_sets import FrozenThreshold
from retinabench.metrics.intervals import auroc_error
from retinabench.predictions.table import Predictions

RATES = np.array([[0.6, 0.75, 0.9], [0.95, 0.8, 0.7]])  # specificities, sensitivities
CLAIMS = ["sensitivity of a >= 0.7", "specificity of b >= 0.85", "sensitivity of c >= 0.8"]
RULES = {"150 questions": {"questions": 150}, "tolerance 1.0": {"tolerance": 1.0}, "patience 12": {"patience": 12}}
RULES["three claims"] = {"claim": CLAIMS}
CHEXPERT = ("Cardiomegaly", "Edema", "Consolidation", "Atelectasis", "Pleural Effusion")
STRATEGIES = ("random", "precision", "uncertainty", "claims")
SELECTING = ("unpredictability", "uncertainty+unpredictability")


def jeffreys(right, asked):
    tail, a, b = 0.025, right + 0.5, asked - right + 0.5
    low = np.where(right == 0, 0.0, stats.beta.ppf(tail, a, b))
    return low, np.where(right == asked, 1.0, stats.beta.ppf(1 - tail, a, b))


@cache
def ends(right, asked, of=None, alpha=0.05):
    return new_sequence(right, asked, alpha) if of is None else bank_sequence(right, asked, of, alpha)


def outside(interval, value):
    return not interval.low - 1e-9 <= value <= interval.high + 1e-9


def answered(bank, right, sure):
    """The bank, and answers to it that are right where `right` (n, K) says so, each with its certainty."""
    return bank, Answers(bank, np.where(right == (bank.truth == 1), sure, 1 - sure))


def drawn(random, samples):
    truth = (random.random((samples, 3)) < [0.5, 0.3, 0.2]).astype(np.int8)
    right = random.random((samples, 1)) < RATES[truth, np.arange(3)]
    return right, *answered(Bank(None, "abc", truth), right, random.uniform(0.5, 1, truth.shape))


def coverage(examinations):
    title = f"Intervals that miss, in percent of the cells asked about: {examinations} examinations each"
    columns = "this bank, end | ever | new samples, end | ever | Jeffreys, end | ever | any of 6 at once"
    print_head(title, f"strategy | stop | {columns}")
    for strategy in (*STRATEGIES, *SELECTING):
        for rule, options in RULES.items():
            if (strategy == "claims") > (rule == "three claims") or (strategy in SELECTING and "claim" in rule):
                continue
            tally, together = np.zeros(7, int), 0
            for number in range(examinations):
                right, bank, answers = drawn(np.random.default_rng([1, number]), 200)
                found = examine(bank, answers, strategy=strategy, seed=number, **options)
                any_missed = False
                for place, one in enumerate(found.to_dict()["concepts"].values()):
                    _, truth, prob = found.record.about(place)
                    for sign, name in ((0, "specificity"), (1, "sensitivity")):
                        rate, p = one[name], RATES[sign, place]
                        if rate["asked"]:
                            whole = right[bank.truth[:, place] == sign, place]
                            given = np.array([says_yes(x) for x in prob[truth == sign]]) == bool(sign)
                            tally += missed(rate, given, whole, p, found.strategy in SELECTING)
                            any_missed |= not rate["simultaneous"]["low"] <= p <= rate["simultaneous"]["high"]
                together += any_missed
            print_row(strategy, rule, *(share(count, tally[-1]) for count in tally[:-1]), share(together, examinations))


def missed(rate, given, whole, p, selecting):
    """Misses at the end and ever: bank, new samples, Jeffreys; and 1 cell."""
    k, n = np.cumsum(given), np.arange(1, len(given) + 1)
    low, high = jeffreys(k, n)
    old = (p < low) | (p > high)
    if selecting:
        at_end = not rate["low"] - 1e-9 <= whole.mean() <= rate["high"] + 1e-9
        new = not rate["new"]["low"] <= p <= rate["new"]["high"]
        return np.array([at_end, at_end, new, new, old[-1], old.any(), 1])
    counts = list(zip(k.tolist(), n.tolist(), strict=True))
    bank = [outside(ends(a, b, len(whole)), whole.mean()) for a, b in counts]
    new = [not ends(a, b).low <= p <= ends(a, b).high for a, b in counts]
    return np.array([bank[-1], any(bank), new[-1], any(new), old[-1], old.any(), 1])


def false_findings(examinations, concepts=14, samples=400):
    columns = "questions | old rule, end | ever | new rule, end | ever"
    title = f"Examinations with a false 'goal missed', in percent: {concepts} concepts at their goals"
    print_head(f"{title}, {examinations} each", columns)
    goals, names = np.array([0.8, 0.85]), [f"c{k}" for k in range(concepts)]
    runs = {count: np.zeros(4, int) for count in (100, 300, 1000)}
    for number in range(examinations):
        random = np.random.default_rng([2, number])
        truth = (random.random((samples, concepts)) < 0.4).astype(np.int8)
        right = random.random(truth.shape) < goals[truth]
        record = examine(*answered(Bank(None, names, truth), right, 0.9), questions=1000, seed=number).record
        counts = np.zeros((concepts, 2, 2), int)
        lacking, ever = np.zeros((2, concepts, 2), bool), np.zeros(2, bool)
        for asked, (concept, sign, prob) in enumerate(zip(record.concept, record.truth, record.prob, strict=True), 1):
            counts[concept, sign] += (says_yes(prob) == bool(sign), 1)
            k, n = counts[concept, sign].tolist()
            lacking[0, concept, sign] = old_high(k, n) < goals[sign]
            lacking[1, concept, sign] = n >= LEAST and ends(k, n, None, 0.05 / (2 * concepts)).high < goals[sign]
            ever |= lacking.any(axis=(1, 2))
            if asked in runs:
                now = lacking.any(axis=(1, 2))
                runs[asked] += np.array([now[0], ever[0], now[1], ever[1]])
    for count, tally in runs.items():
        print_row(count, *(share(one, examinations) for one in tally))


@cache
def old_high(k, n):
    return float(jeffreys(np.array(k), np.array(n))[1])


def power(studies, goal=0.85):
    columns = "rate | old rule, fixed number with power 80 % | one rate | one of 8 | one of 28"
    title = f"Answers about a cell until 'below {goal:.0%}' is found: median (10 to 90 %)"
    print_head(f"{title}, {studies} studies each", columns)
    for p in (0.5, 0.6, 0.7, 0.75):
        stops = {m: [] for m in (1, 8, 28)}
        for number in range(studies):
            k = np.cumsum(np.random.default_rng([3, number]).random(3000) < p).tolist()
            for m, stop in stops.items():
                below = (n for n in range(LEAST, 3001) if ends(k[n - 1], n, None, 0.05 / m).high < goal)
                stop.append(next(below, 3000))
        fixed = next(n for n in range(1, 3000) if stats.binom.cdf(highest(n, goal), n, p) >= 0.8)
        cells = ("{1:.0f} ({0:.0f} to {2:.0f})".format(*np.percentile(stop, (10, 50, 90))) for stop in stops.values())
        print_row(f"{p:.0%}", fixed, *cells)


def highest(n, goal):
    """The largest number of correct predictions of n with which the old rule finds a failure, -1 if there is none."""
    k = 0
    while k <= n and old_high(k, n) < goal:
        k += 1
    return k - 1


def claims(studies, of=200):
    columns = "each at 95 % (before) | together at 95 %"
    print_head(f"Three claims '>= 85 %' together, each false by one of {of} samples: {studies} studies", columns)
    wrong = {1: 0, 3: 0}
    for number in range(studies):
        random = np.random.default_rng([4, number])
        orders = [random.permutation(np.arange(of) < round(0.85 * of) - 1) for _ in range(3)]
        for together in wrong:
            stated = [Claim("", 0, 1, True, 0.85, 0.95, of, together) for _ in orders]
            for claim, order in zip(stated, orders, strict=True):
                while claim.open:
                    claim.update(0, 1, bool(order[claim.asked]), claim.asked + 1)
            wrong[together] += any(claim.decided == "holds" for claim in stated)
    print_row(*(share(count, studies) for count in wrong.values()))
    title = "A claim '>= 85 %' in new patients of whom 84 % are answered rightly, 200 with two samples each"
    print_head(title, "it holds in")
    held = 0
    for number in range(studies):
        random = np.random.default_rng([9, number])
        right = np.repeat(random.random(of) < 0.84, 2)
        one = Claim("", 0, 1, True, 0.85, 0.95, 2 * of, new=True, counted=frozenset(range(0, 2 * of, 2)))
        for after, sample in enumerate(random.permutation(2 * of).tolist(), 1):
            one.update(0, 1, bool(right[sample]), after, sample)
        held += one.decided == "holds"
    print_row(share(held, studies))


def votes_of(random, severity, readers, population):
    """Votes (n, 1, R) of a panel: readers of different strictness, of a rare concept, who err at random, or of two schools."""
    if population == "errors at random":
        ill, chance = severity > 0.6, random.random((len(severity), readers))
        seen = np.where(ill[:, None], chance < random.beta(8, 2, readers), chance > random.beta(18, 2, readers))
        return seen.astype(np.int8)[:, None]
    if population == "two schools":
        strict = random.choice([0.45, 0.65], readers)
    else:
        strict = random.normal(*((0.85, 0.06) if population == "rare concept" else (0.55, 0.08)), readers)
    return (severity[:, None] + random.normal(0, 0.08, (len(severity), readers)) > strict).astype(np.int8)[:, None]


_SEVERITY = (np.arange(100_000) + 0.5) / 100_000
_YES = stats.norm.cdf((_SEVERITY - 0.55) / 0.15)
# specificity and sensitivity of the model of `read_twice`
REAL = (1 - _YES[_SEVERITY <= 0.6].mean(), _YES[_SEVERITY > 0.6].mean())
POPULATIONS = ("strictness", "rare concept", "errors at random", "two schools")


def read_twice(number, count, population, samples=200):
    """A panel's votes and another's about the same images, P(yes) of a model, and how severe the disease is in each."""
    random = np.random.default_rng([5, number])
    severity = random.random(samples)
    shift = 0.3 if population == "rare concept" else 0.05
    prob = np.clip(severity + random.normal(0, 0.15, samples) - shift, 0, 1)
    votes, others = (votes_of(random, severity, count, population) for _ in range(2))
    return random, votes, others, prob, severity


def judged(truth, votes, prob, name="majority", **options):
    """The examination of a model that says `prob`, by the truth (n, 1) that was made from votes."""
    bank = Bank(None, "a", truth)
    done = examine(bank, Answers(bank, prob[:, None]), **options)
    return enter_readers(done, ReaderPanel(tuple(map(str, range(votes.shape[2]))), votes, name))


@patch.object(questioning, "FEWEST", 3)  # the command shows these intervals from five readers on
def readers(examinations):
    columns = "readers | who differ by | questions | sensitivity | specificity | accuracy | AUROC | width of the first"
    title = "Intervals that miss what another panel says, in percent"
    print_head(f"{title}: {examinations} panels each, 200 images", columns)
    names = ("sensitivity", "specificity", "accuracy", "auroc")
    for count, population, questions in product((3, 5, 8), POPULATIONS, (None, 60)):
        missed, width = dict.fromkeys(names, 0), 0.0
        for number in range(examinations):
            random, votes, others, prob, _ = read_twice(number, count, population)
            truth, other = majority(votes, random), majority(others, random)[:, 0]
            if not 0 < truth.sum() < len(truth) or len(set(other)) < 2:
                continue
            found = judged(truth, votes, prob, questions=questions, seed=number)["a"]
            yes = prob > 0.5
            rates = yes[other == 1].mean(), 1 - yes[other == 0].mean()
            told = (*rates, np.mean(yes == other), auroc_error(other, prob).auroc)
            for name, value in zip(names, told, strict=True):
                missed[name] += outside(getattr(found, name), value)
            width += found.sensitivity.high - found.sensitivity.low
        cells = (share(missed[name], examinations) for name in names)
        print_row(count, population, questions or "all", *cells, f"{width / examinations:.2f}")


def beside(examinations):
    columns = "readers | who differ by | model | sensitivity: missed | called different | specificity: missed | called different"
    title = "The model beside the mean reader: intervals of the difference that miss it, and models called different, in percent"
    print_head(f"{title}: {examinations} panels each, 200 images", columns)
    for count, population, model in product((3, 5, 8), POPULATIONS, ("another", "a new reader per image")):
        found = {"sensitivity": [], "specificity": []}
        for number in range(examinations):
            random, votes, _, prob, severity = read_twice(number, count, population)
            said = prob
            if model != "another":
                said = votes_of(random, severity, len(prob), population)[:, 0].diagonal() * 1.0
            told = judged(majority(votes, random), votes, said, fixed=True).readers.concepts["a"].beside
            for name, one in told.items():
                gap = one.model_minus_mean
                found[name].append((gap.value, gap.low, gap.high, one.verdict != "not shown to differ"))
        cells = []
        for rows in map(np.array, found.values()):
            value, low, high, different = rows[np.isfinite(rows[:, 1])].T
            truth = value.mean() if model == "another" else 0
            cells += [share(np.sum((low > truth) | (high < truth)), len(value)), share(different.sum(), len(value))]
        print_row(count, population, model, *cells)


def latent(examinations):
    columns = "readers | who differ by | truth | wrong truths | sensitivity: missed | specificity: missed"
    title = "Truths by majority and by Dawid and Skene: images with a wrong one, and intervals that miss the rate in new samples"
    print_head(f"{title}, in percent: {examinations} panels each, 200 images", columns)
    ways = {"majority": majority, "dawid-skene": lambda votes, random: latent_truth(votes[:, 0])[:, None]}
    for count, population, (name, way) in product((3, 5, 8), ("errors at random", "two schools"), ways.items()):
        wrong, missed = 0.0, np.zeros(2, int)
        for number in range(examinations):
            random, votes, _, prob, severity = read_twice(number, count, population)
            truth = way(votes, random)
            wrong += np.mean(truth[:, 0] != (severity > 0.6))
            one = judged(truth, votes, prob, name, fixed=True)["a"]
            missed += [outside(one.sensitivity.new, REAL[1]), outside(one.specificity.new, REAL[0])]
        cells = (share(count_, examinations) for count_ in missed)
        print_row(count, population, name, f"{100 * wrong / examinations:.1f}", *cells)


def alike(random, patients, correlation):
    """Patient, truth and correctness of samples; a patient's rate is .9 or, with more than four samples, .6 on average."""
    sizes = random.integers(1, 9, patients)
    patient, mean = np.repeat(np.arange(patients), sizes), np.where(sizes > 4, 0.6, 0.9)
    common = random.random(patients)[patient] < mean[patient]
    own = random.random(len(patient)) < mean[patient]
    return patient, np.where(random.random(len(patient)) < np.sqrt(correlation), common, own)


def patients(examinations):
    columns = "correlation | stop | by patients, end | ever | width | by samples, end | ever | width"
    title = "Intervals for new samples where patients have 1 to 8, in percent"
    print_head(f"{title}: {examinations} examinations each", columns)
    by_patient = 0.75  # a patient's rate, and a sample's, which weighs large patients more
    by_sample = (0.9 * 10 + 0.6 * 26) / 36
    for correlation in (0.0, 0.5, 1.0):
        for rule, options in {"100 questions": {"questions": 100}, "patience 12": {"patience": 12}}.items():
            tally, widths, cells = np.zeros(4, int), np.zeros(2), 0
            for number in range(examinations):
                random = np.random.default_rng([7, number])
                patient, right = alike(random, 60, correlation)
                truth = (random.random((len(patient), 1)) < 0.5).astype(np.int8)
                sure = random.uniform(0.5, 1, truth.shape)
                pair = answered(Bank(None, "a", truth, patient=patient), right[:, None], sure)
                done = examine(*pair, strategy="uncertainty", seed=number, **options)
                sample, sign, prob = done.record.about(0)
                for side in (0, 1):
                    mine = sample[sign == side]
                    if not len(mine):
                        continue
                    good = (prob[sign == side] > 0.5) == side
                    rows = done.answered.patients.counted(truth[:, 0] == side)
                    counted = good if rows is None else good[np.isin(mine, rows)]
                    for k, (given, p) in enumerate(((counted, by_patient), (good, by_sample))):
                        found = [ends(int(a), n) for n, a in enumerate(np.cumsum(given), 1)]
                        misses = [not one.low <= p <= one.high for one in found] or [False]
                        tally[2 * k : 2 * k + 2] += misses[-1], any(misses)
                        widths[k] += found[-1].high - found[-1].low if found else 1
                    cells += 1
            ever = [share(count, cells) for count in tally]
            wide = [f"{width / cells:.2f}" for width in widths]
            print_row(f"{correlation:g}", rule, *ever[:2], wide[0], *ever[2:], wide[1])


def ranking(examinations):
    columns = "samples | strategy | stop | end | ever | fixed number, end | mean width | fixed number"
    print_head(f"Intervals of the AUROC that miss, in percent: {examinations} examinations each", columns)
    plan = [("single", strategy, rule) for strategy in ("precision", "uncertainty") for rule in list(RULES)[:3]]
    plan += [("1 to 8 of a patient", "uncertainty", rule) for rule in list(RULES)[:2]]
    for kind, strategy, rule in plan:
        tally, width = np.zeros(3, int), np.zeros(2)
        for number in range(examinations):
            random = np.random.default_rng([8, number])
            patient = np.arange(200) if kind == "single" else np.repeat(np.arange(60), random.integers(1, 9, 60))
            truth = (random.random((len(patient), 1)) < 0.3).astype(np.int8)
            habit = 0 if kind == "single" else random.normal(0, 1, 60)[patient][:, None]
            score = truth + habit + random.normal(0, 1, truth.shape)
            bank = Bank(None, "a", truth, patient=patient)
            answers = Answers(bank, (1 / (1 + np.exp(-score))).round(2))
            done = examine(bank, answers, strategy=strategy, seed=number, **RULES[rule])
            area = stats.norm.cdf(1 / np.sqrt(2 if kind == "single" else 4))
            sample, sign, prob = done.record.about(0)
            of = [len(np.unique(patient[truth[:, 0] == side])) for side in (0, 1)]
            steps = [*range(4, len(sample), 4), len(sample)]
            found = [ranking_at(sign[:n], prob[:n], patient[sample[:n]], of) for n in steps]
            misses = [not one.low <= area <= one.high for one in found]
            fixed = ranking_at(sign, prob, patient[sample], None)
            tally += misses[-1], any(misses), not fixed.low <= area <= fixed.high
            width += found[-1].high - found[-1].low, fixed.high - fixed.low
        missed = (share(count, examinations) for count in tally)
        print_row(kind, strategy, rule, *missed, *(f"{one / examinations:.2f}" for one in width))


def released(folder):
    """Votes (500, 5, 8) and calls (500, 5) of ten models, as released: a model's decisions, or its P(yes) above one half."""

    def table(path):
        return {row["Study"]: [float(row[name]) for name in CHEXPERT] for row in csv.DictReader(path.open())}

    votes = [table(path) for path in sorted(folder.glob("radiologists/*/bc*.csv"))]
    models = []
    for path in sorted(folder.glob("example_models/predictions/standard/*.csv")):
        decided = folder / "example_models/decisions/standard" / path.name.replace("predictions", "decisions")
        models.append(np.array([table(decided if decided.exists() else path)[study] for study in votes[0]]) > 0.5)
    return np.stack([np.array([each[study] for study in votes[0]]) for each in votes], axis=2).astype(np.int8), models


def in_that_layout():
    """The same, drawn: five concepts as common as CheXpert's, readers of different strictness, models of different quality."""
    random = np.random.default_rng(10)
    severity = random.random((500, 5))
    common = 1 - np.array([0.3, 0.16, 0.06, 0.3, 0.24])
    votes = [severity + random.normal(0, 0.1, (500, 5)) > common + random.normal(0, 0.04, 5) for _ in range(8)]
    noises = np.linspace(0.08, 0.3, 10)
    models = [severity + random.normal(0, std, (500, 5)) > common + random.normal(0, 0.05, 5) for std in noises]
    return np.stack(votes, axis=2).astype(np.int8), models


def fixed(folder):
    columns = "files | truth | goal | goals | decided by sequences | by intervals fixed beforehand"
    title = "Goals of ten models that are decided when every question was asked"
    print_head(f"{title}, five concepts in 500 studies", columns)
    files = {"drawn": in_that_layout(), **({"released": released(folder)} if folder else {})}
    for name, (votes, models) in files.items():
        bank = Bank(None, CHEXPERT, majority(votes, np.random.default_rng(0)))
        panel = ReaderPanel(tuple(map(str, range(8))), votes, "majority")
        found = {way: [examine(bank, Answers(bank, said * 1.0), fixed=way) for said in models] for way in (False, True)}
        for truth in ("these readers", "another panel"):
            if truth == "another panel":
                found = {way: [enter_readers(one, panel) for one in done] for way, done in found.items()}
            for goal in (0.6, 0.7, 0.8, 0.9):
                told = [[each for one in done for each in one.concepts.values()] for done in found.values()]
                rates = [[r.simultaneous for one in each for r in (one.sensitivity, one.specificity)] for each in told]
                decided = [sum(one.low >= goal or one.high < goal for one in some) for some in rates]
                print_row(name, truth, f"{goal:.0%}", len(rates[0]), *decided)


def main_decision(studies):
    title = f"Intervals of the difference at equal grade that miss it (0.3), in percent: {studies} studies each"
    print_head(title, "patients, two images each | questions | missed")
    for patients, questions in ((30, 60), (60, 120), (60, 240), (200, 800)):
        missed = 0
        for number in range(studies):
            random = np.random.default_rng([6, number])
            n = 2 * patients
            grade = np.repeat(random.integers(0, 5, patients), 2).astype(np.int8)
            truth = (random.random((n, 2)) < (0.1 + 0.18 * grade)[:, None]).astype(np.int8)
            yes = (random.random((n, 2)) < 0.85) == (truth == 1)
            habit = np.repeat(random.uniform(-0.1, 0.1, patients), 2)
            refers = random.random(n) < 0.1 + 0.1 * grade + 0.3 * yes[:, 0] + habit
            names = [f"i{k}" for k in range(n)]
            bank = Bank(names, ("a", "b"), truth)
            predictions = Predictions(
                names, (grade >= 2).astype(np.int8), np.where(refers, 0.8, 0.2), grade=grade,
                patient_id=np.repeat([f"p{k}" for k in range(patients)], 2),
            )  # fmt: skip
            record = examine(bank, Answers(bank, np.where(yes, 0.9, 0.1)), questions=questions, seed=number).record
            one = agreement(bank, record, decisions(bank, predictions, FrozenThreshold())).concepts["a"].at_equal_grade
            missed += not one.low <= 0.3 <= one.high
        print_row(patients, f"{questions} of {2 * n}", share(missed, studies))


PARTS = {
    "false": false_findings, "power": power, "claims": claims, "coverage": coverage, "readers": readers,
    "patients": patients, "ranking": ranking, "decision": main_decision, "beside": beside, "latent": latent,
}  # fmt: skip


def main():
    options = parse(__doc__, examinations=400, parts=[*PARTS, "fixed"], files=None)
    for name in options.parts:
        if name == "fixed":
            fixed(options.files)
        else:
            PARTS[name](options.examinations)


if __name__ == "__main__":
    main()
