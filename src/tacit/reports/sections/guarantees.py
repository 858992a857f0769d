"""All guarantees in one table: what every accountant says, what its number is, and what it rests on."""

from collections.abc import Sequence

from tacit.accountants import Guarantee, Refusal
from tacit.reports.content import Block, Paragraph, Points, Section, Table
from tacit.reports.text import in_full, round_up
from tacit.reports.words import APPROXIMATION, BOUND, NOTION

COLUMNS = ("Accountant", "Epsilon", "Delta", "Notion", "Neighbours", "Unit", "What the number is", "Rests on")
_NEIGHBOURS = {"add_remove": "add or remove one", "replace_one": "replace one"}


def guarantees_section(results: Sequence[Guarantee | Refusal]) -> Section:
    notes = assumptions(results)
    blocks: list[Block] = [
        Paragraph(
            "Each accountant reads the same ledger by its own method. A bound holds for certain; the smallest bound is "
            "the one to quote. An approximation may lie below the truth. An accountant that cannot read this ledger "
            "says why and gives no number."
        ),
        Table("What each accountant says", COLUMNS, tuple(_row(result, notes) for result in results), numeric=(1, 2)),
    ]
    if notes:
        blocks.append(Points("What the numbers rest on", tuple(f"({i}) {text}" for i, text in enumerate(notes, 1))))
    return Section("guarantees", "All guarantees", tuple(blocks))


def assumptions(results: Sequence[Guarantee | Refusal]) -> list[str]:
    """Every assumption once, in the order in which accountants name them."""
    given = [result for result in results if isinstance(result, Guarantee)]
    return list(dict.fromkeys(text for result in given for text in result.assumptions))


def _row(result: Guarantee | Refusal, notes: list[str]) -> tuple[str, ...]:
    if isinstance(result, Refusal):
        return (result.accountant.upper(), f"refused: {result.reason}")
    return (
        result.accountant.upper(),
        round_up(result.epsilon, 4) if result.is_bound else f"about {result.epsilon:.4f}",
        in_full(result.delta),
        NOTION[result.notion],
        _NEIGHBOURS[result.neighbours],
        result.unit,
        BOUND if result.is_bound else APPROXIMATION,
        ", ".join(f"({notes.index(text) + 1})" for text in result.assumptions) or "the ledger alone",
    )
