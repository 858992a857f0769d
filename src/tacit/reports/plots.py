"""Pictures by matplotlib, for files that a user names: the privacy of a ledger, and what evidence says of records.

What evidence says about typical and single records is for the data holder: private, like the evidence.
"""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from tacit.accountants import TradeOff, best_attack, closest_mu, epsilon_curve, get_accountant, guarantees, trade_off
from tacit.accountants.bayesian import BayesianAccountant, best_percentile, individual_epsilons, percentile_value
from tacit.accountants.bayesian.individual import GAMMA
from tacit.accountants.bayesian.summary import epsilon_over_steps, ledger_until
from tacit.accountants.guarantee import Guarantee
from tacit.evidence import Evidence
from tacit.ledger import Ledger
from tacit.storage.files import write_new_file

BLUE, GREY, RED = "#1f5a99", "0.55", "#c0392b"
_TIMES = 8


def draw_privacy(ledger: Ledger, delta: float, path: str | Path) -> None:
    """Draw epsilon(delta) and the trade-off curve of a ledger, both certified bounds by PLD.

    Raises:
        RefusedError: PLD cannot read the ledger, for instance because its schedule is adaptive.
    """
    deltas = np.geomspace(delta * 1e-4, min(delta * 1e3, 0.1), 25)
    curve, attack = epsilon_curve(ledger, deltas), trade_off(ledger)

    figure, (left, right) = without_screen().subplots(1, 2, figsize=(10.5, 4.6), layout="constrained")
    _draw_epsilon(left, ledger, delta, deltas, curve)
    _draw_attack(right, attack, best_attack(ledger))
    title = "hypothetical run" if ledger.hypothetical else ledger.header.dataset
    figure.suptitle(
        f"{title}: {ledger.steps} steps, {ledger.header.neighbours}, unit {ledger.header.unit}", parse_math=False
    )
    save_picture(figure, Path(path))


def without_screen() -> Any:
    """matplotlib.pyplot, loaded when it is needed, without a window."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    return pyplot


def save_picture(figure: Any, path: Path) -> None:
    """Write a figure to a new file by the ending of its name, and close it."""
    data = BytesIO()
    figure.savefig(data, dpi=130, format=path.suffix[1:])
    without_screen().close(figure)
    write_new_file(path, data.getvalue())


def _draw_epsilon(axes: Any, ledger: Ledger, delta: float, deltas: Any, curve: Any) -> None:
    axes.semilogx(deltas, curve, color=BLUE, label="PLD, certified upper bound")
    for result in guarantees(ledger, delta):
        if isinstance(result, Guarantee) and result.accountant != "pld":
            colour, note = (GREY, "") if result.is_bound else (RED, " (approximation, not a bound)")
            axes.plot(delta, result.epsilon, "o", color=colour, label=f"{result.accountant.upper()}{note}")
    axes.axvline(delta, color=GREY, linewidth=0.8, linestyle=":")
    axes.set(xlabel="delta", ylabel="epsilon", title="What it costs", ylim=(0, None))
    axes.legend(frameon=False)


def _draw_attack(axes: Any, curve: TradeOff, guess: float) -> None:
    mu = closest_mu(curve)
    x = curve.false_positive
    axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="guessing")
    axes.plot(x, curve.true_positive, color=BLUE, label="no attack is above this line")
    axes.plot(x, ndtr(ndtri(x) + mu), color=RED, linewidth=0.9, linestyle=":", label=f"closest Gaussian, mu = {mu:.3f}")
    axes.set(
        xlabel="false positives: blamed though not in the data",
        ylabel="true positives: found out",
        title=f"Is a person in the data?\nThe best guess is right {guess:.1%} of the time",
        xlim=(0, 1),
        ylim=(0, 1),
        aspect="equal",
    )
    axes.legend(frameon=False, loc="lower right")


def draw_evidence(ledger: Ledger, evidence: Evidence, delta: float, path: str | Path) -> None:
    """Draw epsilon over steps (worst case and Bayesian), the percentile curve and the records' own epsilons."""
    epsilons = individual_epsilons(ledger, evidence, delta)
    worst = get_accountant("pld").guarantee(ledger, delta=delta).epsilon

    figure, (left, middle, right) = without_screen().subplots(1, 3, figsize=(14, 4.4), layout="constrained")
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
