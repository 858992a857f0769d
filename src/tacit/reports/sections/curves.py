"""Pictures of the cost: epsilon against delta, what any attack can reach, and epsilon as training went on."""

import numpy as np

from tacit.accountants import Guarantee, RDPAccountant, epsilon_curve, get_accountant, trade_off
from tacit.accountants.bayesian.summary import ledger_until
from tacit.accountants.curves import drawable_epsilon
from tacit.errors import RefusedError
from tacit.ledger import Ledger
from tacit.reports.content import Block, Headline, Paragraph, Picture, Section
from tacit.reports.pictures import Axis, Chart, Series, room_above
from tacit.reports.text import in_full, percent_up, round_up

MANY = 64  # kinds of steps above which a point of a curve takes longer than a reader wants to wait


def curves_section(ledger: Ledger, delta: float, said: Headline) -> Section:
    blocks: list[Block] = []
    reasons: list[str] = []
    for draw in (epsilon_picture, trade_off_picture, steps_picture):
        try:
            blocks.append(draw(ledger, delta))
        except RefusedError as error:
            reasons.append(str(error))
    if reasons:
        why = "; ".join(dict.fromkeys(reasons))
        blocks.append(Paragraph(f"A picture is missing, because no certified curve can be drawn: {why}."))
    if not blocks:
        blocks.append(Paragraph("This ledger holds no step, so there is nothing to draw."))
    return Section("curves", "What it cost", tuple(blocks))


def epsilon_picture(ledger: Ledger, delta: float) -> Picture:
    """epsilon(delta), certified by PLD."""
    deltas = np.geomspace(max(delta * 1e-4, 1e-15), min(delta * 1e3, 0.1), 5 if _has_many(ledger) else 13)
    here = drawable_epsilon(ledger, delta)
    values = tuple(float(value) for value in epsilon_curve(ledger, deltas))
    x = tuple(float(f"{value:.12g}") for value in deltas)
    return Picture(
        "epsilon-delta",
        "Epsilon for every delta",
        f"The same run can be described by many pairs: a smaller delta goes with a larger epsilon. From delta "
        f"{in_full(x[0])} to {in_full(x[-1])}, epsilon falls from {round_up(values[0])} to {round_up(values[-1])}; at "
        f"delta {in_full(delta)} it is {round_up(here)}. Every point of the line is a certified upper bound (PLD).",
        Chart(
            Axis("delta", x[0], x[-1], log=True),
            Axis("epsilon", 0.0, room_above(values)),
            (
                Series("certified upper bound (PLD)", x, values),
                Series(f"delta {in_full(delta)}, as stated on this page", (delta,), (here,), "warm", "points"),
            ),
        ),
    )


def trade_off_picture(ledger: Ledger, delta: float) -> Picture:
    curve = trade_off(ledger)
    x, y = (tuple(float(value) for value in values[::2]) for values in (curve.false_positive, curve.true_positive))
    found = float(np.interp(0.1, curve.false_positive, curve.true_positive))
    return Picture(
        "trade-off",
        "What any attack can reach",
        "An attacker who wants to find out more people also blames more people wrongly. Whoever accepts to blame 10 % "
        f"of those who were not in the data finds out at most {percent_up(found)} of those who were; tossing coins "
        "finds out 10 %. No attack lies above the solid line.",
        Chart(
            Axis("blamed though not in the data", 0.0, 1.0, percent=True),
            Axis("found out", 0.0, 1.0, percent=True),
            (
                Series("no attack lies above this line", x, y),
                Series("tossing coins", (0.0, 1.0), (0.0, 1.0), "guide"),
            ),
        ),
    )


def steps_picture(ledger: Ledger, delta: float) -> Picture:
    """epsilon after the first n steps; what an adaptive schedule has spent so far may not be stated."""
    if ledger.header.schedule == "adaptive":
        raise RefusedError("epsilon over steps cannot be stated for an adaptive schedule, only the whole budget")
    if not ledger.steps:
        raise RefusedError("the ledger holds no step yet")
    parts = np.linspace(0, 1, 6 if _has_many(ledger) else 18)[1:] ** 2  # closer together where the curve is steep
    steps = sorted({max(1, round(ledger.steps * float(part))) for part in parts})
    values, name = _so_far(ledger, delta, steps)
    half = values[min(range(len(steps)), key=lambda i: abs(steps[i] - ledger.steps / 2))]
    return Picture(
        "steps",
        "The cost as training went on",
        f"Every step adds to the cost. About half of the {ledger.steps:,} steps cost epsilon {round_up(half)}; all of "
        f"them {round_up(values[-1])} (certified upper bounds by {name}, delta {in_full(delta)}).",
        Chart(
            Axis("steps", 0.0, float(ledger.steps)),
            Axis("epsilon so far", 0.0, room_above(values)),
            (Series(f"certified upper bound ({name})", (0.0, *(float(count) for count in steps)), (0.0, *values)),),
        ),
    )


def _so_far(ledger: Ledger, delta: float, steps: list[int]) -> tuple[tuple[float, ...], str]:
    try:
        return tuple(_epsilon("pld", ledger, delta, count) for count in steps), "PLD"
    except RefusedError:
        if not RDPAccountant().guarantee(ledger, delta=delta).is_bound:
            raise
        return tuple(_epsilon("rdp", ledger, delta, count) for count in steps), "RDP"


def _epsilon(accountant: str, ledger: Ledger, delta: float, steps: int) -> float:
    found: Guarantee = get_accountant(accountant).guarantee(ledger_until(ledger, steps), delta=delta)
    return found.epsilon


def _has_many(ledger: Ledger) -> bool:
    return len(ledger.merged()) > MANY
