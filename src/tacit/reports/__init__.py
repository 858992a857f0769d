"""Pictures and pages for people who would rather look than read."""

from tacit.reports.content import Headline, Report
from tacit.reports.formats import render
from tacit.reports.plots import draw_evidence, draw_privacy
from tacit.reports.report import make_report
from tacit.reports.sections.promise import headline

__all__ = ["Headline", "Report", "draw_evidence", "draw_privacy", "headline", "make_report", "render"]
