"""Pictures and pages for people who would rather look than read."""

from tacit.reports.evidence import draw_evidence
from tacit.reports.privacy import draw_privacy

__all__ = ["draw_evidence", "draw_privacy"]
