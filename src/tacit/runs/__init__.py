"""RUNS: a private run on a table, from declared facts to a folder that others can read, predict with and report on."""

from tacit.runs.evaluation import evaluate
from tacit.runs.fit import Fitted, check_budget, fit, training_plan
from tacit.runs.folder import RunFacts, RunFolder, read_posterior, read_run
from tacit.runs.predictions import Predictor
from tacit.runs.problem import Problem
from tacit.runs.spread import Histogram, Spread

__all__ = [
    "Fitted",
    "Histogram",
    "Predictor",
    "Problem",
    "RunFacts",
    "RunFolder",
    "Spread",
    "check_budget",
    "evaluate",
    "fit",
    "read_posterior",
    "read_run",
    "training_plan",
]
