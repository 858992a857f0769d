"""What we learned: draws or a point, and the predictions they make."""

from tacit.posteriors.posterior import Draws, Point, Posterior, combine, load_posterior
from tacit.posteriors.predict import Prediction, predict
from tacit.posteriors.swag import SWAG

__all__ = ["SWAG", "Draws", "Point", "Posterior", "Prediction", "combine", "load_posterior", "predict"]
