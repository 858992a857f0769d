"""How good: accuracy, calibration and uncertainty of predictions, on public data; the leakage check."""

from tacit.evaluation.calibration import Reliability, reliability
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
    "Coverage",
    "LeakageCheck",
    "Reliability",
    "Scores",
    "adaptive_calibration_error",
    "coverage",
    "draw_leakage",
    "draw_reliability",
    "gaussian_nll",
    "leakage_check",
    "reliability",
    "scores",
    "separation",
]
