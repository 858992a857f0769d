"""How good: predictions on data that is declared public, and whether the chains behind them agree."""

from tacit.evaluation.calibration import Reliability, reliability
from tacit.evaluation.convergence import Convergence, convergence
from tacit.evaluation.figures import draw_reliability

__all__ = ["Convergence", "Reliability", "convergence", "draw_reliability", "reliability"]
