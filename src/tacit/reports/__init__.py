"""Pictures and pages for people who would rather look than read."""

from tacit.reports.content import Report
from tacit.reports.evidence import draw_evidence
from tacit.reports.formats import render
from tacit.reports.privacy import draw_privacy
from tacit.reports.report import make_report

__all__ = ["Report", "draw_evidence", "draw_privacy", "make_report", "render"]
