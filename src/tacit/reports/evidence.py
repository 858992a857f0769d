"""What evidence says about typical and single records, as a picture for the data holder. Private, like the evidence."""

from pathlib import Path
from typing import Any

import numpy as np

from tacit.accountants import get_accountant
from tacit.accountants.bayesian import BayesianAccountant, best_percentile, individual_epsilons, percentile_value
from tacit.accountants.bayesian.individual import GAMMA
from tacit.accountants.bayesian.summary import epsilon_over_steps, ledger_until
from tacit.evidence import Evidence
from tacit.ledger import Ledger
from tacit.reports.privacy import BLUE, GREY, RED, save_picture

_TIMES = 8


def draw_evidence(ledger: Ledger, evidence: Evidence, delta: float, path: str | Path) -> None:
    """Draw epsilon over steps (worst case and Bayesian), the percentile curve and the records' own epsilons."""
    epsilons = individual_epsilons(ledger, evidence, delta)
    worst = get_accountant("pld").guarantee(ledger, delta=delta).epsilon

    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
    _draw_steps(left, ledger, evidence, delta)
    _draw_percentiles(middle, evidence, epsilons, worst)
    _draw_histogram(right, evidence, epsilons, worst)
    figure.suptitle(
        f"{ledger.header.dataset}: private diagnostics from {evidence.records} {evidence.kind}, delta {delta:g}. "
        "Not for publication.",
        parse_math=False,
    )
    save_picture(figure, Path(path))


def _draw_steps(axes: Any, ledger: Ledger, evidence: Evidence, delta: float) -> None:
    steps = [int(count) for count in np.unique(np.linspace(1, ledger.steps, _TIMES).round())]
    worst = [get_accountant("pld").guarantee(ledger_until(ledger, n), delta=delta).epsilon for n in steps]
    axes.plot(steps, worst, color=BLUE, label="DP, every record (PLD)")
    if evidence.kind == "probes":
        accountant = BayesianAccountant("probes")
        typical = epsilon_over_steps(ledger, evidence, delta, accountant, steps)
        axes.plot(steps, typical, color=RED, linestyle="--", label="Bayesian DP, a typical record (betting estimate)")
    axes.set(xlabel="steps", ylabel="epsilon", title="What it costs as training goes on", ylim=(0, None))
    axes.legend(frameon=False)


def _draw_percentiles(axes: Any, evidence: Evidence, epsilons: Any, worst: float) -> None:
    most = 1 - 1e-5 if evidence.kind == "members" else best_percentile(evidence.records, GAMMA)
    shares = 1 - np.geomspace(1 - most, 0.9, 60)
    values: list[float | None]
    if evidence.kind == "members":
        values = [float(np.quantile(epsilons, share, method="higher")) for share in shares]
    else:
        values = [percentile_value(epsilons, float(share), GAMMA) for share in shares]
    axes.step(1 - shares, values, where="post", color=RED)
    axes.axhline(worst, color=BLUE, linewidth=1, label="DP, every record")
    axes.set(
        xscale="log",
        xlabel="share of people whose epsilon may be higher",
        ylabel="epsilon",
        title="How many people have how much privacy",
        ylim=(0, None),
    )
    axes.legend(frameon=False)


def _draw_histogram(axes: Any, evidence: Evidence, epsilons: Any, worst: float) -> None:
    axes.hist(epsilons, bins=40, range=(0, max(worst, 1e-9)), color="#c6d5e8", edgecolor=GREY, linewidth=0.4)
    axes.axvline(worst, color=BLUE, linewidth=1.2, label="DP, every record")
    axes.set(xlabel="epsilon of a record", ylabel=f"number of {evidence.kind}", title="Single records")
    axes.legend(frameon=False)
