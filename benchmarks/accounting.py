"""Time and tightness of accountants side by side: ``python benchmarks/accounting.py [--limit SECONDS] [--only TEXT]``.

Ours, dp-accounting, prv-accountant and Opacus on the settings of maths.md and on ledgers of 50 and 1000 distinct
events, delta 1e-5. Each answer is computed in a process of its own (imports are not timed) and given up after the
limit; a library that is not installed is "missing". Prints a Markdown table; every number is epsilon.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
from document import versions, write_section

DELTA = 1e-5
Rows = list[tuple[float, float, int]]  # (probability, noise multiplier, steps)


def distinct(count: int) -> Rows:
    """The ledgers of golden.json, kind heterogeneous_ledger_epsilon."""
    rng = np.random.default_rng(0)
    q, z = rng.uniform(0.001, 0.01, 1000), rng.uniform(0.8, 3.0, 1000)
    return [(float(a), float(b), 1) for a, b in zip(q[:count], z, strict=False)]


SETTINGS: dict[str, Rows] = {
    "q 256/60000, z 1.3, T 3516": [(256 / 60000, 1.3, 3516)],
    "q .001, z 1, T 1e6": [(0.001, 1.0, 10**6)],
    "q .01, z .6, T 1e4": [(0.01, 0.6, 10**4)],
    "q .001, z .6, T 1e5": [(0.001, 0.6, 10**5)],
    "q .001, z 4, T 1e6": [(0.001, 4.0, 10**6)],
    "q 128/60000, z 3.18, T 9375": [(128 / 60000, 3.18, 9375)],
    "q .05, z 1, T 200": [(0.05, 1.0, 200)],
    "50 distinct events": distinct(50),
    "1000 distinct events": distinct(1000),
}


def tacit(name: str) -> Callable[[Rows], str]:
    def answer(rows: Rows) -> str:
        from tacit.accountants import ACCOUNTANTS
        from tacit.ledger import Charge, GaussianSumQuery, Ledger, PoissonSample

        charges = [Charge(PoissonSample(q, (GaussianSumQuery(1.0, z),)), steps) for q, z, steps in rows]
        found = ACCOUNTANTS[name].guarantee(Ledger.planned(charges), delta=DELTA)
        return f"{found.epsilon:.6f}" if found.lower is None else f"{found.lower:.6f} - {found.epsilon:.6f}"

    return answer


def dp_accounting(name: str) -> Callable[[Rows], str]:
    def answer(rows: Rows) -> str:
        import dp_accounting as dp
        from dp_accounting import pld, rdp

        accountant = rdp.RdpAccountant() if name == "rdp" else pld.PLDAccountant(value_discretization_interval=1e-4)
        for q, z, steps in rows:
            accountant.compose(dp.PoissonSampledDpEvent(q, dp.GaussianDpEvent(z)), steps)
        return f"{accountant.get_epsilon(DELTA):.6f}"

    return answer


def prv_accountant(rows: Rows) -> str:
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    accountant = PRVAccountant(
        prvs=[PoissonSubsampledGaussianMechanism(noise_multiplier=z, sampling_probability=q) for q, z, _ in rows],
        max_self_compositions=[steps for _, _, steps in rows],
        eps_error=1e-3,
        delta_error=1e-10,
    )
    lower, _, upper = accountant.compute_epsilon(DELTA, [steps for _, _, steps in rows])
    return f"{lower:.6f} - {upper:.6f}"


def opacus(name: str) -> Callable[[Rows], str]:
    def answer(rows: Rows) -> str:
        from opacus.accountants import create_accountant

        accountant = create_accountant(name)
        accountant.history = [(z, q, steps) for q, z, steps in rows]
        return f"{accountant.get_epsilon(DELTA):.6f}"

    return answer


ANSWERS: dict[str, tuple[str, Callable[[Rows], str]]] = {
    "tacit pld": ("tacit", tacit("pld")),
    "tacit rdp": ("tacit", tacit("rdp")),
    "tacit gdp (not a bound)": ("tacit", tacit("gdp")),
    "dp-accounting pld": ("dp_accounting", dp_accounting("pld")),
    "dp-accounting rdp": ("dp_accounting", dp_accounting("rdp")),
    "prv-accountant": ("prv_accountant", prv_accountant),
    "opacus prv": ("opacus", opacus("prv")),
    "opacus rdp": ("opacus", opacus("rdp")),
}

WARM_UP: Rows = [(0.01, 2.0, 100)]  # loads the libraries


def timed(answer: Callable[[Rows], str], rows: Rows, pipe: Connection) -> None:
    answer(WARM_UP)
    start = time.perf_counter()
    try:
        text = answer(rows)
    except Exception as error:  # a peer that fails on a setting is a result
        text = f"failed ({type(error).__name__})"
    pipe.send(f"{text} in {time.perf_counter() - start:.3f} s")


def measure(module: str, answer: Callable[[Rows], str], rows: Rows, limit: float) -> str:
    if find_spec(module) is None:
        return "missing"
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=timed, args=(answer, rows, sender))
    process.start()
    found = receiver.recv() if receiver.poll(limit) else f"over {limit:g} s"
    process.terminate()
    process.join()
    return str(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds before an answer is given up")
    parser.add_argument("--only", default="", help="settings whose name contains this text")
    parser.add_argument("--write", type=Path, help="the Markdown file whose section is replaced")
    options = parser.parse_args()
    settings = {name: rows for name, rows in SETTINGS.items() if options.only in name}
    lines = ["| accountant | " + " | ".join(settings) + " |", "|---" * (len(settings) + 1) + "|"]
    for accountant, (module, answer) in ANSWERS.items():
        cells = [measure(module, answer, rows, options.limit) for rows in settings.values()]
        lines.append(f"| {accountant} | " + " | ".join(cells) + " |")
        print(lines[-1], flush=True)
    title = (
        f"epsilon at delta {DELTA:g} and time of one answer, imports not counted, given up after {options.limit:g} s."
    )
    text = f"{title}\n{versions('numpy', 'scipy', 'dp-accounting', 'prv-accountant', 'opacus')}.\n\n" + "\n".join(lines)
    if options.write:
        write_section(options.write, "accounting", text)


if __name__ == "__main__":
    main()
