"""What one record can do to a release is at most what the ledger was charged for: replayed on neighbouring tables."""

import dataclasses
import itertools
from dataclasses import dataclass, field

import numpy as np
import pytest

from tacit.errors import InputError
from tacit.regression.families import Clipped, Linear, Logistic, Multinomial, Ordered, Poisson, fold
from tacit.regression.newton.fit import release_statistics
from tacit.regression.newton.plan import PARTS, SLACK, release_plan
from tacit.regression.newton.sums import Noisy, PrivateSums, Rows

REACH = 1.7
FEATURES = 5


@dataclass(slots=True)
class Replayed(PrivateSums):
    """Keeps each sum over its bound, and gives out what an earlier run released: both runs ask at the same points."""

    given: dict = field(default_factory=dict)
    sums: dict = field(default_factory=dict)

    def _noisy(self, name, total, bound):
        self.sums[name] = total / bound
        if name not in self.given:
            self.given[name] = PrivateSums._noisy(self, name, total, bound)
        return self.given[name]


def family_and_outcomes(name, chance, rows):
    match name:
        case "linear":
            return Linear(), chance.uniform(-1, 1, rows), (-1.0, 1.0)
        case "poisson":
            return (
                Poisson(8.0, exposure=1.0, longest=2.0),
                chance.poisson(1.5, rows).clip(max=8).astype(float),
                (0.0, 8.0),
            )
        case "logistic":
            return Logistic(), chance.integers(0, 2, rows).astype(float), (0.0, 1.0)
        case "multinomial":
            return Multinomial(3), chance.integers(0, 3, rows).astype(float), (0.0, 1.0, 2.0)
        case _:
            return Ordered(4), chance.integers(0, 4, rows).astype(float), (0.0, 3.0)


def extreme_records(chance, outcomes):
    """Corners of the box, the origin, and lengths around the reach, with the largest and the smallest outcomes."""
    corners = [np.concatenate([[1.0], sign * np.ones(FEATURES - 1)]) for sign in (1.0, -1.0, 0.0)]
    corners += [np.concatenate([[1.0], chance.choice([-1.0, 1.0], FEATURES - 1)]) for _ in range(6)]
    one = np.eye(FEATURES)[0] + np.eye(FEATURES)[1]
    at_reach = np.concatenate([[1.0], np.full(FEATURES - 1, np.sqrt((REACH**2 - 1) / (FEATURES - 1)))])
    return [(x, y, e) for x in (*corners, one, at_reach) for y in outcomes for e in (0.5, 2.0)]


def worst_changes(name, monkeypatch=None, rows=300, epsilon=1.0, spread=None):
    """By name of a release, the largest norm by which one more record moves its normalised sum."""
    chance = np.random.default_rng(7)
    family, y, outcomes = family_and_outcomes(name, chance, rows)
    x = np.concatenate([np.ones((rows, 1)), chance.uniform(-1, 1, (rows, FEATURES - 1))], axis=1)
    plan = release_plan(family, FEATURES, epsilon, 1e-5, declared=spread is not None)
    first = Replayed(Rows(x, y, np.ones(rows)), REACH, plan, chance.standard_normal)
    release_statistics(first, family, spread)
    worst = dict.fromkeys(first.sums, 0.0)
    for more, outcome, exposure in extreme_records(chance, outcomes):
        data = Rows(np.vstack([x, more]), np.append(y, outcome), np.append(np.ones(rows), exposure))
        second = Replayed(data, REACH, plan, None, given=first.given)
        release_statistics(second, family, spread)
        assert set(second.sums) == set(first.sums)
        for key, total in second.sums.items():
            worst[key] = max(worst[key], float(np.linalg.norm(total - first.sums[key])))
    return worst, plan


FAMILIES = ["linear", "logistic", "poisson", "multinomial", "ordered"]


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("epsilon", [1.0, 30.0])
def test_no_record_moves_a_release_by_more_than_its_charge(name, epsilon):
    worst, plan = worst_changes(name, epsilon=epsilon)
    assert set(worst) == {release for stage in plan.stages for release in stage}
    for release, change in worst.items():
        assert change <= 1 + SLACK, release
    assert max(worst.values()) > 0.5  # the bounds are not idle


@pytest.mark.parametrize("name", FAMILIES[:3])
def test_the_releases_under_a_declaration_keep_their_bounds_too(name):
    worst, plan = worst_changes(name, spread=0.4)
    assert set(worst) == set(plan.names)
    assert {"gram row", "curvature last row"} <= set(worst)
    for release, change in worst.items():
        assert change <= 1 + SLACK, release
    assert worst["gram row"] > 0.5


def test_a_first_row_with_a_smaller_bound_is_seen(monkeypatch):
    whole = PrivateSums._noisy_matrix

    def smaller(self, name, total, *, on, off, apart=False):
        return whole(self, name, total, on=0.6 * on, off=off, apart=apart)

    monkeypatch.setattr(PrivateSums, "_noisy_matrix", smaller)
    worst, _ = worst_changes("linear", spread=0.4)
    assert worst["gram row"] > 1 + SLACK


@pytest.mark.parametrize("name", FAMILIES)
def test_a_mutant_without_weights_is_seen(name, monkeypatch):
    monkeypatch.setattr(PrivateSums, "_weights", lambda self, x: np.ones(len(x)))
    worst, _ = worst_changes(name)
    assert max(worst.values()) > 1 + SLACK


def worst_changes_by_person(name, rows=120):
    """The same for a whole person with one, three or forty rows, some of them alike, among people with some."""
    chance = np.random.default_rng(11)
    family, y, outcomes = family_and_outcomes(name, chance, rows)
    x = np.concatenate([np.ones((rows, 1)), chance.uniform(-1, 1, (rows, FEATURES - 1))], axis=1)
    people = np.sort(chance.integers(0, 40, rows))
    plan = release_plan(family, FEATURES, 1.0, 1e-5, clustered=True)
    first = Replayed(Rows(x, y, np.ones(rows), people), REACH, plan, chance.standard_normal)
    release_statistics(first, family)
    worst, extremes = dict.fromkeys(first.sums, 0.0), extreme_records(chance, outcomes)
    for count in (1, 3, 40):
        for start in range(0, len(extremes), 4):
            some = [extremes[(start + i * (start % 8 > 0)) % len(extremes)] for i in range(count)]
            more, outcome, exposure = (np.array(part) for part in zip(*some, strict=True))
            place = chance.permutation(rows + count)  # rows of one person may stand anywhere
            data = Rows(*(np.concatenate(parts)[place] for parts in (
                (x, more), (y, outcome), (np.ones(rows), exposure), (people, np.full(count, 40)))))  # fmt: skip
            second = Replayed(data, REACH, plan, None, given=first.given)
            release_statistics(second, family)
            for key, total in second.sums.items():
                worst[key] = max(worst[key], float(np.linalg.norm(total - first.sums[key])))
    return worst, plan


@pytest.mark.parametrize("name", FAMILIES)
def test_no_person_moves_a_release_by_more_than_its_charge(name):
    worst, plan = worst_changes_by_person(name)
    assert set(worst) == set(plan.names)
    assert {"scores off", "scores on"} <= set(worst)
    for release, change in worst.items():
        assert change <= 1 + SLACK, release
    assert max(worst.values()) > 0.5


@pytest.mark.parametrize("name", FAMILIES)
def test_a_mutant_that_adds_up_a_persons_rows_is_seen(name, monkeypatch):
    monkeypatch.setattr(PrivateSums, "_shares", property(lambda self: np.ones(len(self.rows.y))))
    worst, _ = worst_changes_by_person(name)
    assert max(worst.values()) > 10


def test_scores_are_those_of_people():
    """Means over a person's rows, whatever the order and the part that they lie in."""
    chance = np.random.default_rng(0)
    x = np.concatenate([np.ones((3000, 1)), chance.uniform(-1, 1, (3000, FEATURES - 1))], axis=1)
    people, theta = chance.integers(0, 1500, 3000), chance.standard_normal(FEATURES)
    people = np.unique(people, return_inverse=True)[1]
    y = chance.integers(0, 2, 3000).astype(float)
    sums = PrivateSums(Rows(x, y, np.ones(3000), people), REACH, _Anything(), np.zeros)
    found = sums.score_matrix("scores", Logistic(), theta).value
    w = np.minimum(1, REACH**2 / (x**2).sum(1))
    rows = x * (w * (1 / (1 + np.exp(-x @ theta)) - y))[:, None]
    means = np.stack([rows[people == one].mean(0) for one in range(people.max() + 1)])
    assert found == pytest.approx(means.T @ means)
    size = sums.score_size("size", Logistic(), theta).value
    assert size == pytest.approx(np.trace(means.T @ means))


def longest_parts(name):
    """By question, the longest part of one record over its bound, at coefficients near and far."""
    chance = np.random.default_rng(5)
    family, _, outcomes = family_and_outcomes(name, chance, 1)
    size = fold(family, FEATURES).shape[1]
    families = [family, family.with_clip(0.3), family.with_clip(2.0)] if isinstance(family, Clipped) else [family]
    thetas = [scale * chance.standard_normal(size) for scale in (0.1, 1.0, 10.0, 300.0) for _ in range(3)]
    worst = {}
    for x, y, e in extreme_records(chance, outcomes):
        for one, theta in itertools.product(families, thetas):
            sums = Replayed(Rows(x[None], np.array([y]), np.array([e])), REACH, _Anything(), np.zeros)
            ask_all(sums, one, theta)
            for key, total in sums.sums.items():
                worst[key] = max(worst.get(key, 0.0), float(np.linalg.norm(total)))
    return worst


class _Anything:
    names = ("gram row", "curvature row")

    def part_stddev(self, name):
        return 1.0


def ask_all(sums, family, theta):
    sums.gram("gram")
    sums.offset("offset", family)
    sums.score("score", family, theta)
    sums.curvature("curvature", family, theta)
    sums.score_size("size", family, theta)
    sums.score_matrix("scores", family, theta)
    if isinstance(family, Clipped):
        sums.residual_counts("residuals", family, theta)
    else:
        sums.mean("mean", family, theta)


@pytest.mark.parametrize("name", FAMILIES)
def test_bounds_hold_at_any_coefficients(name):
    for question, length in longest_parts(name).items():
        assert length <= 1 + SLACK, question


@pytest.mark.parametrize("bound", ["slope_bound", "offset_bound", "mean_bound", "score_bound"])
def test_a_mutant_with_a_smaller_bound_is_seen(bound, monkeypatch):
    monkeypatch.setattr(Logistic, bound, 0.8 * getattr(Logistic, bound))
    assert max(longest_parts("logistic").values()) > 1 + SLACK


def test_the_ledger_is_charged_what_is_released():
    family, y, _ = family_and_outcomes("linear", np.random.default_rng(0), 50)
    plan = release_plan(family, FEATURES, 1.0, 1e-5)
    charged = {query.group: query for charge in plan.charges() for query in charge.event.queries}
    drawn = []
    sums = PrivateSums(
        Rows(np.ones((50, FEATURES)), y, np.ones(50)), REACH, plan, lambda n: drawn.append(n) or np.ones(n)
    )
    found = sums._noisy("offset", np.zeros(3), 2.0)
    assert found.value == pytest.approx(2.0 * charged["offset"].noise_stddev)  # each part has the noise of its charge
    assert drawn == [3] * PARTS
    assert found.stddev == pytest.approx(2.0 * charged["offset"].noise_stddev / PARTS**0.5)
    assert {charge.steps for charge in plan.charges()} == {PARTS}
    assert charged["offset"].clip_norm == 1.0
    assert charged["offset"].slack == SLACK
    assert isinstance(found, Noisy)
    with pytest.raises(InputError, match="released before"):
        sums._noisy("offset", np.zeros(3), 2.0)


def test_rounding_stays_below_the_slack():
    """One record in front of many moves all parts; the change of the sum is still that of the record."""
    chance = np.random.default_rng(3)
    x = np.concatenate([np.ones((20_000, 1)), chance.uniform(-1, 1, (20_000, 4))], axis=1)
    plan = release_plan(Logistic(), 5, 1.0, 1e-5)

    def total(rows):
        sums = Replayed(Rows(rows, np.zeros(len(rows)), np.ones(len(rows))), REACH, plan, np.zeros)
        sums.gram("gram")
        return np.concatenate(list(sums.sums.values()))

    one = np.ones((1, 5))
    alone = total(one)
    assert np.linalg.norm(total(np.vstack([one, x])) - total(x) - alone) < SLACK / 100


def test_the_mean_of_counts_is_never_below_zero():
    """Between two points of its table it was -1e-12, and a draw of such counts failed after the charge."""
    eta = np.linspace(-60, 60, 10_001)[:, None]
    for most in (1.0, 2.7, 20.0, 500.0):
        found = Poisson(most).mean(eta, np.ones(len(eta)))
        assert found.min() >= 0
        assert found.max() <= most


def test_families_are_values():
    assert dataclasses.replace(Linear(), clip=0.5) == Linear(0.5)
