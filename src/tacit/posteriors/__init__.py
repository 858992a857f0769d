"""What we learned: draws or a point, and the predictions they make."""

from tacit.posteriors.posterior import Draws, Point, Posterior, load_posterior
from tacit.posteriors.predict import Prediction, predict

__all__ = ["Draws", "Point", "Posterior", "Prediction", "load_posterior", "predict"]
