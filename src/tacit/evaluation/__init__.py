"""How good: predictions on public data, whether the chains behind them agree, and the leakage check."""

from tacit.evaluation.calibration import Reliability, draw_reliability, reliability
from tacit.evaluation.convergence import Convergence, convergence
from tacit.evaluation.leakage import LeakageCheck, draw_leakage, leakage_check
from tacit.evaluation.scores import (
    Coverage,
    Detection,
    Scores,
    adaptive_calibration_error,
    coverage,
    detection,
    gaussian_nll,
    majority_share,
    scores,
    separation,
)

__all__ = [
    "Convergence",
    "Coverage",
    "Detection",
    "LeakageCheck",
    "Reliability",
    "Scores",
    "adaptive_calibration_error",
    "convergence",
    "coverage",
    "detection",
    "draw_leakage",
    "draw_reliability",
    "gaussian_nll",
    "leakage_check",
    "majority_share",
    "reliability",
    "scores",
    "separation",
]
