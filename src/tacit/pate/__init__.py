"""PATE: teachers on disjoint parts of the data vote on public inputs, and only noisy majorities leave."""

from tacit.pate.confident_gnmax import Answers, ConfidentGNMax, calibrate_confident_gnmax
from tacit.pate.data_dependent import data_dependent_epsilon, wrong_winner_probability
from tacit.pate.teachers import assign_teachers, count_votes

__all__ = [
    "Answers",
    "ConfidentGNMax",
    "assign_teachers",
    "calibrate_confident_gnmax",
    "count_votes",
    "data_dependent_epsilon",
    "wrong_winner_probability",
]
