"""Samples of a fixed size without replacement, replace-one neighbours: one dominating pair, on a lattice, from above.

Let d be the privacy profile of the unsampled Gaussian (multiplier m = z/2, as replacing a unit moves the sum by twice
its contribution) and g = size/population. Sampling without replacement gives d'(1 + g (s - 1)) <= g d(s) for s >= 1
(Balle, Barthe and Gaboardi 2018, under substitution); below ratio 1 the profile is that above it turned round, because
the relation is symmetric. With 1 + u the ratio of (1-g) N(0) + g N(1) to N(0) that curve is D(s) = E[(1 + u - s)_+] for
s >= 1 and 1 - s + s D(1/s) for s < 1. It falls from 1, is convex on both sides, and at 1 its slope rises by
(1-g) (2 Phi(1/(2m)) - 1) >= 0: so it is the profile of a pair (Zhu, Dong and Wang 2022), which dominates the mechanism,
and whose compositions dominate those of the mechanism. Its loss under P, read off D' and its mirror image, is

    log(1 + u(x))    with density (1-g) N(0, m^2) + g N(1, m^2)  at x > 1/2,
    -log(1 + u(x))   with density N(0, m^2)                      at x > 1/2,
    0                with the rest, (1-g) (2 Phi(1/(2m)) - 1).

Each cell of a lattice of losses is spread over its ends with P and Q kept, as in ``laws``.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import erf, ndtri

from tacit.accountants.pld.lattice.composition import Bins, Profile, Tails, compose
from tacit.accountants.pld.lattice.laws import Cells, Law, any_tail, cells_between, doubt_of
from tacit.accountants.pld.loss import loss_at
from tacit.accountants.pld.steps import UNIT, PoissonGaussian
from tacit.accountants.search import crossing
from tacit.types import Floats

_CELLS = (1_000, 4_000, 16_000)  # on the side of gains; finer ones until epsilon moves by less than a thousandth
_CLOSE_ENOUGH = 1e-3
_SHARE_LOST = 1e-4  # of delta, that losses beyond the lattice may add on each side
_MOST_SIZE = 2**21


def epsilon_of_samples(events: Sequence[PoissonGaussian], delta: float, known: float) -> float:
    """An upper bound of epsilon, at most ``known``.

    Args:
        events: probability g < 1 and noise multiplier m of the unsampled release, in units of what replacing moves.
        known: an upper bound by other means, up to which lattices are made.
    """
    best = known
    for cells in _CELLS:
        found = _epsilon(events, delta, best, cells)
        if found is None or found > best * (1 - _CLOSE_ENOUGH):
            return min(best, best if found is None else found)
        best = found
    return best


def _epsilon(events: Sequence[PoissonGaussian], delta: float, known: float, cells: int) -> float | None:
    """From one lattice; None where floating point, or the size allowed, does not suffice."""
    counts = np.array([event.count for event in events], dtype=np.float64)
    above, below = _reach(events, _SHARE_LOST * delta / float(counts.sum()))
    width = above / cells
    number = math.ceil(below / width)
    laws = [law(event.probability, event.noise_multiplier, width, number, cells) for event in events]
    found = _composed(laws, counts, number, width, known, math.log(delta))
    if found is None:
        return None
    line, extra = found

    def upper(epsilon: float) -> float:
        return min(1.0, line.upper(epsilon) + extra)

    if upper(0.0) <= delta:
        return 0.0
    return crossing(upper, delta, 0.0, known, 1e-6 * known)[1] if upper(known) <= delta else None


def _reach(events: Sequence[PoissonGaussian], share: float) -> tuple[float, float]:
    """The largest gain and the largest fall of a step, but for ``share`` of the mass on each side."""
    g = np.array([event.probability for event in events])
    m = np.array([event.noise_multiplier for event in events])
    far = np.maximum(-m * ndtri(share / 2), 1 - m * ndtri(np.minimum(share / 2 / g, 0.5)))
    near = np.maximum(-m * ndtri(share), 0.5)
    return float(loss_at(far, g, m).value.max()), max(float(loss_at(near, g, m).value.max()), 1e-9)


def law(g: float, m: float, width: float, below: int, above: int) -> Law:
    """Masses of P at losses (k - below) h, k = 0 .. below + above; what lies beyond counts as infinite."""
    loss = width * np.arange(max(below, above) + 1, dtype=np.float64)
    base = -math.log1p(-g)
    u, doubt = loss + base, doubt_of(g, m, float(loss[-1]) + base, min(width, base))
    masses = np.zeros(below + above + 1)
    gains, falls = cells_between(g, m, u[: above + 1]), cells_between(g, m, u[: below + 1])
    _add_gains(masses[below:], gains, u[: above + 1], width, doubt)
    _add_falls(masses[: below + 1][::-1], falls, u[: below + 1], width, doubt, g)
    masses[below] += (1 - g) * float(erf(1 / (math.sqrt(8) * m))) * (1 + 8 * UNIT)
    end = float(u[above])
    last_a, last_b = float(gains.a[-1] + gains.a_error[-1]), float(gains.b[-1] + gains.b_error[-1])
    # beyond the end: Q at the end, with its P = e^u a, and the rest of P at infinity
    masses[-1] += math.exp(end) * last_a * (1 + 16 * UNIT * (1 + end))
    infinite = max(0.0, last_b - math.expm1(end) * max(0.0, last_a - 2 * float(gains.a_error[-1])))
    return Law(masses, 0.0, doubt, infinite + (16 * UNIT + doubt) * (last_a + last_b), 0.0)


def _add_gains(masses: Floats, cells: Cells, u: Floats, width: float, doubt: float) -> None:
    a, b, a_error, b_error = cells.a[:-1], cells.b[:-1], cells.a_error[:-1], cells.b_error[:-1]
    growth, mass = np.expm1(u[:-1]), a + b
    far = b - growth * a + b_error + growth * a_error + 8 * UNIT * (b + growth * a)  # P - e^(lower end) Q
    far = np.clip((far + 2 * doubt * mass) / -math.expm1(-width) * (1 + 8 * UNIT), 0.0, mass)
    masses[:-1] += mass - far
    masses[1:] += far + a_error + b_error + 4 * UNIT * mass


def _add_falls(masses: Floats, cells: Cells, u: Floats, width: float, doubt: float, g: float) -> None:
    """``masses`` runs downwards from loss 0; what falls further counts at the last one, which is higher."""
    a, b, a_error, b_error = cells.a[:-1], cells.b[:-1], cells.a_error[:-1], cells.b_error[:-1]
    growth, share, mass = np.expm1(u[1:]), np.exp(-u[1:]) / (1 - g), a / (1 - g)
    far = share * (growth * a - b + growth * a_error + b_error + 8 * UNIT * (b + growth * a))
    far = np.clip((far + 2 * doubt * mass) / -math.expm1(-width) * (1 + 8 * UNIT), 0.0, mass)
    masses[1:] += mass - far
    masses[:-1] += far + 2 * a_error / (1 - g) + 4 * UNIT * mass
    masses[-1] += float(cells.a[-1] + cells.a_error[-1]) / (1 - g) * (1 + 4 * UNIT)


def _composed(
    laws: list[Law], counts: Floats, below: int, width: float, known: float, log_delta: float
) -> tuple[Profile, float] | None:
    """delta from epsilon 0 to ``known``, and what losses outside of the lattice or of its window may add."""
    total = float(counts.sum())
    if width * len(laws[0].masses) > 300 or total > 1e7:
        return None
    start = int(total) * below - 3  # of the lowest sum, which is total * -below cells
    bins = _single_bins(len(laws[0].masses), width)
    tails = Tails(laws, counts, bins)
    aim, log_share = start + math.floor(known / width), log_delta + math.log(_SHARE_LOST)
    circle = tails.window(start, aim, log_share, _MOST_SIZE, known / width + 8)
    if circle is None:
        return None
    first = start - circle.skip
    line = compose(laws, counts, circle, first, tails.aliases(circle.tilt, first, circle.size))
    if line is None:
        return None
    slack = 16 * UNIT * (total * width * below + known + width * circle.size)
    moved = float(counts @ [one.shift for one in laws]) + slack - total * below * width
    lost = tails.lost(first, circle.size)
    return replace(line, first=line.first + moved), lost + any_tail([one.tail_p for one in laws], counts) * (1 + 1e-12)


def _single_bins(number: int, width: float) -> Bins:
    """Every cell by itself, as most of the mass is in the middle, at loss 0."""
    bins = Bins.of(number, 1, width)
    starts = np.arange(number)
    exponents = width * np.outer(bins.slopes, np.append(starts, starts))
    peak = exponents.max(axis=1)
    inside = np.zeros(number, dtype=np.int64)
    return replace(bins, starts=starts, ends=starts, inside=inside, peak=peak, growth=np.exp(exponents - peak[:, None]))
