"""The privacy of a ledger as a picture: epsilon against delta, and what the best attack can do."""

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from tacit.accountants import TradeOff, best_attack, closest_mu, epsilon_curve, guarantees, trade_off
from tacit.accountants.guarantee import Guarantee
from tacit.ledger import Ledger
from tacit.storage.files import write_new_file

BLUE, GREY, RED = "#1f5a99", "0.55", "#c0392b"


def draw_privacy(ledger: Ledger, delta: float, path: str | Path) -> None:
    """Draw epsilon(delta) and the trade-off curve of a ledger, both certified bounds by PLD.

    Raises:
        RefusedError: PLD cannot read the ledger (an adaptive schedule is one reason), or epsilon is too large.
    """
    deltas = np.geomspace(delta * 1e-4, min(delta * 1e3, 0.1), 25)
    attack = trade_off(ledger)  # refuses what is too extreme to be drawn, before it takes minutes
    curve = epsilon_curve(ledger, deltas)

    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10.5, 4.6), layout="constrained")
    _draw_epsilon(left, ledger, delta, deltas, curve)
    _draw_attack(right, attack, best_attack(ledger))
    title = "hypothetical run" if ledger.hypothetical else ledger.header.dataset
    figure.suptitle(
        f"{title}: {ledger.steps} steps, {ledger.header.neighbours}, unit {ledger.header.unit}", parse_math=False
    )
    save_picture(figure, Path(path))


def save_picture(figure: Any, path: Path) -> None:
    """Write a figure to a new file by the ending of its name, and close it."""
    from matplotlib import pyplot

    data = BytesIO()
    figure.savefig(data, dpi=130, format=path.suffix[1:])
    pyplot.close(figure)
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
