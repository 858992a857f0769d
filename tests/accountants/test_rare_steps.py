"""Long runs of rare steps, where every error is multiplied by the number of steps, against mpmath and other engines."""

import math

import mpmath
import numpy as np
import pytest

from tacit.accountants.pld import Line, PoissonGaussian, delta_bracket, epsilon_bracket, moments_on_line
from tacit.accountants.pld.contour.decay import log_decay
from tacit.accountants.pld.contour.moments import by_products, by_transforms
from tacit.accountants.pld.contour.points import points_for
from tacit.accountants.pld.contour.saddle import cumulants
from tacit.accountants.pld.contour.solve import ContourSide
from tacit.accountants.pld.lattice.laws import cells_between, edges_of
from tacit.accountants.pld.lattice.solve import LatticeSide
from tacit.accountants.pld.steps import Bracket, cut, merge

# (q, m, T, delta)
LONG = [
    (1e-5, 1.0, 10**6, 1e-12),
    (2e-5, 0.7, 10**6, 1e-12),
    (1e-5, 0.5, 10**5, 1e-12),
    (1.4e-5, 0.62, 10562, 1.4e-6),
    (4.4e-4, 0.83, 11189, 2e-9),
    (1e-5, 0.3, 10**6, 1e-12),
]


@pytest.mark.parametrize(("q", "m", "steps", "delta"), LONG)
def test_long_runs_are_narrow_and_consistent(q, m, steps, delta):
    events = [PoissonGaussian(q, m, steps)]
    found = epsilon_bracket(events, delta)
    assert found.upper - found.lower <= max(1e-6, 1e-4 * found.upper)
    assert delta_bracket(events, found.upper).lower <= delta <= delta_bracket(events, found.lower).upper


@pytest.mark.parametrize(
    ("q", "m", "tilt", "height", "dropped"),
    [
        (1e-5, 1.0, 93.0, 600.0, 1e-24),
        (1e-5, 1.0, 240.0, 500.0, 1e-24),
        (2e-5, 0.7, 13.0, 150.0, 1e-24),
        (1e-3, 0.4, 4.0, 60.0, 1e-20),
        (0.3, 2.0, 30.0, 40.0, 1e-18),
        (1e-5, 1.0, 5.0, 900.0, 0.0),
        (1e-4, 3.0, -900.0, 2000.0, 0.0),
    ],
)
def test_moments_up_to_a_cap_against_mpmath(q, m, tilt, height, dropped):
    mpmath.mp.dps = 30
    steps = merge([PoissonGaussian(q, m, 1)])
    steps = cut(steps, dropped) if dropped else steps
    found = moments_on_line(steps.probabilities, steps.noise_multipliers, Line(tilt, height / 8, 9), steps.caps)
    end = min(float(steps.caps[0]), max(0.0, tilt) + 14 * m)

    def exact(y):
        def integrand(x):
            rho = mpmath.log1p(q * mpmath.expm1((2 * x - 1) / (2 * mpmath.mpf(m) ** 2)))
            return mpmath.npdf(x, 0, m) * mpmath.exp(mpmath.mpc(tilt, y) * rho)

        return mpmath.quadgl(integrand, mpmath.linspace(min(0.0, tilt) - 14 * m, end, 160), maxdegree=4)

    peak = exact(0)
    assert abs(mpmath.log(peak) - found.log_peak[0]) <= found.peak_error[0]
    for k in (1, 8):
        assert (
            abs(exact(k * height / 8) / peak - 1 - mpmath.mpmathify(complex(found.excess[0, k]))) <= found.errors[0, k]
        )
    if q < 1e-4 and tilt < 100:
        assert found.peak_error[0] < 1e-16  # what the cancellation-free form is for


@pytest.mark.parametrize(("q", "m", "tilt"), [(1e-3, 1.0, 5.0), (0.2, 0.6, -3.0), (1e-5, 5.0, 40.0)])
def test_both_sums_agree(q, m, tilt):
    points = points_for(np.array([q]), np.array([m]), np.array([np.inf]), tilt, 60.0)
    one, other = by_products(points, 0.5, 7, 120), by_transforms(points, 0.5, 7, 120)
    assert np.all(np.abs(one[0] - other[0]) <= one[1] + other[1])


@pytest.mark.parametrize(
    ("q", "m", "tilt"), [(1e-4, 1.0, 60.0), (1e-4, 0.6, -20.0), (1e-3, 3.0, 8.0), (1e-3, 0.4, 1.5)]
)
def test_decay_bound_holds_far_up(q, m, tilt):
    """Where rare losses are left out and where the bound by parts takes over."""
    for steps in (merge([PoissonGaussian(q, m, 1)]), cut(merge([PoissonGaussian(q, m, 1)]), 1e-20)):
        heights = np.geomspace(0.01 / q, 3 / q, 60)
        bound, line = log_decay(steps, tilt, heights), Line(tilt, heights[-1] / 1500, 1501)
        found = moments_on_line(steps.probabilities, steps.noise_multipliers, line, steps.caps)
        size = np.log(np.maximum(np.abs(found.ratios[0]) - found.errors[0], 1e-300))
        place = np.searchsorted(heights, line.heights, side="right") - 1
        assert np.all(size[place >= 0] <= bound[place[place >= 0]])
        assert bound[20] < 0  # the bound says something


def test_contours_and_lattices_agree():
    """Two engines that share nothing but the closed form of the loss."""
    generator = np.random.default_rng(5)
    for _ in range(6):
        q, m = 10 ** generator.uniform(-5, -3), generator.uniform(0.4, 2.0)
        delta, count = 10 ** generator.uniform(-11, -4), int(10 ** generator.uniform(3, 4.2))
        steps = merge([PoissonGaussian(q, m, count)])
        side = ContourSide(steps, "remove", 1e-6 * delta)
        one = side.epsilon(delta)
        other = LatticeSide(steps, "remove").epsilon(delta, Bracket(0.0, math.inf), most=200_000).bracket
        assert one.lower <= other.upper
        assert other.lower <= one.upper


@pytest.mark.parametrize(
    ("q", "m", "width"), [(2.5e-4, 0.836, 1e-5), (1e-5, 0.5, 1e-6), (0.01, 1.1, 1e-4), (0.3, 20.0, 1e-6)]
)
def test_fine_cells_keep_their_digits(q, m, width):
    """As differences of tails they would lose the more of them the finer the lattice is."""
    mpmath.mp.dps = 40
    places = width * np.unique(np.geomspace(1, 300_000, 12).astype(int)).astype(float)
    u = np.sort(np.concatenate([places, places + width]))
    cells, x = cells_between(q, m, u), edges_of(q, m, u)
    for k in range(0, len(u), 2):
        for found, error, mean, share in ((cells.a, cells.a_error, 0, 1 - q), (cells.b, cells.b_error, 1, q)):
            ends = [(mpmath.mpf(edge) - mean) / mpmath.mpf(m) for edge in (x[k], x[k + 1])]
            exact = share * mpmath.quadgl(mpmath.npdf, ends)
            assert abs(exact - mpmath.mpf(float(found[k]))) <= error[k]
            assert error[k] <= 5e-12 * found[k] + 1e-300


@pytest.mark.parametrize(("q", "m", "steps", "delta"), [(2.5e-4, 0.84, 3441, 5.7e-8), (1e-3, 1.3, 457, 2e-12)])
def test_both_bounds_of_a_lattice_are_of_second_order(q, m, steps, delta):
    events = [PoissonGaussian(q, m, steps)]
    epsilon = epsilon_bracket(events, delta).upper
    exact = delta_bracket(events, epsilon)
    rare = LatticeSide(merge(events), "remove")
    coarse, fine = (rare.lattice(number, epsilon, epsilon, epsilon, math.log(delta)) for number in (4000, 16000))
    assert exact.lower - fine.lower(epsilon) < (exact.upper - coarse.lower(epsilon)) / 8
    assert fine.upper(epsilon) - exact.upper < (coarse.upper(epsilon) - exact.lower) / 8


@pytest.mark.parametrize("direction", ["remove", "add"])
@pytest.mark.parametrize("dropped", [0.0, 1e-18])
def test_moments_together_are_those_one_by_one(direction, dropped):
    steps = merge([PoissonGaussian(1e-4, 0.8, 500), PoissonGaussian(0.02, 3.0, 40)])
    steps = cut(steps, dropped) if dropped else steps
    points = [0.5, 3.0, 11.0, 40.0]
    together = cumulants(steps, direction, points)
    for c, one in zip(points, together, strict=True):
        alone = cumulants(steps, direction, [c])[0]
        assert abs(one.value - alone.value) <= one.error + alone.error
        assert one.first == pytest.approx(alone.first, rel=1e-9)
        assert one.second == pytest.approx(alone.second, rel=1e-9)
