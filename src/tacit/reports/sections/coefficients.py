"""The coefficients of a regression: a table and a forest plot, read from run.json, which the manifest vouches for."""

from tacit.reports.content import Block, Paragraph, Picture, Section, Table
from tacit.reports.pictures import Effect, Forest
from tacit.runs import DeclaredFacts
from tacit.runs.facts import Interval
from tacit.storage.names import clean

_MOST_EFFECTS = 40  # effects in a plot


def coefficients_section(facts: DeclaredFacts) -> Section:
    rows = facts.coefficients
    level = f"{100 * rows[0].level:g} %"
    blocks: list[Block] = [
        Paragraph(
            f"A {facts.model} of “{facts.target}”. An interval of {level} holds the true coefficient in about {level} "
            "of such analyses if the model is right, privacy noise included; docs/regression.md says what that needs."
            + "".join(f" {sentence[0].upper()}{sentence[1:]}." for sentence in facts.assumptions if sentence)
        ),
        Table("Coefficients, on the table's own scale", ("", "Estimate", f"{level} interval"),
              tuple(_row(row) for row in rows), numeric=(1, 2)),
    ]  # fmt: skip
    plot = _plot(rows, level)
    return Section("coefficients", "What are the effects?", (*blocks, *([] if plot is None else [plot])))


def _row(row: Interval) -> tuple[str, str, str]:
    if row.estimate is None or row.low is None or row.high is None:
        return row.name, "", "not identified: no interval is stated"
    return row.name, f"{row.estimate:.4g}", f"{row.low:.4g} to {row.high:.4g}"


def _plot(rows: tuple[Interval, ...], level: str) -> Picture | None:
    """On one scale: of half a number's declared range, or of a level against its reference."""
    effects = tuple(
        Effect(clean(row.name), row.estimate * row.scale, row.low * row.scale, row.high * row.scale)
        for row in rows
        if row.scale is not None and row.estimate is not None and row.low is not None and row.high is not None
    )[:_MOST_EFFECTS]
    if not effects:
        return None
    clear = [effect.name for effect in effects if effect.low > 0 or effect.high < 0]
    which = f"Those of {', '.join(clear)} leave out 0." if clear else "All of them hold 0."
    return Picture(
        "forest",
        "Effects and how sure they are",
        f"Each line is the {level} interval of the effect of half a number's declared range, or of a level against its "
        f"reference. {which}",
        Forest("effect", effects),
    )
