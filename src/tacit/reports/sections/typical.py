"""What private evidence says about typical and single records: for the data holder, on request."""

import numpy as np

from tacit.accountants import Guarantee, Refusal, get_accountant
from tacit.accountants.bayesian import bayesian_guarantees, best_percentile, individual_epsilons, percentile_value
from tacit.accountants.bayesian.individual import GAMMA
from tacit.errors import RefusedError
from tacit.evidence import Evidence
from tacit.ledger import Ledger
from tacit.reports.content import Block, Paragraph, Picture, Points, Section, Table
from tacit.reports.pictures import Axis, Chart, Series, room_above
from tacit.reports.sections.guarantees import assumptions
from tacit.reports.text import in_full, percent, round_up
from tacit.types import Floats

_COLUMNS = ("Accountant", "Whom it is about", "Epsilon", "Delta")


def typical_section(ledger: Ledger, evidence: Evidence, delta: float) -> Section:
    try:
        epsilons, reason = individual_epsilons(ledger, evidence, delta), ""
    except RefusedError as error:
        epsilons, reason = None, str(error)
    results = bayesian_guarantees(ledger, evidence, delta, epsilons)
    blocks: list[Block] = [
        Paragraph(
            f"From the evidence of {evidence.records:,} {evidence.kind}. These numbers depend on people's records and "
            "are not private themselves. They stand beside the guarantee of this page and never replace it; they say "
            "nothing about a person with an unusual record."
        ),
        Table("What the evidence says", _COLUMNS, tuple(_row(result) for result in results), numeric=(2, 3)),
    ]
    if epsilons is None:
        blocks.append(Paragraph(f"No percentile curve: {reason}."))
    else:
        blocks.append(percentile_picture(ledger, evidence, delta, epsilons))
    blocks.append(Points("What these numbers rest on", tuple(assumptions(results))))
    return Section(f"typical-{evidence.kind}", f"Not for publication: {evidence.kind}", tuple(blocks), private=True)


def _row(result: Guarantee | Refusal) -> tuple[str, ...]:
    if isinstance(result, Refusal):
        return result.accountant, f"refused: {result.reason}"
    whom = "a typical record" if result.percentile is None else f"{percent(result.percentile, 2)} of people"
    return result.accountant, whom, f"{result.epsilon:.4f}", in_full(result.delta)


def percentile_picture(ledger: Ledger, evidence: Evidence, delta: float, epsilons: Floats) -> Picture:
    """How many people have how much privacy; each point of the curve holds by itself (maths.md 8 d)."""
    worst = get_accountant("pld").guarantee(ledger, delta=delta).epsilon
    members = evidence.kind == "members"
    most = 1 - 1 / evidence.records if members else best_percentile(evidence.records, GAMMA)
    shares = np.geomspace(max(1 - most, 1e-5), 0.9, 60)[::-1]
    found = [(float(share), _level(epsilons, float(1 - share), members)) for share in shares]
    curve = [(share, value) for share, value in found if value is not None]
    x, y = tuple(share for share, _ in curve), tuple(value for _, value in curve)
    half = float(np.quantile(epsilons, 0.5))
    return Picture(
        f"percentiles-{evidence.kind}",
        "How many people have how much privacy",
        f"Read from right to left: fewer and fewer people have an epsilon above the line. Half of these "
        f"{evidence.kind} have at most {half:.3f}; nobody has more than the worst case, {round_up(worst)}.",
        Chart(
            Axis("share of people who may have more", min(x, default=1e-3), 0.9, log=True, percent=True),
            Axis("epsilon", 0.0, room_above((*y, worst))),
            (
                Series(f"from the {evidence.kind}", x, y, "warm", "steps"),
                Series("everybody (worst case)", (min(x, default=1e-3), 0.9), (worst, worst)),
            ),
        ),
    )


def _level(epsilons: Floats, share: float, members: bool) -> float | None:
    if members:
        return float(np.quantile(epsilons, share, method="higher"))
    return percentile_value(epsilons, share, GAMMA)
