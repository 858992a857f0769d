"""The three ways a report is written: a page, plain text with marks, data. They compute nothing."""

from typing import Literal

from tacit.reports.content import Report
from tacit.reports.formats.as_data import to_data, to_json
from tacit.reports.formats.as_html import to_html
from tacit.reports.formats.as_markdown import to_markdown

Format = Literal["html", "json", "md"]

MARK = "tacit report"  # stands near the beginning of every report, so that nothing else is overwritten


def render(report: Report, form: Format) -> str:
    """The report as one text."""
    match form:
        case "html":
            return to_html(report)
        case "md":
            return to_markdown(report)
        case "json":
            return to_json(report)


__all__ = ["MARK", "Format", "render", "to_data", "to_html", "to_json", "to_markdown"]
