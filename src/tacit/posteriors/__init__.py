"""What we learned: draws, a point, a Gaussian or dropout; and the predictions they make."""

from tacit.posteriors.dropout import DropoutPosterior
from tacit.posteriors.gaussian import GaussianPosterior
from tacit.posteriors.posterior import Draws, Point, Posterior, combine, load_posterior
from tacit.posteriors.predict import Prediction, predict
from tacit.posteriors.regression import RegressionPrediction
from tacit.posteriors.swag import SWAG

__all__ = [
    "SWAG",
    "Draws",
    "DropoutPosterior",
    "GaussianPosterior",
    "Point",
    "Posterior",
    "Prediction",
    "RegressionPrediction",
    "combine",
    "load_posterior",
    "predict",
]
