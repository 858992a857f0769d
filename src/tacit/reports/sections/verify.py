"""How anybody can check the numbers of this page, and what that check cannot see."""

from tacit.reports.content import Commands, Paragraph, Section, Terms
from tacit.runs import RunContent


def verify_section(run: RunContent, delta: float) -> Section:
    return Section(
        "verify",
        "How to check this page",
        (
            Paragraph(
                "Every privacy number on this page was computed from the ledger when the page was made. Whoever has "
                "the run's folder, here called RUN, can do it again; no data is needed."
            ),
            Commands(
                (
                    "tacit ledger verify RUN",
                    "tacit ledger head RUN",
                    f"tacit account RUN --delta {delta:g}",
                    f"tacit report RUN --delta {delta:g}",
                )
            ),
            Terms((("Records in the ledger", f"{run.head.count:,}"), ("Head of the ledger", run.head.hash))),
            Paragraph(
                "The ledger is a chain: each record holds the hash of the one before it, so a changed or missing "
                "record is found. If all copies are rolled back together, only the head above, kept elsewhere, shows "
                "it. The ledger proves what was recorded, not that the program which wrote it ran unchanged."
            ),
        ),
    )
