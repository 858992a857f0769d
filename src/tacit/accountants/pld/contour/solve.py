"""One direction of one ledger: brackets of delta at an epsilon, and of epsilon at a delta.

For each answer the smallest contour is planned that meets its tolerance: how many nodes, how far apart, and how much
smoothing.
"""

import math

import numpy as np

from tacit.accountants.pld.contour.decay import log_decay, tails_from_decay
from tacit.accountants.pld.contour.integral import Contour, Shape, contour
from tacit.accountants.pld.contour.saddle import Cumulants, RealAxis, tilt_of
from tacit.accountants.pld.loss import step, window
from tacit.accountants.pld.steps import Bracket, Direction, Steps, at_floor, cut, enough, tolerance, total_variation
from tacit.types import Floats

_ROUNDS = 3
_MANY_NODES = 2000  # not spent on a bracket that is narrow enough
_NOTHING = Bracket(0.0, math.inf)  # known of an epsilon
_CONTOURS, _FEW_CONTOURS = 24, 6  # of one curve; fewer where a lattice may do
_MOST_POINTS = 1.5e6  # of one step
_MOST_WORK = 1e9  # multiplications of one contour: about 0.15 seconds
SOME_WORK, LITTLE_WORK = 2e8, 6e6  # where a lattice may, or will, do as well
_POINT_WORK, _NODE_WORK = 1000.0, 6000.0  # of a transform, in the same unit
_LADDER: Floats = 1.12 ** np.arange(-40, 200, dtype=np.float64)


def plan(axis: RealAxis, peak: Cumulants, epsilon: float, log_delta: float) -> Shape:
    """Choose the nodes for epsilons around one whose delta is about exp(log_delta).

    Tolerances are relative to delta: an error of c * t in log delta moves epsilon by about t.
    """
    width = tolerance(epsilon)
    relative = min(max(peak.c * width, 1e-11), 1e-3)
    log_share = math.log(0.02 * relative) + log_delta
    peak, above, length = axis.best_line(peak, epsilon, log_delta, log_share)
    room = log_share - (peak.value - peak.c * epsilon)
    spacing = 2 * math.pi / length
    top, tau, log_tail, work = _top(axis.steps, peak, tilt_of(axis.direction, peak.c), room, width, spacing)
    return Shape(peak, above, spacing, math.ceil(top / spacing) + 2, tau, log_tail, work)


def _top(
    steps: Steps, peak: Cumulants, tilt: float, room: float, width: float, spacing: float
) -> tuple[float, float, float, float]:
    """The height of the last node, tau, the log of the tail above it (at most ``room``), and how much work that is.

    Smoothing moves epsilon by about 3.4 tau^2 (c+1)/2; it is used only if it saves half of the nodes.
    """
    heights: Floats = peak.c * _LADDER
    decay = log_decay(steps, tilt, heights) if steps.size else np.zeros(len(heights))

    def first(square: float) -> tuple[int, float]:
        tails = tails_from_decay(decay, heights, steps.gaussian_square + square, spacing)
        index = int(np.argmax(tails <= room)) if np.any(tails <= room) else len(heights) - 1
        return index, float(tails[index])

    tau = math.sqrt(0.5 * width / (1.7 * (peak.c + 1)))
    natural, smoothed = first(0.0), first(tau**2)
    if natural[1] <= room and heights[natural[0]] < 2 * heights[smoothed[0]]:
        tau, smoothed = 0.0, natural
    tilts = np.full(steps.size, tilt)
    low, high = (
        window(steps.probabilities, steps.noise_multipliers, tilts, steps.caps) if steps.size else (tilts, tilts)
    )
    work = _work(steps, tilts, high - low, float(heights[smoothed[0]]), spacing)
    asked = work
    while tau < 1 and work > _MOST_WORK:
        tau = max(1.3 * tau, 0.1 * width)  # a wider bracket rather than no answer
        smoothed = first(tau**2)
        work = _work(steps, tilts, high - low, float(heights[smoothed[0]]), spacing)
    return float(heights[smoothed[0]]), tau, smoothed[1], asked


def _work(steps: Steps, tilts: Floats, lengths: Floats, top: float, spacing: float) -> float:
    """Nodes times trapezoid points over all steps, or what transforms cost instead; infinite if the points of one are
    too many to hold."""
    if not steps.size:
        return 0.0
    points, nodes = lengths / step(steps.noise_multipliers, tilts, top), top / spacing
    if points.max() >= _MOST_POINTS:
        return math.inf
    return min(float(points.sum()) * nodes, float((_POINT_WORK * points + _NODE_WORK * nodes).sum()))


class ContourSide:
    """Certified answers for removing, or for adding, one record.

    Args:
        dropped: the probability of losing noise too large to follow, which every upper bound of delta includes.
        start: where to look first for the best line.
    """

    def __init__(self, steps: Steps, direction: Direction, dropped: float = 0.0, start: float = 0.0) -> None:
        self.dropped = dropped if direction == "remove" and steps.size else 0.0
        self.steps, self.direction = cut(steps, self.dropped) if self.dropped else steps, direction
        self.axis = RealAxis(self.steps, direction, start)

    def delta_at_most(self, epsilon: float) -> float:
        """The Chernoff bound of delta: never below the truth, without a contour."""
        return min(1.0, math.exp(min(0.0, self.axis.log_delta_at_most(epsilon))) + self.dropped)

    def epsilon_at_most(self, delta: float) -> float:
        """The Chernoff bound of epsilon, which may be negative."""
        return self.axis.epsilon_at_most(math.log(delta - self.dropped))

    def cost(self, delta: float) -> tuple[float, float]:
        """A measure of the nodes that ``epsilon`` will need (about their period), and what is little."""
        epsilon, log_delta = max(0.0, self.epsilon_at_most(delta)), math.log(delta - self.dropped)
        line, log_share = self.axis.for_delta(log_delta), math.log(1e-6) + log_delta
        return self.axis.period(line, epsilon, log_share), 1.5 * (1 - log_share) / line.c

    def surely_within(self, epsilon: float, delta: float) -> bool:
        """Whether the Chernoff bound alone shows (epsilon, delta)."""
        return delta > self.dropped and self.axis.reaches(epsilon, math.log(delta - self.dropped))

    def bounds(self, nodes: Contour, epsilons: Floats) -> tuple[Floats, Floats]:
        """The bounds of the contour, with what was dropped."""
        lower, upper = nodes.bounds(epsilons)
        return lower, np.minimum(upper + self.dropped, 1.0)

    def delta(self, epsilon: float, most_work: float = math.inf) -> Bracket:
        """A bracket of delta(epsilon), as narrow as the tolerance of epsilon asks for."""
        nodes = self.contour_at(epsilon, most_work)
        if nodes is None:
            return Bracket(0.0, max(self.delta_at_most(epsilon), 5e-324))
        lower, upper = self.bounds(nodes, np.array([epsilon]))
        return Bracket(float(lower[0]), min(float(upper[0]), self.delta_at_most(epsilon)))

    def contour_at(self, epsilon: float, most_work: float = math.inf) -> Contour | None:
        """Nodes that resolve delta(epsilon); None where delta is too small for floating point, or they are too many."""
        ceiling = self.delta_at_most(epsilon)
        if ceiling < 1e-290:
            return None
        peak = self.axis.for_epsilon(epsilon)
        log_delta, nodes = math.log(ceiling) - 2.0, None
        for _ in range(_ROUNDS):
            shape = plan(self.axis, peak, epsilon, log_delta)
            if shape.work > most_work:
                break
            nodes = contour(self.steps, self.direction, shape)
            lower, upper = (float(bound[0]) for bound in nodes.bounds(np.array([epsilon])))
            guess = math.log(max(lower, 0.1 * upper, 1e-300))
            if upper - lower <= peak.c * tolerance(epsilon) * lower or guess > log_delta - 0.5:
                break
            log_delta = guess
        return nodes

    def epsilon(
        self,
        delta: float,
        known: Bracket = _NOTHING,
        floor: float = 0.0,
        most_work: float = math.inf,
        rounds: int = _ROUNDS,
    ) -> Bracket:
        """A bracket of the smallest epsilon >= floor with delta(epsilon) <= delta, within the one known already.

        Args:
            most_work: leave it at what is known if the nodes are more work.
        """
        ceiling, log_delta = self.epsilon_at_most(delta), math.log(delta - self.dropped)
        peak = self.axis.for_delta(log_delta)
        if ceiling <= known.lower or total_variation(self.steps) <= delta:
            return at_floor(known.lower, floor)
        found = Bracket(known.lower, min(ceiling, known.upper))
        guess = max(0.0, known.upper if math.isfinite(known.upper) else ceiling - 2 / peak.c)
        for _ in range(rounds):
            shape = plan(self.axis, peak, guess, log_delta)
            narrow = found.upper - found.lower <= enough(found.lower)
            if shape.work > most_work or (shape.size > _MANY_NODES and narrow):
                break
            found = contour(self.steps, self.direction, shape).narrow(found, delta, self.dropped, floor)
            if found.upper - found.lower <= 2 * tolerance(found.lower) or abs(found.upper - guess) < 0.1 / peak.c:
                break
            guess = found.upper
        return found


def curve_bounds(side: ContourSide, epsilons: Floats, most_work: float = math.inf) -> tuple[Floats, Floats]:
    """Bounds of delta at many epsilons: nodes made for one serve all neighbours that they resolve to 0.05 %.

    Args:
        most_work: leave it at Chernoff's bound where the nodes are more work.
    """
    lower, upper = np.zeros(len(epsilons)), np.ones(len(epsilons))
    waiting = list(np.argsort(epsilons))
    for _ in range(_CONTOURS if most_work == math.inf else _FEW_CONTOURS):
        if not waiting:
            break
        chosen = waiting[len(waiting) // 2]
        nodes = side.contour_at(float(epsilons[chosen]), most_work)
        if nodes is None:
            upper[chosen] = min(upper[chosen], max(side.delta_at_most(float(epsilons[chosen])), 5e-324))
            waiting.remove(chosen)
            continue
        low, high = side.bounds(nodes, epsilons[waiting])
        lower[waiting], upper[waiting] = np.maximum(lower[waiting], low), np.minimum(upper[waiting], high)
        aim = np.array([tolerance(float(epsilon)) for epsilon in epsilons[waiting]])
        served = high - low <= np.maximum(nodes.shape.peak.c * aim, 5e-4) * low
        waiting = [index for index, done in zip(waiting, served, strict=True) if not done and index != chosen]
    for index in waiting if most_work == math.inf else []:
        upper[index] = min(upper[index], side.delta_at_most(float(epsilons[index])))
    return lower, upper
