"""A table of coefficients as text: plain for a terminal, Markdown, or LaTeX. Nothing is computed here."""

from collections.abc import Sequence
from typing import Literal

from tacit.regression.results.summary import Coefficient

TableFormat = Literal["text", "markdown", "latex"]
_LATEX = {letter: f"\\{letter}" for letter in "_%&#${}"} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}",
    ">": r"\textgreater{}",
}  # fmt: skip


def head(level: float, ratio: str | None) -> list[str]:
    """The names of the columns."""
    interval = f"{100 * level:g} % interval"
    return ["", "estimate", interval, *([] if ratio is None else [ratio, interval]), "P(> 0)", "sd", "of it privacy"]


def cells(row: Coefficient) -> list[str]:
    """One row as text; what cannot be said is a dash.

    Example:
        >>> cells(Coefficient("age", 0.5, 0.1, 0.9, 0.95, 0.2, 0.99, 0.16, 0.12, None))
        ['age', '0.5', '0.1 to 0.9', '0.990', '0.2', '20 %']
    """
    ratio = [] if row.ratio is None else [_number(row.ratio[0]), _interval(row.ratio[1], row.ratio[2])]
    positive = "-" if row.positive is None else f"{row.positive:.3f}"
    share = "-" if row.stddev is None else f"{100 * row.privacy_share:.0f} %"
    return [row.name, _number(row.estimate), _interval(row.low, row.high), *ratio, positive, _number(row.stddev), share]


def table_text(rows: Sequence[Coefficient], ratio: str | None, form: TableFormat) -> str:
    """The whole table."""
    lines = [head(rows[0].level, ratio), *(cells(row) for row in rows)]
    match form:
        case "markdown":
            rule = "|---|" + "---:|" * (len(lines[0]) - 1)
            written = [f"| {' | '.join(_marked(cell) for cell in line)} |" for line in lines]
            return "\n".join([written[0], rule, *written[1:]])
        case "latex":
            body = [" & ".join("".join(_LATEX.get(c, c) for c in cell) for cell in line) + r" \\" for line in lines]
            columns = "l" + "r" * (len(lines[0]) - 1)
            inside = "\n".join([r"\hline", body[0], r"\hline", *body[1:], r"\hline"])
            return f"\\begin{{tabular}}{{{columns}}}\n{inside}\n\\end{{tabular}}"
        case "text":
            widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
            padded = [[_padded(cell, widths[i], i) for i, cell in enumerate(line)] for line in lines]
            return "\n".join("  ".join(line) for line in padded)


def _marked(cell: str) -> str:
    return cell.replace("|", "\\|").replace("<", "&lt;")


def _padded(cell: str, width: int, place: int) -> str:
    return cell.ljust(width) if place == 0 else cell.rjust(width)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _interval(low: float | None, high: float | None) -> str:
    return "not identified" if low is None or high is None else f"{low:.4g} to {high:.4g}"
