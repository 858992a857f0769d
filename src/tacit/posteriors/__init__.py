"""What we learned: draws, a point, a Gaussian or dropout; and the predictions they make."""

from tacit.posteriors.dropout import DropoutPosterior
from tacit.posteriors.gaussian import GaussianPosterior
from tacit.posteriors.posterior import Draws, Point, Posterior, load_posterior
from tacit.posteriors.predict import Prediction, predict

__all__ = ["Draws", "DropoutPosterior", "GaussianPosterior", "Point", "Posterior", "Prediction", "load_posterior",
           "predict"]  # fmt: skip
