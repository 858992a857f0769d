"""What we learned: draws, a point, a Gaussian or dropout; and the predictions they make."""

from tacit.posteriors.dropout import DropoutPosterior
from tacit.posteriors.gaussian import GaussianPosterior
from tacit.posteriors.posterior import Draws, Point, Posterior, load_posterior
from tacit.posteriors.predict import Prediction, predict
from tacit.posteriors.regression import RegressionPrediction

__all__ = [
    "Draws",
    "DropoutPosterior",
    "GaussianPosterior",
    "Point",
    "Posterior",
    "Prediction",
    "RegressionPrediction",
    "load_posterior",
    "predict",
]
