"""How good: accuracy and calibration of predictions, on data that is declared public, and the leakage check."""

from tacit.evaluation.calibration import Reliability, reliability
from tacit.evaluation.figures import draw_reliability
from tacit.evaluation.leakage import LeakageCheck, draw_leakage, leakage_check

__all__ = ["LeakageCheck", "Reliability", "draw_leakage", "draw_reliability", "leakage_check", "reliability"]
