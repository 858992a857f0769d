"""The certified accountant against closed forms, quadrature, grids, and itself."""

import json
import math
from itertools import pairwise
from pathlib import Path

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from scipy.integrate import quad
from scipy.special import ndtr

from tacit.accountants.pld import (
    Line,
    PoissonGaussian,
    delta_bracket,
    delta_curve,
    epsilon_bracket,
    moments_on_line,
)
from tacit.accountants.pld.closed_form import one_step_add, one_step_remove
from tacit.accountants.pld.contour.decay import log_decay
from tacit.accountants.pld.contour.integral import contour
from tacit.accountants.pld.contour.saddle import RealAxis
from tacit.accountants.pld.contour.solve import SOME_WORK, ContourSide, plan
from tacit.accountants.pld.lattice.solve import Frame, LatticeSide, grid
from tacit.accountants.pld.steps import cut, merge
from tacit.errors import InputError

GOLDEN = Path(__file__).parent.parent / "golden.json"

# maths.md 3: (q, m, T) and epsilon at delta 1e-5
TRIED = [
    (256 / 60000, 1.3, 3516, 0.864540),
    (0.001, 1.0, 10**6, 6.026131),
    (0.01, 0.6, 10**4, 23.017572),
    (0.001, 0.6, 10**5, 6.112825),
    (0.001, 4.0, 10**6, 0.942886),
    (128 / 60000, 3.18, 9375, 0.220082),
    (0.05, 1.0, 200, 4.765919),
]


def golden_ledger(size):
    generator = np.random.default_rng(0)
    q, m = generator.uniform(0.001, 0.01, 1000), generator.uniform(0.8, 3.0, 1000)
    return [PoissonGaussian(float(a), float(b), 1) for a, b in zip(q[:size], m[:size], strict=True)]


def narrow(bracket):
    return bracket.upper - bracket.lower <= max(1e-6, 1e-4 * bracket.upper)


@pytest.mark.parametrize(("q", "m", "steps", "epsilon"), TRIED)
def test_numbers_of_maths_3(q, m, steps, epsilon):
    found = epsilon_bracket([PoissonGaussian(q, m, steps)], 1e-5)
    assert narrow(found)
    assert found.lower - 1e-6 <= epsilon <= found.upper + 1e-6


@pytest.mark.parametrize(("size", "epsilon"), [(50, 0.354468), (1000, 0.916368)])
def test_heterogeneous_ledger(size, epsilon):
    found = epsilon_bracket(golden_ledger(size), 1e-5)
    assert narrow(found)
    assert found.upper == pytest.approx(epsilon, rel=2e-5)


@pytest.mark.skipif(not GOLDEN.exists(), reason="golden.json is not here")
def test_golden():
    for case in json.loads(GOLDEN.read_text())["cases"]:
        if case["kind"] == "pld_epsilon":
            i = case["inputs"]
            found = epsilon_bracket([PoissonGaussian(i["q"], i["sigma"], i["T"])], i["delta"])
            assert narrow(found)
            assert found.upper == pytest.approx(case["output"]["epsilon"], rel=case["tolerance"]["rel"]), case["id"]


def test_no_events_cost_nothing():
    assert epsilon_bracket([], 1e-5).upper == 0.0
    assert epsilon_bracket([PoissonGaussian(0.1, 1.0, 0)], 1e-5).upper == 0.0
    assert delta_bracket([], 0.0).upper == 0.0


def test_bad_questions_are_refused():
    for q, m, steps in [(0.0, 1.0, 1), (1.1, 1.0, 1), (0.5, 0.0, 1), (0.5, math.inf, 1), (0.5, 1.0, -1)]:
        with pytest.raises(InputError):
            PoissonGaussian(q, m, steps)
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(InputError):
            epsilon_bracket([], delta)
    with pytest.raises(InputError):
        delta_bracket([], -1.0)


def exact_gaussian_delta(epsilon, mu):
    mpmath.mp.dps = 40
    epsilon, mu = mpmath.mpf(epsilon), mpmath.mpf(mu)
    return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("mu", [0.003, 0.05, 1.0, 8.0, 300.0])
def test_plain_gaussians_merge_and_are_exact(mu):
    events = [PoissonGaussian(1.0, 2 / mu, 3), PoissonGaussian(1.0, 2 / mu, 1)]
    for share in (0.0, 1.0, 4.0):
        epsilon = max(0.0, mu**2 / 2 + (share - 1) * mu)
        found, exact = delta_bracket(events, epsilon), exact_gaussian_delta(epsilon, mu)
        assert found.lower <= exact <= found.upper
        assert found.upper - found.lower < 1e-8 * found.upper


@pytest.mark.parametrize(("q", "m"), [(1e-5, 0.3), (1e-5, 100.0), (0.01, 1.0), (0.5, 0.5), (0.999, 3.0)])
def test_one_step_is_exact(q, m):
    mpmath.mp.dps = 40
    for delta in (1e-12, 1e-8, 1e-3):
        found = epsilon_bracket([PoissonGaussian(q, m, 1)], delta)
        if found.upper == 0:
            assert q * exact_gaussian_delta(0, 1 / m) <= delta
            continue
        inner = [mpmath.log(1 + mpmath.expm1(mpmath.mpf(e)) / mpmath.mpf(q)) for e in (found.lower, found.upper)]
        assert q * exact_gaussian_delta(inner[1], 1 / mpmath.mpf(m)) <= delta * (1 + 1e-15)
        assert narrow(found)
        assert q * exact_gaussian_delta(inner[0], 1 / mpmath.mpf(m)) >= delta * (1 - 1e-6)


def two_step_delta(epsilon, first, second, direction):
    """E over the first step's loss of the second step's delta at what is left of epsilon: one integral."""
    q, m = first

    def rho(x, q, m):
        return np.logaddexp(math.log1p(-q), math.log(q) + (2 * x - 1) / (2 * m**2))

    def left(rest):
        a, b = second
        sign = 1 if direction == "remove" else -1
        ratio = math.exp(sign * rest) - 1 + a  # the likelihood ratio at the threshold, shifted
        if ratio <= 0:
            return -math.expm1(rest) if direction == "remove" else 0.0
        x = b**2 * math.log(ratio / a) + 0.5
        null, mixed = ndtr(-x / b), (1 - a) * ndtr(-x / b) + a * ndtr((1 - x) / b)
        if direction == "remove":
            return mixed - math.exp(rest) * null
        return ndtr(x / b) - math.exp(rest) * ((1 - a) * ndtr(x / b) + a * ndtr((x - 1) / b))

    def integrand(x):
        null = math.exp(-(x**2) / (2 * m**2)) / (m * math.sqrt(2 * math.pi))
        loss = float(rho(x, q, m))
        if direction == "remove":
            return null * math.exp(loss) * left(epsilon - loss)
        return null * left(epsilon + loss)

    return quad(integrand, -10 * m, 1 + 10 * m, limit=2000, epsabs=1e-16, epsrel=1e-11, points=[0.0, 0.5, 1.0])[0]


@pytest.mark.parametrize("first", [(0.01, 1.0), (0.3, 0.7), (0.9, 2.0), (1e-3, 5.0)])
def test_two_different_steps_against_one_integral(first):
    second = (0.05, 1.3)
    events = [PoissonGaussian(*first, 1), PoissonGaussian(*second, 1)]
    for epsilon in (0.0, 0.03, 0.4, 1.5):
        found = delta_bracket(events, epsilon)
        exact = max(two_step_delta(epsilon, first, second, direction) for direction in ("remove", "add"))
        assert found.lower * (1 - 1e-8) - 1e-14 <= exact <= found.upper * (1 + 1e-8) + 1e-14


@pytest.mark.parametrize(
    ("q", "m", "tilt", "spacing"),
    [(0.01, 1.0, 5.0, 1.0), (0.5, 0.3, 3.0, 0.1), (0.99, 1.0, -6.0, 2.0), (0.001, 4.0, 30.0, 7.0)],
)
def test_moments_against_mpmath(q, m, tilt, spacing):
    mpmath.mp.dps = 20
    found = moments_on_line(np.array([q]), np.array([m]), Line(tilt, spacing, 40))

    def exact(a):
        def integrand(x):
            return mpmath.npdf(x, 0, m) * mpmath.exp(a * mpmath.log(1 - q + q * mpmath.exp((2 * x - 1) / (2 * m**2))))

        return mpmath.quad(integrand, mpmath.linspace(min(0, tilt) - 11 * m, max(0, tilt) + 11 * m, 24))

    peak = exact(mpmath.mpf(tilt))
    assert abs(mpmath.log(peak) - found.log_peak[0]) <= found.peak_error[0]
    for k in (39,):
        truth = exact(mpmath.mpc(tilt, k * spacing)) / peak
        assert abs(truth - complex(found.ratios[0, k])) <= 2 * found.errors[0, k]


@pytest.mark.parametrize("q", [1e-4, 0.02, 0.5, 0.97])
@pytest.mark.parametrize("m", [0.4, 1.0, 6.0])
@pytest.mark.parametrize("tilt", [-5.0, 1.5, 8.0])
def test_decay_bound_holds(q, m, tilt):
    for steps in (merge([PoissonGaussian(q, m, 1)]), cut(merge([PoissonGaussian(q, m, 1)]), 1e-18)):
        heights = np.geomspace(0.1, 200 * m**2 + 200, 40)
        bound = log_decay(steps, tilt, heights)
        line = Line(tilt, heights[-1] / 4000, 4000)
        found = moments_on_line(steps.probabilities, steps.noise_multipliers, line, steps.caps)
        size = np.abs(found.ratios[0]) - found.errors[0]
        for index, (low, high) in enumerate(pairwise(heights)):
            inside = (line.heights >= low) & (line.heights <= high)
            assert np.all(np.log(np.maximum(size[inside], 1e-300)) <= bound[index])


def test_curve_agrees_with_points():
    events = [PoissonGaussian(0.02, 0.9, 300), PoissonGaussian(1.0, 20.0, 4)]
    epsilons = np.array([2.0, 0.0, 0.5, 6.0, 1.0])
    lower, upper = delta_curve(events, epsilons)
    for epsilon, low, high in zip(epsilons, lower, upper, strict=True):
        found = delta_bracket(events, float(epsilon))
        assert found.lower <= high
        assert low <= found.upper
        assert high - low <= 1e-3 * high


def test_splitting_a_ledger_changes_nothing():
    whole = epsilon_bracket([PoissonGaussian(0.01, 1.1, 500)], 1e-6)
    parts = epsilon_bracket([PoissonGaussian(0.01, 1.1, 100)] * 5, 1e-6)
    assert whole == parts


def draw(generator, distinct=3):
    """A random ledger of one or a few kinds of steps, and a delta (issue 4's ranges)."""
    events = []
    for _ in range(int(generator.integers(1, distinct + 1)) if generator.random() < 0.4 else 1):
        steps = round(math.exp(generator.uniform(0, math.log(1e6))))
        steps = int(generator.integers(1, 6)) if generator.random() < 0.15 else steps
        q = 1.0 if generator.random() < 0.08 else math.exp(generator.uniform(math.log(1e-5), 0))
        events.append(PoissonGaussian(q, math.exp(generator.uniform(math.log(0.3), math.log(100))), steps))
    return events, math.exp(generator.uniform(math.log(1e-12), math.log(1e-2)))


def grid_delta(events, epsilon, pessimistic, interval):
    """dp-accounting on a grid of losses."""
    total = None
    for event in events:
        mass = -80 if event.count < 1e4 else -90
        part = privacy_loss_distribution.from_gaussian_mechanism(
            event.noise_multiplier,
            sampling_prob=event.probability,
            value_discretization_interval=interval,
            pessimistic_estimate=pessimistic,
            log_mass_truncation_bound=mass,
            use_connect_dots=pessimistic,
        )
        part = part.self_compose(event.count) if event.count > 1 else part
        total = part if total is None else total.compose(part)
    return total.get_delta_for_epsilon(epsilon)


def reach(event):
    """About the largest loss of one step that a grid has to hold."""
    return 14 / event.noise_multiplier + 0.5 / event.noise_multiplier**2


def refuted(events, delta, found, interval):
    """Whether a grid contradicts an end of the bracket by more than its usual rounding."""
    slack = 1e-7 * delta + 2e-12
    if grid_delta(events, found.upper, False, interval) > delta + slack:
        return True
    return found.lower > 0 and grid_delta(events, found.lower, True, interval) < delta - slack


def violations_against_grids(seed, wanted, points):
    """Count draws whose upper bound is refuted by an optimistic grid, or whose lower one by a pessimistic grid."""
    generator, violations, done = np.random.default_rng(seed), 0, 0
    while done < wanted:
        events, delta = draw(generator)
        found = epsilon_bracket(events, delta)
        scale = max(found.upper, max(reach(event) for event in events) / 30, 1e-4)
        if max(reach(event) for event in events) * points / (4 * scale) > 20 * points or found.upper > 1e3:
            continue
        # A grid composes by FFT without tilting, and its rounding scatters: at (.0013, .39, 442463) and two other kinds
        # three neighbouring grids say 2.5e-11, 2.6e-15 and 1.2e-12 for one delta. What is true, all of them refute.
        grids = [4 * scale / (points + more) for more in (0, 1, 2)]
        if all(refuted(events, delta, found, interval) for interval in grids):
            violations += 1
            print("violation", events, delta, found)
        done += 1
    print(f"{violations} violations in {done} ledgers against grids")
    return violations


def test_never_below_the_grid_15():
    assert violations_against_grids(seed=4, wanted=15, points=10_000) == 0


@pytest.mark.slow
def test_never_below_the_grid_400():
    assert violations_against_grids(seed=5, wanted=400, points=50_000) == 0


def disagreements_of_lines(seed, wanted):
    """Lines at different real parts share no node: their brackets of delta must overlap at every epsilon."""
    generator, violations, compared = np.random.default_rng(seed), 0, 0
    while compared < wanted:
        events, delta = draw(generator)
        steps = merge(events)
        if steps.total < 20:
            continue
        for direction in ("remove", "add"):
            axis, found = RealAxis(steps, direction), []
            peak = axis.for_delta(math.log(delta))
            epsilon = max(0.0, peak.chernoff_epsilon(math.log(delta)) - 1 / peak.c)
            for factor in (0.3, 0.6, 1.0):
                shape = plan(axis, axis.at(factor * peak.c), epsilon, math.log(delta))
                if shape.size < 20_000:
                    found.append(contour(steps, direction, shape).bounds(np.array([epsilon, 1.1 * epsilon])))
            violations += any(np.any(one[0] > other[1]) for one in found for other in found)
            compared += len(found) > 1
    print(f"{violations} disagreements in {compared} comparisons")
    return violations


def test_lines_agree_12():
    assert disagreements_of_lines(seed=10, wanted=12) == 0


@pytest.mark.slow
def test_lines_agree_1000():
    assert disagreements_of_lines(seed=11, wanted=1000) == 0


def violations_against_closed_forms(seed, wanted):
    """One step (any q) and any number of plain Gaussians, at 40 digits."""
    generator, violations = np.random.default_rng(seed), 0
    for _ in range(wanted):
        (event, *_), delta = draw(generator, distinct=1)
        q, steps = (event.probability, 1) if generator.random() < 0.6 else (1.0, event.count)
        found = epsilon_bracket([PoissonGaussian(q, event.noise_multiplier, steps)], delta)
        mu = mpmath.sqrt(steps) / mpmath.mpf(event.noise_multiplier)
        at = [
            q * exact_gaussian_delta(mpmath.log(1 + mpmath.expm1(mpmath.mpf(end)) / mpmath.mpf(q)), mu)
            for end in (found.lower, found.upper)
        ]
        violations += at[1] > delta * (1 + mpmath.mpf(10) ** -15) or (found.lower > 0 and at[0] < delta)
        violations += not narrow(found)
    print(f"{violations} violations in {wanted} ledgers against closed forms")
    return violations


def test_never_below_closed_forms_100():
    assert violations_against_closed_forms(seed=6, wanted=100) == 0


@pytest.mark.slow
def test_never_below_closed_forms_600():
    assert violations_against_closed_forms(seed=7, wanted=600) == 0


def violations_of_monotonicity(seed, wanted):
    """More noise, a smaller q, fewer steps, a larger delta: each never costs more, up to the bracket."""
    generator, violations = np.random.default_rng(seed), 0
    for turn in range(wanted):
        events, delta = draw(generator, distinct=2)
        first, factor = events[0], 1 + 10 ** generator.uniform(-4, 0)
        q, m, count = first.probability, first.noise_multiplier, first.count
        changed = [
            (PoissonGaussian(q, m * factor, count), delta),
            (PoissonGaussian(q / factor, m, count), delta),
            (PoissonGaussian(q, m, max(1, int(count / factor))), delta),
            (first, min(delta * factor, 0.5)),
        ][turn % 4]
        dear, cheap = epsilon_bracket(events, delta), epsilon_bracket([changed[0], *events[1:]], changed[1])
        assert 0 <= dear.lower <= dear.upper < math.inf
        if cheap.lower > dear.upper * (1 + 1e-12):
            violations += 1
            print("violation", events, delta, changed, dear, cheap)
    print(f"{violations} violations in {wanted} draws")
    return violations


def test_monotone_40():
    assert violations_of_monotonicity(seed=8, wanted=40) == 0


# few or rare steps, where moments hardly fall along the line: (q, m, T, delta)
RARE = [
    (1e-5, 1.0, 7, 1e-5),
    (1e-3, 1.0, 2, 1e-12),
    (1e-5, 0.3, 2, 1e-5),
    (1e-5, 10.0, 2, 1e-12),
    (1e-3, 0.3, 7, 1e-12),
    (0.1, 1.0, 2, 0.01),
    (1.2e-4, 0.83, 137, 5e-12),
    (1e-5, 1.0, 1000, 1e-12),
]


@pytest.mark.parametrize(("q", "m", "steps", "delta"), RARE)
def test_rare_steps_are_narrow(q, m, steps, delta):
    found = epsilon_bracket([PoissonGaussian(q, m, steps)], delta)
    assert narrow(found)
    # the curve of delta, which is searched by other lattices, agrees
    assert delta_bracket([PoissonGaussian(q, m, steps)], found.upper).lower <= delta
    assert delta_bracket([PoissonGaussian(q, m, steps)], found.lower).upper >= delta


def violations_of_one_step(seed, wanted):
    """A lattice of any width, for one step, against the closed form; each direction by itself."""
    generator, violations = np.random.default_rng(seed), 0
    for turn in range(wanted):
        q, m = (
            math.exp(generator.uniform(math.log(1e-5), -1e-6)),
            math.exp(generator.uniform(math.log(0.3), math.log(100))),
        )
        direction, exact = [("remove", one_step_remove), ("add", one_step_add)][turn % 2]
        reach = -math.log1p(-q) if direction == "add" else 7 / m
        epsilon, number = float(generator.uniform(0, 0.9)) * reach, int(10 ** generator.uniform(1, 4))
        least, most = (float(bound[0]) for bound in exact(np.array([epsilon]), q, m))
        least_epsilon, aim = epsilon * generator.uniform(0.5, 1), epsilon * generator.uniform(0.5, 1.5)
        frame = Frame(1.2 * reach * generator.uniform(0.5, 3) / number, number, least_epsilon, aim, -20.0)
        found = grid(merge([PoissonGaussian(q, m, 1)]), direction, frame, 2**20)
        if found is not None and (found.upper(epsilon) < least or found.lower(epsilon) > most):
            violations += 1
            print("violation", q, m, direction, epsilon, frame, least, most, found.lower(epsilon), found.upper(epsilon))
    print(f"{violations} violations in {wanted} lattices of one step")
    return violations


def test_lattices_of_one_step_200():
    assert violations_of_one_step(seed=12, wanted=200) == 0


@pytest.mark.slow
def test_lattices_of_one_step_10000():
    assert violations_of_one_step(seed=13, wanted=10_000) == 0


def disagreements_of_engines(seed, wanted):
    """The contour and the lattices share nothing but the loss: their brackets of delta must overlap."""
    generator, violations, compared = np.random.default_rng(seed), 0, 0
    while compared < wanted:
        events, delta = draw(generator)
        steps = merge(events)
        if not LatticeSide.serves(steps) or not 20 < steps.total < 1e5:
            continue
        for direction in ("remove", "add"):
            side = ContourSide(steps, direction)
            epsilon = max(0.0, side.epsilon_at_most(delta)) * float(generator.uniform(0.3, 1))
            one, other = (
                side.delta(epsilon, most_work=SOME_WORK),
                LatticeSide(steps, direction).curve(np.array([epsilon])),
            )
            violations += one.lower > other[1][0] or other[0][0] > one.upper
            compared += one.lower > 0 and other[0][0] > 0
    print(f"{violations} disagreements of engines in {compared} comparisons")
    return violations


def test_engines_agree_20():
    assert disagreements_of_engines(seed=14, wanted=20) == 0


@pytest.mark.slow
def test_engines_agree_1000():
    assert disagreements_of_engines(seed=15, wanted=1000) == 0


@pytest.mark.slow
def test_monotone_1000():
    assert violations_of_monotonicity(seed=9, wanted=1000) == 0
