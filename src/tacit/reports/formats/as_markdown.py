"""A report as Markdown: readable as it is, and safe to show as HTML, whatever a data set or a column is called."""

import re

from tacit.reports.content import Block, Commands, Paragraph, Picture, Points, Report, Section, Table, Terms
from tacit.storage.names import one_line

_MARKS = re.compile(r"([\\`*_\[\]|#~$])")


def to_markdown(report: Report) -> str:
    lines = [f"<!-- tacit report {report.version} -->", f"# {plain(report.title)}", plain(report.subtitle)]
    lines += [f"> **{plain(banner.title)}.** {plain(banner.text)}" for banner in report.banners]
    lines.append(f"**{plain(report.headline.promise)}**")
    if report.picture is not None:
        lines.append(_block(report.picture))
    for section in report.sections:
        lines += _section(section)
    return "\n\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text in which no character is a mark, a tag or a link.

    Example:
        >>> plain("<b>*see* https://here</b>")
        '&lt;b&gt;\\\\*see\\\\* https&#58;//here&lt;/b&gt;'
    """
    marked = _MARKS.sub(r"\\\1", one_line(text).replace("&", "&amp;"))
    marked = marked.replace("<", "&lt;").replace(">", "&gt;").replace("://", "&#58;//")
    return re.sub(r"(?i)\bwww\.", "www&#46;", marked).replace("@", "&#64;")


def _section(section: Section) -> list[str]:
    return [f"## {plain(section.title)}", *(_block(block) for block in section.blocks)]


def _block(block: Block) -> str:
    match block:
        case Paragraph(text):
            return plain(text)
        case Points(title, items):
            return "\n".join([f"**{plain(title)}**", "", *(f"- {plain(item)}" for item in items)])
        case Terms(rows):
            return "\n".join(f"- **{plain(name)}**: {plain(value)}" for name, value in rows)
        case Commands(lines):
            return "\n".join(f"    {line}" for line in lines)
        case Picture(_, title, description):
            return f"**{plain(title)}.** {plain(description)}"
        case Table():
            return _table(block)


def _table(table: Table) -> str:
    rule = ["---:" if number in table.numeric else "---" for number in range(len(table.columns))]
    rows = [list(row) + [""] * (len(table.columns) - len(row)) for row in table.rows]
    written = [_row([plain(name) for name in table.columns]), _row(rule)]
    written += [_row([plain(cell) for cell in row]) for row in rows]
    return "\n".join([f"**{plain(table.caption)}**", "", *written])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
