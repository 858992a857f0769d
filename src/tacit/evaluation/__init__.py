"""How good: accuracy and calibration of predictions, on data that is declared public."""

from tacit.evaluation.calibration import Reliability, reliability
from tacit.evaluation.figures import draw_reliability

__all__ = ["Reliability", "draw_reliability", "reliability"]
