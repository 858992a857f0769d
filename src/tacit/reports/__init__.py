"""Pictures and pages for people who would rather look than read."""

from tacit.reports.privacy import draw_privacy

__all__ = ["draw_privacy"]
