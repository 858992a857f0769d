"""Privacy loss distributions by a contour integral: certified, without a grid, at a cost that does not grow with T."""

from tacit.accountants.pld.bounds import delta_bracket, delta_curve, epsilon_bracket
from tacit.accountants.pld.contour.moments import Line, Moments, moments_on_line
from tacit.accountants.pld.steps import Bracket, PoissonGaussian

__all__ = [
    "Bracket",
    "Line",
    "Moments",
    "PoissonGaussian",
    "delta_bracket",
    "delta_curve",
    "epsilon_bracket",
    "moments_on_line",
]
