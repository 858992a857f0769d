"""One direction of one ledger: brackets of delta at an epsilon, and of epsilon at a delta."""

import math

import numpy as np

from tacit.accountants.pld.contour.integral import Contour, contour
from tacit.accountants.pld.contour.saddle import RealAxis
from tacit.accountants.pld.contour.shape import period, plan
from tacit.accountants.pld.steps import Bracket, Direction, Steps, at_floor, cut, enough, tolerance, total_variation
from tacit.accountants.search import crossing
from tacit.types import Floats

_ROUNDS = 3
_MANY_NODES = 2000  # not spent on a bracket that is narrow enough
_NOTHING = Bracket(0.0, math.inf)  # known of an epsilon
_CONTOURS, _FEW_CONTOURS = 24, 6  # of one curve; fewer where a lattice may do


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
        self.axis.for_epsilon(epsilon)
        bound = min(point.log_chernoff(epsilon) for point in self.axis.seen())
        return min(1.0, math.exp(min(0.0, bound)) + self.dropped)

    def epsilon_at_most(self, delta: float) -> float:
        """The Chernoff bound of epsilon, which may be negative."""
        log_delta = math.log(delta - self.dropped)
        self.axis.for_delta(log_delta)
        return min(point.chernoff_epsilon(log_delta) for point in self.axis.seen())

    def cost(self, delta: float) -> tuple[float, float]:
        """A measure of the nodes that ``epsilon`` will need, and what is little."""
        return period(self.axis, max(0.0, self.epsilon_at_most(delta)), math.log(delta - self.dropped))

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
            nodes = contour(self.steps, self.direction, shape)
            found = self._narrow(nodes, delta, found, floor)
            if found.upper - found.lower <= 2 * tolerance(found.lower) or abs(found.upper - guess) < 0.1 / peak.c:
                break
            guess = found.upper
        return found

    def _narrow(self, nodes: Contour, delta: float, known: Bracket, floor: float) -> Bracket:
        """Shrink a bracket of epsilon by the bounds of delta; never widens it."""

        def lower(epsilon: float) -> float:
            return float(self.bounds(nodes, np.array([epsilon]))[0][0])

        def upper(epsilon: float) -> float:
            return float(self.bounds(nodes, np.array([epsilon]))[1][0])

        low, high = known.lower, known.upper
        if upper(low) <= delta:
            return at_floor(low, floor)
        fine = 0.01 * tolerance(high)
        high = crossing(upper, delta, low, high, fine)[1]
        # below the nodes' own epsilon the bounds grow loose, so the lower end is sought downwards from the upper one
        gap = fine
        while high - gap > low and lower(high - gap) <= delta:
            gap *= 3
        start = max(low, high - gap)
        if lower(start) > delta:
            low = crossing(lower, delta, start, high, fine)[0]
        return Bracket(low, high)


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
