"""A report: everything that a run's folder says about its privacy and its predictions, put in order."""

import math
from pathlib import Path

from tacit import __version__
from tacit.accountants import Guarantee, Refusal, check_delta, guarantees
from tacit.ledger import Ledger
from tacit.reports.content import Headline, Report, Section
from tacit.reports.sections.answers import answers_section
from tacit.reports.sections.coefficients import coefficients_section
from tacit.reports.sections.curves import curves_section
from tacit.reports.sections.guarantees import guarantees_section
from tacit.reports.sections.promise import attack_picture, headline, promise_section
from tacit.reports.sections.quality import quality_section
from tacit.reports.sections.training import training_section
from tacit.reports.sections.typical import typical_section
from tacit.reports.sections.verify import verify_section
from tacit.reports.sections.warnings import banners, warnings_section
from tacit.runs import RunContent, read_content
from tacit.runs.facts import QUERIES
from tacit.storage.names import clean

DELTA = 1e-5


def make_report(run: str | Path, *, delta: float | None = None, bayesian: bool = False) -> Report:
    """Read a run's folder and compute everything that its report says, from the ledger.

    Args:
        run: a run's folder or its ledger file.
        delta: of the statement; None takes the one that the ledger declares, or one below 1 in the declared size.
        bayesian: also what private evidence says; such a report is not for publication.

    Raises:
        LedgerError: there is no ledger, or it is damaged.
        InputError: delta cannot be used, or a file beside the ledger cannot be read.
    """
    found = read_content(run, evidence=bayesian)
    delta = usual_delta(found.ledger) if delta is None else delta
    check_delta(delta, found.ledger.header.dataset_size)
    results = tuple(guarantees(found.ledger, delta))
    said = headline(found.ledger, results)
    title = clean(found.ledger.header.dataset)
    return Report(
        title=f"Privacy report: {title}",
        subtitle=_subtitle(found),
        headline=said,
        picture=attack_picture(found.ledger, said),
        banners=banners(found, said, bayesian),
        sections=tuple(_sections(found, delta, said, results)),
        guarantees=results,
        facts=_facts(found, delta),
        version=__version__,
    )


def _sections(run: RunContent, delta: float, said: Headline, results: tuple[Guarantee | Refusal, ...]) -> list[Section]:
    warned = warnings_section(run, said)
    return [
        *([] if warned is None else [warned]),
        promise_section(run.ledger, said),
        _results(run),
        guarantees_section(results),
        curves_section(run.ledger, delta, said),
        training_section(run),
        verify_section(run, delta),
        *(typical_section(run.ledger, item, delta) for item in run.evidence),
    ]


def _results(run: RunContent) -> Section:
    """What came of it: answers, coefficients, or how good a model is."""
    if run.facts is None:
        return quality_section(run.evaluation, ())
    if run.facts.task == QUERIES:
        return answers_section(run.facts.answers)
    if run.facts.coefficients:
        return coefficients_section(run.facts)
    return quality_section(run.evaluation, run.facts.answers)


def usual_delta(ledger: Ledger) -> float:
    """The declared delta; else 1e-5, or the power of ten that lies at least ten times below 1 in the declared size."""
    if ledger.header.delta is not None:
        return ledger.header.delta
    size = ledger.header.dataset_size or 1
    return min(DELTA, 10.0 ** math.floor(-1 - math.log10(size)))


def _subtitle(run: RunContent) -> str:
    size = run.ledger.header.dataset_size
    units = "" if size is None else f" on {size:,} {run.ledger.header.unit}s (declared)"
    if run.facts is not None and run.facts.task == QUERIES:
        asked = len({answer.query for answer in run.facts.answers})
        return f"Answers to {asked:,} {'query' if asked == 1 else 'queries'} with differential privacy{units}."
    what = "A model" if run.facts is None else f"A {run.facts.model} model that predicts “{run.facts.target}”,"
    return f"{what} trained with differential privacy{units}, in {run.ledger.steps:,} steps."


def _facts(run: RunContent, delta: float) -> dict[str, object]:
    header = run.ledger.header
    return {
        "dataset": header.dataset,
        "dataset_size": header.dataset_size,
        "unit": header.unit,
        "neighbours": header.neighbours,
        "schedule": header.schedule,
        "randomness": header.randomness,
        "steps": run.ledger.steps,
        "runs": run.ledger.runs,
        "delta": delta,
        "ledger_records": run.head.count,
        "ledger_head": run.head.hash,
    }
