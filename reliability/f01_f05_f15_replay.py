"""F1, F5, F7, F14, F15, F18: the same randomness on D and on D with one hostile unit more."""

import random
from collections.abc import Iterator

import numpy as np

from reliability.figures import Figure, tries
from tacit.audit.neighbours import CLIPPING, HOSTILE, LABELS, SAMPLING, SCALES, UNITS, Case
from tacit.audit.replay import RunOutput, check_replay, compare
from tacit.tables import Category, Number, Schema, Table, encode_inputs


def prove(effort: float) -> Iterator[Figure]:
    chance = random.Random(17)
    known: dict[str, RunOutput] = {}
    names = [(s, c) for s in SAMPLING for c in CLIPPING]
    each = tries(40, effort)
    broke, most, count, nobody = 0, 0.0, 0, 0
    for sampling, clipping in names if effort >= 0.01 else chance.sample(names, 4):
        for _ in range(each):
            case = Case(SAMPLING[sampling], CLIPPING[clipping], *hostile(chance))
            found, share = compare(case, known)
            broke, most, count = broke + bool(found), max(most, share), count + 1
            nobody += sampling == "nobody"
    reached = f"largest move {most:.6f} of what was charged for; {nobody} with nobody drawn"
    yield Figure("F1", "replay: divisor, files, output, releases, for every policy and rule", count, broke, reached,
                 "0 differences in 1,000 cases")  # fmt: skip
    yield Figure("F14", "replay: ledger, files and words on neighbours, byte for byte", count, broke)
    faults = [
        Case(SAMPLING["full batch"], CLIPPING["clip"], [value] * 4, label) for value in HOSTILE for label in LABELS
    ]
    faults = faults if effort >= 0.01 else faults[::9]
    finding = check_replay(faults)
    yield Figure("F5", "replay: NaN, inf, 3e38, denormals, labels out of range", finding.times, len(finding.broke))
    units = [
        Case(SAMPLING[sampling], CLIPPING["clip"], *hostile(chance), unit=unit, rows=rows)
        for unit, rows in UNITS.values()
        for sampling in ("poisson", "full batch")
        for _ in range(tries(20, effort))
    ]
    finding = check_replay(units)
    yield Figure("F18", "replay: all rows of a user, a microbatch, a record in one", finding.times, len(finding.broke),
                 finding.measured)  # fmt: skip
    yield outliers(tries(1000, effort))


def hostile(chance: random.Random) -> tuple[list[float], int, float]:
    """Half of the records hold numbers only: one that is none adds nothing, whatever the rest."""
    numbers = [chance.uniform(-100, 100) * chance.choice((0.01, 1.0)) for _ in range(4)]
    values = numbers if chance.random() < 0.5 else [chance.choice((*HOSTILE, number)) for number in numbers]
    return values, chance.choice(LABELS), chance.choice(SCALES)


COLUMNS = tuple(Number(f"x{high:g}", 0.0, high, how) for high, how in ((0.1, "linear"), (10.0, "sqrt"), (1e4, "log")))
SCHEMA = Schema((*COLUMNS, Category("y", ("no", "yes"))), dataset="made up", records=6, target="y")


def outliers(times: int) -> Figure:
    """An outlier must not change the features of other rows: bounds are declared, not taken from data."""
    generator = np.random.default_rng(3)
    lost = 0
    for _ in range(times):
        rows = generator.uniform(0, 1, (6, len(COLUMNS))) * [column.high for column in COLUMNS]
        outlier = np.full((1, len(COLUMNS)), generator.choice([1e9, -1e9, 0.0, 1e300, np.nan, np.inf]))
        lost += not np.array_equal(features(np.concatenate([rows, outlier]))[:6], features(rows))
    return Figure("F15", "an outlier more: features of the other rows", times, lost)


def features(rows: np.ndarray) -> np.ndarray:
    return encode_inputs(Table({column.name: rows[:, place] for place, column in enumerate(COLUMNS)}), SCHEMA, "y")
