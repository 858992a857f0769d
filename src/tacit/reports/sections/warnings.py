"""What a reader must know before any number: banners, and warnings where declared facts and the ledger disagree."""

import re
from collections.abc import Iterator

from tacit.ledger import LedgerHeader
from tacit.reports.content import Banner, Headline, Points, Section
from tacit.reports.text import round_up
from tacit.runs import DeclaredFacts, RunContent

_DERIVED = "(derived|read off|taken) from (the )?(private )?data|(derived|read off|taken) (the )?(private )?data"


def banners(run: RunContent, said: Headline, private: bool) -> tuple[Banner, ...]:
    return tuple(_banners(run, said, private))


def _banners(run: RunContent, said: Headline, private: bool) -> Iterator[Banner]:
    if private:
        yield Banner("danger", "Not for publication", "This report holds diagnostics computed from single records. "
                     "They are not private. Make it again without --bayesian for others.")  # fmt: skip
    if run.ledger.header.randomness == "seeded":
        yield Banner("danger", "Seeded run: do not release", "The noise of this run can be repeated by whoever knows "
                     "the seed, so it hides nobody. It is for tests only.")  # fmt: skip
    if said.guarantee is None:
        yield Banner("danger", "No guarantee", "No accountant can state a number for this ledger; the table of "
                     "guarantees says why.")  # fmt: skip
    elif not said.guarantee.is_bound:
        yield Banner("danger", "An approximation", "No accountant can certify this run. The number shown is not a "
                     "bound and may lie below the truth.")  # fmt: skip
    if is_derived(run):
        yield Banner("caution", "The schema was taken from the private data", "Bounds, categories or classes were read "
                     "from the records themselves. That is not covered by the numbers on this page.")  # fmt: skip


def is_derived(run: RunContent) -> bool:
    """Said by the schema beside the run, or by the ledger's own assumptions, which a run.json cannot take back."""
    declared = any(re.search(_DERIVED, text) for text in run.ledger.header.assumptions)
    return declared or (run.facts is not None and run.facts.derived_schema)


def warnings_section(run: RunContent, said: Headline) -> Section | None:
    found = list(_warnings(run, said))
    return Section("warnings", "Warnings", (Points("Before you rely on this run", tuple(found)),)) if found else None


def _warnings(run: RunContent, said: Headline) -> Iterator[str]:
    if run.torn_bytes:
        yield "The ledger ends in an unfinished line, as after a crash; a whole block of steps is charged for it."
    asked, stated = run.ledger.header.epsilon, said.guarantee
    if asked is not None and stated is not None and run.ledger.header.delta == stated.delta and stated.epsilon > asked:
        yield f"The ledger declares a budget of epsilon {asked:g}; it costs {round_up(stated.epsilon)}."
    if run.facts is not None:
        yield from _contradictions(run.facts, run.ledger.header)
        yield from run.facts.warnings


def _contradictions(facts: DeclaredFacts, header: LedgerHeader) -> Iterator[str]:
    """The ledger counts; what run.json says otherwise is told, never used."""
    pairs = (
        ("name of the data", facts.dataset, header.dataset),
        ("number of records", facts.n_records, header.dataset_size),
        ("unit of privacy", facts.unit, header.unit),
        ("delta", facts.delta, header.delta),
    )
    for what, declared, recorded in pairs:
        if declared is not None and recorded is not None and declared != recorded:
            yield f"The {what}: run.json says {declared}, the ledger says {recorded}. This page follows the ledger."
