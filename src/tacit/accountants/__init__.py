"""What it cost: accountants that read a ledger and say (epsilon, delta). No torch, no training code."""

from importlib import import_module
from typing import Any

from tacit.accountants.budget import Budget, BudgetGate
from tacit.accountants.calibrate import Calibration, calibrate_noise, calibrate_probability, calibrate_steps
from tacit.accountants.curves import TradeOff, best_attack, closest_mu, epsilon_curve, trade_off
from tacit.accountants.dp_accounting_events import from_dp_event, to_dp_event
from tacit.accountants.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from tacit.accountants.gdp import GDPAccountant, gdp_mu
from tacit.accountants.guarantee import Accountant, EvidenceAccountant, Guarantee, Refusal, best_bound, check_delta
from tacit.accountants.pld.accountant import PLDAccountant, ledger_bracket
from tacit.accountants.registry import ACCOUNTANTS, get_accountant, guarantees
from tacit.accountants.renyi.conversion import epsilon_from_rdp, moments_epsilon
from tacit.accountants.renyi.divergences import renyi_curve, reverse_log_moment, subsampled_gaussian_rdp
from tacit.accountants.renyi.filter import RenyiFilter
from tacit.accountants.renyi.moments import ORDERS
from tacit.accountants.renyi.rdp import RDPAccountant, selection_guarantee
from tacit.accountants.rules import amplification_by_sampling, attack_probability, group_privacy
from tacit.accountants.stepsize import (
    SGLDTask,
    gaussian_limit,
    max_decreasing_step,
    max_fixed_step,
    theorem_3_bound,
    theorem_4_bound,
    theorem_conditions,
    wang_bound,
)

__all__ = [
    "ACCOUNTANTS",
    "ORDERS",
    "Accountant",
    "Budget",
    "BudgetGate",
    "Calibration",
    "EvidenceAccountant",
    "GDPAccountant",
    "Guarantee",
    "PLDAccountant",
    "RDPAccountant",
    "Refusal",
    "RenyiFilter",
    "SGLDTask",
    "TradeOff",
    "amplification_by_sampling",
    "attack_probability",
    "best_attack",
    "best_bound",
    "calibrate_noise",
    "calibrate_probability",
    "calibrate_steps",
    "check_delta",
    "closest_mu",
    "epsilon_curve",
    "epsilon_from_rdp",
    "from_dp_event",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_limit",
    "gaussian_mu",
    "gdp_mu",
    "get_accountant",
    "group_privacy",
    "guarantees",
    "ledger_bracket",
    "max_decreasing_step",
    "max_fixed_step",
    "moments_epsilon",
    "renyi_curve",
    "reverse_log_moment",
    "selection_guarantee",
    "subsampled_gaussian_rdp",
    "theorem_3_bound",
    "theorem_4_bound",
    "theorem_conditions",
    "to_dp_event",
    "trade_off",
    "wang_bound",
]


def __getattr__(name: str) -> Any:
    if name == "bayesian":  # loaded when it is asked for: most readers of a ledger have no evidence
        return import_module("tacit.accountants.bayesian")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
