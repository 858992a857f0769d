"""RUNS: a private run on a table, from declared facts to a folder that others can read, predict with and report on.

What reads a folder needs no torch; what trains and predicts is loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tacit.runs.content import RunContent, read_content, read_evidence
from tacit.runs.facts import DeclaredFacts, RunFacts, Spread
from tacit.runs.folder import RunFolder
from tacit.runs.problem import Problem

if TYPE_CHECKING:
    from tacit.runs.predictions import Predictor, read_predictor
    from tacit.runs.search.tune import tune
    from tacit.runs.whole_run import TrainedTable, train_table

__all__ = [
    "DeclaredFacts",
    "Predictor",
    "Problem",
    "RunContent",
    "RunFacts",
    "RunFolder",
    "Spread",
    "TrainedTable",
    "read_content",
    "read_evidence",
    "read_predictor",
    "train_table",
    "tune",
]

_WITH_TORCH = {
    "Predictor": "predictions",
    "TrainedTable": "whole_run",
    "read_predictor": "predictions",
    "train_table": "whole_run",
    "tune": "search.tune",
}


def __getattr__(name: str) -> Any:
    if name not in _WITH_TORCH:
        raise AttributeError(f"module 'tacit.runs' has no attribute {name!r}")
    value = getattr(import_module(f"tacit.runs.{_WITH_TORCH[name]}"), name)
    globals()[name] = value
    return value
