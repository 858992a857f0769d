"""Evaluate golden numbers through the package's public functions: ``python tests/golden.py FILE``.

Prints each failure and a line per kind; exits 1 if any case fails. A kind without an evaluator is "not built": to build
it, write a function of the case's inputs and add it to ``EVALUATORS``.
"""

import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp

from tacit import accountants, inference, mechanisms
from tacit.accountants import ACCOUNTANTS, RDPAccountant
from tacit.accountants.bayesian import (
    betting,
    chernoff_epsilons,
    clopper_pearson_upper,
    constant_exposure,
    flat_prior_gamma,
    flat_prior_upper,
    holder_cost,
    mixture_delta,
    most_exceeding,
    printed_reverse_cost,
    privacy_costs,
    student_t,
)
from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample, merged_noise_multiplier

Inputs = Mapping[str, Any]


def poisson(q: float, sigma: float, steps: int = 1) -> Charge:
    return Charge(PoissonSample(q, (GaussianSumQuery(1.0, sigma),)), steps)


def accountant_of(text: str) -> Any:
    """ "rdp improved, integer orders 2..256", "pld h=1e-4", "gdp clt"."""
    if found := re.search(r"(\d+)\.\.(\d+)", text):
        return RDPAccountant(tuple(float(a) for a in range(int(found[1]), int(found[2]) + 1)))
    return ACCOUNTANTS[text.split()[0]]


def rdp_subsampled_gaussian(i: Inputs) -> Any:
    return float(accountants.subsampled_gaussian_rdp(i["q"], i["sigma"], i["alpha"])[0, 0])


def rdp_reverse(i: Inputs) -> Any:
    return accountants.reverse_log_moment(i["q"], i["sigma"], i["lam"])


def rdp_epsilon(i: Inputs) -> Any:
    orders = accountant_of("rdp " + i.get("orders", "")).orders
    curve = accountants.renyi_curve(Ledger.planned([poisson(i["q"], i["sigma"], i["T"])]), orders)
    epsilon, alpha = accountants.epsilon_from_rdp(curve, orders, i["delta"], i["conversion"])
    return {"epsilon": epsilon, "alpha": alpha}


def gdp_epsilon(i: Inputs) -> Any:
    mu = accountants.gdp_mu(i["q"], i["sigma"], i["T"], i["clt"])
    return {"mu": mu, "epsilon": accountants.gaussian_epsilon(mu, i["delta"])}


def pld_epsilon(i: Inputs) -> Any:
    ledger = Ledger.planned([poisson(i["q"], i["sigma"], i["T"])])
    return {"epsilon": ACCOUNTANTS["pld"].guarantee(ledger, delta=i["delta"]).epsilon}


def heterogeneous(i: Inputs) -> Any:
    rng = np.random.default_rng(i["seed"])
    q, sigma = rng.uniform(*i["q_range"], i["count"]), rng.uniform(*i["sigma_range"], i["count"])
    ledger = Ledger.planned(poisson(float(a), float(b)) for a, b in zip(q[: i["use"]], sigma, strict=False))
    return {"epsilon": ACCOUNTANTS[i["accountant"]].guarantee(ledger, delta=i["delta"]).epsilon}


def calibrate_sigma(i: Inputs) -> Any:
    accountant = accountant_of(i["accountant"])
    found = accountants.calibrate_noise(
        i["epsilon"], i["delta"], probability=i["q"], steps=i["T"], accountant=accountant
    )
    assert found.epsilon <= i["epsilon"]
    return found.noise_multiplier


def moments_epsilon(i: Inputs) -> Any:
    return accountants.moments_epsilon(i["q"], i["sigma"] / i["C"], i["T"], i["delta"], i["lam"])


def group_composition(i: Inputs) -> Any:
    noise = i["sigma_sum"] if "sigma_sum" in i else [s * i["q"] * i["n"] for s in i["sigma_avg"]]
    z = merged_noise_multiplier(tuple(GaussianSumQuery(S, s) for S, s in zip(i["S"], noise, strict=True)))
    return {"S_star": 1 / z, "z": z}


def sgld_task(i: Inputs) -> accountants.SGLDTask:
    return accountants.SGLDTask(i["epsilon"], i["delta"], i["N"], i["T"], i["L"])


def stepsize_conditions(i: Inputs) -> Any:
    lower, upper = accountants.theorem_conditions(i["N"], i["L"], i["tau"])
    return {"lower": lower, "upper": upper}


def stepsize_max_fixed(i: Inputs) -> Any:
    return accountants.max_fixed_step(sgld_task(i), i["B"], accountant_of(i["accountant"]))


def stepsize_max_decreasing(i: Inputs) -> Any:
    return accountants.max_decreasing_step(sgld_task(i), i["B"], accountant_of(i["accountant"]))


def stepsize_gaussian_limit(i: Inputs) -> Any:
    mu, fixed, decreasing = accountants.gaussian_limit(sgld_task(i))
    return {"mu": mu, "fixed": fixed, "decreasing_eta1": decreasing}


def sgd_to_sgld(i: Inputs) -> Any:
    sizes = {"batch_size": i["B"], "dataset_size": i["n"], "temperature": i["temperature"]}
    eta, clip_norm = inference.sgld_from_sgd(i["eta"], i["sigma"], **sizes)
    return {"eta_sgld": eta, "C": clip_norm}


def sgld_to_sgd(i: Inputs) -> Any:
    sizes = {"batch_size": i["B"], "dataset_size": i["n"], "clip_norm": i["C"], "temperature": i["temperature"]}
    rate, sigma = inference.sgd_from_sgld(i["eta"], **sizes)
    return {"eta_sgd": rate, "sigma": sigma, "C": i["C"]}


def sgld_sigma_from_sgd_rate(i: Inputs) -> Any:
    return {"sigma": sgld_to_sgd({**i, "eta": i["eta_sgd"] / i["n"]})["sigma"]}


def sgld_to_sgd_paper_m(i: Inputs) -> Any:
    """Paper M's step is on the mean gradient: eta_N = eta_M / n, at temperature 1/2 (maths.md 5)."""
    sigma = sgld_to_sgd({**i, "eta": i["eta"] / i["n"], "temperature": i.get("temperature", 0.5)})["sigma"]
    return {"sigma": sigma, "q": i["B"] / i["n"], "T": i["epochs"] * i["n"] / i["B"]}


def group_noise_allocation(i: Inputs) -> Any:
    if i["rule"] == "proportional":
        return mechanisms.noise_proportional(i["z"], i["S"])
    return mechanisms.noise_by_dimension(i["z"], i["S"], i["dims"])


def joint_clip(i: Inputs) -> Any:
    scaled, norms = mechanisms.joint_clip(i["norms"], i["alpha"], i["S"])
    noise = [alpha * i["sigma"] for alpha in i["alpha"]]
    return {"scaled_norm": scaled, "clipped_norms": norms, "noise_std": noise}


def bdp_cost(i: Inputs) -> Any:
    r = np.asarray(i["d"]) / i["sigma"]
    costs = privacy_costs(i["q"], r, [i["lam"]])[:, 0]
    return holder_cost(costs if i["direction"] == "L" else printed_reverse_cost(i["q"], r, i["lam"]), i["T"])


def bdp_student_t(i: Inputs) -> Any:
    r = np.tile(np.asarray(i["d"]) / i["sigma"], i.get("repeat", 1))
    return student_t(i["T"] * privacy_costs(i["q"], r, [i["lam"]])[:, 0], math.inf, i["gamma"]) / i["T"]


def bounded_mean_upper_log(i: Inputs) -> Any:
    rest = i["m"] - i["at_bound"]
    return betting([i["logB"]] * i["at_bound"] + [i["log_value_of_the_rest"]] * rest, i["logB"], i["gamma"])


def bdp_percentile(i: Inputs) -> Any:
    delta_mu = (1 - i["p"]) * i["delta"]
    costs = np.array([i["sum_c"]])
    epsilon = chernoff_epsilons(costs, (i["lam"],), delta_mu - i["gamma_total"], "classic")
    return {"delta_mu": delta_mu, "epsilon": float(epsilon[0])}


def bdp_percentile_improved(i: Inputs) -> Any:
    return float(chernoff_epsilons(np.array([i["sum_c"]]), (i["lam"],), i["delta"], percentile=i["p"])[0])


def percentile_order_statistic(i: Inputs) -> Any:
    k = most_exceeding(i["m"], i["p"], i["gamma"])
    at, after = (clopper_pearson_upper(j, i["m"], i["gamma"]) for j in (k, k + 1))
    return {"max_exceedances": k, "cp_upper_at_k": at, "cp_upper_at_k_plus_1": after}


def bdp_exposure(i: Inputs) -> Any:
    return constant_exposure(i["q"], np.asarray(i["r"]) / i["sigma"], i["T"])


def bdp_pld_mixture(i: Inputs) -> Any:
    epsilons = np.linspace(0, 3, 6001)
    deltas = mixture_delta(bdp_exposure(i), epsilons, i["delta_mu"], np.asarray(i["w"]))
    return float(epsilons[np.argmax(deltas <= i["delta_mu"])])


def bdp_epsilon_exact(i: Inputs) -> Any:
    first, last = (int(number) for number in i["lams"].split(".."))
    moments = tuple(range(first, last + 1))
    costs = logsumexp(bdp_exposure(i).costs(moments)[0], b=np.asarray(i["w"])[:, None], axis=0)
    epsilons = chernoff_epsilons(costs, moments, i["delta_mu"], "classic")
    return {"epsilon": float(epsilons.min()), "lam": moments[int(epsilons.argmin())]}


EVALUATORS: dict[str, Callable[[Inputs], Any]] = {
    "bdp_cost": bdp_cost,
    "bdp_estimator_student_t": bdp_student_t,
    "bounded_mean_upper_log": bounded_mean_upper_log,
    "bdp_binary_gamma": lambda i: flat_prior_gamma(i["N1"], i["N0"] + i["N1"], i["rho"]),
    "bdp_binary_rho_hat": lambda i: flat_prior_upper(i["N1"], i["N0"] + i["N1"], i["gamma"]),
    "clopper_pearson_upper": lambda i: clopper_pearson_upper(i["N1"], i["N0"] + i["N1"], i["gamma"]),
    "bdp_percentile": bdp_percentile,
    "bdp_percentile_improved": bdp_percentile_improved,
    "percentile_order_statistic": percentile_order_statistic,
    "bdp_pld_mixture": bdp_pld_mixture,
    "bdp_epsilon_exact": bdp_epsilon_exact,
    "rdp_subsampled_gaussian": rdp_subsampled_gaussian,
    "rdp_subsampled_gaussian_reverse_logmgf": rdp_reverse,
    "rdp_epsilon": rdp_epsilon,
    "gdp_epsilon": gdp_epsilon,
    "gdp_delta": lambda i: accountants.gaussian_delta(i["mu"], i["epsilon"]),
    "gdp_epsilon_from_mu": lambda i: accountants.gaussian_epsilon(i["mu"], i["delta"]),
    "gdp_mu": lambda i: accountants.gdp_mu(i["q"], i["sigma"], i["T"], i["clt"]),
    "pld_epsilon": pld_epsilon,
    "heterogeneous_ledger_epsilon": heterogeneous,
    "calibrate_sigma": calibrate_sigma,
    "ma_epsilon_fixed_lambda": moments_epsilon,
    "group_composition": group_composition,
    "group_noise_allocation": group_noise_allocation,
    "group_clip_allocation": lambda i: mechanisms.clip_norms_by_dimension(i["S_star"], i["dims"]),
    "joint_clip": joint_clip,
    "sgd_to_sgld": sgd_to_sgld,
    "sgld_to_sgd": sgld_to_sgd,
    "sgld_sigma_from_sgd_rate": sgld_sigma_from_sgd_rate,
    "sgld_to_sgd_paper_m": sgld_to_sgd_paper_m,
    "amplification_by_sampling": lambda i: {"exact": accountants.amplification_by_sampling(i["epsilon"], i["q"])},
    "stepsize_wang": lambda i: accountants.wang_bound(sgld_task(i), i["log_term"]),
    "stepsize_thm3": lambda i: accountants.theorem_3_bound(sgld_task(i), i["t"], i["c2"]),
    "stepsize_thm4": lambda i: accountants.theorem_4_bound(sgld_task(i), i["c"]),
    "stepsize_conditions": stepsize_conditions,
    "stepsize_max_fixed": stepsize_max_fixed,
    "stepsize_max_decreasing": stepsize_max_decreasing,
    "stepsize_gaussian_limit": stepsize_gaussian_limit,
    "attack_probability": lambda i: {"P": accountants.attack_probability(i["epsilon"], i.get("delta", 0.0))},
}

_SAID_BY_OTHERS = {"published", "seed004"}  # a paper's own figure, kept for the reader and not for comparison


def agrees(found: Any, wanted: Any, tolerance: Mapping[str, float]) -> bool:
    """Compare numbers, lists and the fields of dictionaries; a field that the case does not ask for may be there."""
    if isinstance(wanted, Mapping):
        fields = wanted.keys() - _SAID_BY_OTHERS
        if not isinstance(found, Mapping):
            return len(fields) == 1 and agrees(found, wanted[fields.pop()], tolerance)
        return all(name in found and agrees(found[name], wanted[name], tolerance) for name in fields)
    if isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(agrees, found, wanted, [tolerance] * len(wanted)))
    if isinstance(wanted, str | bool) or wanted is None:
        return bool(found == wanted)
    return math.isclose(found, wanted, rel_tol=tolerance.get("rel", 0.0), abs_tol=tolerance.get("abs", 0.0))


def failure(case: Mapping[str, Any]) -> str | None:
    """None, or one line that says what is wrong."""
    try:
        found = EVALUATORS[case["kind"]](case["inputs"])
    except Exception as error:  # a case that cannot be evaluated is a failure to report, like any other
        return f"{case['id']}: {type(error).__name__}: {error}"
    if agrees(found, case["output"], case["tolerance"]):
        return None
    return f"{case['id']}: found {found}, wanted {case['output']} within {dict(case['tolerance'])}"


def main(path: str) -> int:
    cases = json.loads(Path(path).read_text())["cases"]
    good: Counter[str] = Counter()
    failures = 0
    for case in cases:
        if case["kind"] in EVALUATORS:
            line = failure(case)
            good[case["kind"]] += line is None
            failures += line is not None
            if line:
                print("FAILED", line)
    for kind, count in Counter(case["kind"] for case in cases).items():
        print(f"{kind}: {f'{good[kind]} of {count}' if kind in EVALUATORS else f'not built ({count})'}")
    return 1 if failures else 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/golden.py FILE")
    sys.exit(main(sys.argv[1]))
