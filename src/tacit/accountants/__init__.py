"""What it cost: accountants that read a ledger and say (epsilon, delta). No torch, no training code."""

from tacit.accountants.calibrate import Calibration, calibrate_noise, calibrate_probability, calibrate_steps
from tacit.accountants.conversion import epsilon_from_rdp, moments_epsilon
from tacit.accountants.gaussian import gaussian_delta, gaussian_epsilon, gaussian_mu
from tacit.accountants.gdp import GDPAccountant, gdp_mu
from tacit.accountants.guarantee import Guarantee, Refusal, check_delta
from tacit.accountants.pld_accountant import PLDAccountant, ledger_bracket
from tacit.accountants.rdp import RDPAccountant
from tacit.accountants.registry import ACCOUNTANTS, get_accountant, guarantees
from tacit.accountants.renyi import ORDERS, renyi_curve, reverse_log_moment, subsampled_gaussian_rdp
from tacit.accountants.renyi_filter import RenyiFilter
from tacit.accountants.rules import amplification_by_sampling, attack_probability, group_privacy
from tacit.accountants.statement import Accountant

__all__ = [
    "ACCOUNTANTS",
    "ORDERS",
    "Accountant",
    "Calibration",
    "GDPAccountant",
    "Guarantee",
    "PLDAccountant",
    "RDPAccountant",
    "Refusal",
    "RenyiFilter",
    "amplification_by_sampling",
    "attack_probability",
    "calibrate_noise",
    "calibrate_probability",
    "calibrate_steps",
    "check_delta",
    "epsilon_from_rdp",
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_mu",
    "gdp_mu",
    "get_accountant",
    "group_privacy",
    "guarantees",
    "ledger_bracket",
    "moments_epsilon",
    "renyi_curve",
    "reverse_log_moment",
    "subsampled_gaussian_rdp",
]
