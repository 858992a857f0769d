"""What a run of ``tacit ask`` released: each number with the interval that its noise leaves."""

from collections.abc import Sequence

from tacit.reports.content import Block, Paragraph, Section, Table
from tacit.runs.facts import AnsweredQuery

_SHOWN = 200


def answers_section(answers: Sequence[AnsweredQuery]) -> Section:
    levels = sorted({answer.level for answer in answers if answer.level is not None})
    words = (
        "Each interval holds the answer that would have been given without noise"
        + (f", with probability {', '.join(f'{level:g}' for level in levels)}" if levels else "")
        + ". It is about these very records and says nothing about people who are not among them."
    )
    rows = tuple(
        (answer.query, answer.cell, _number(answer.value), _number(answer.low), _number(answer.high))
        for answer in answers[:_SHOWN]
    )
    blocks: list[Block] = [
        Paragraph(words),
        Table("Answers, as released in run.json", ("Query", "Cell", "Answer", "Low", "High"), rows, numeric=(2, 3, 4)),
    ]
    if len(answers) > _SHOWN:
        blocks.append(Paragraph(f"{len(answers) - _SHOWN:,} more stand in run.json."))
    return Section("answers", "What was answered", tuple(blocks))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
