"""How good: predictions on public data, whether the chains behind them agree, and the leakage check."""

from tacit.evaluation.calibration import Reliability, reliability
from tacit.evaluation.convergence import Convergence, convergence
from tacit.evaluation.figures import draw_reliability
from tacit.evaluation.leakage import LeakageCheck, draw_leakage, leakage_check
from tacit.evaluation.scores import (
    Coverage,
    Scores,
    adaptive_calibration_error,
    coverage,
    gaussian_nll,
    scores,
    separation,
)

__all__ = [
    "Convergence",
    "Coverage",
    "LeakageCheck",
    "Reliability",
    "Scores",
    "adaptive_calibration_error",
    "convergence",
    "coverage",
    "draw_leakage",
    "draw_reliability",
    "gaussian_nll",
    "leakage_check",
    "reliability",
    "scores",
    "separation",
]
