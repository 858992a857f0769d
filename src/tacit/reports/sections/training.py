"""How the model was trained: what the ledger recorded, and what was declared beside it with the reasons."""

from collections.abc import Iterator

from tacit.ledger import FixedSizeSample, Ledger, PosteriorSample, SamplingEvent, Tuned
from tacit.reports.content import Block, Section, Table, Terms
from tacit.reports.text import join_names
from tacit.runs import DeclaredFacts, RunContent
from tacit.runs.facts import QUERIES

_SHOWN = 12  # kinds of steps listed one by one
_COLUMNS = ("Steps", "Sampling", "Clip norm", "Noise on the sum", "Noise multiplier")


def training_section(run: RunContent) -> Section:
    blocks: list[Block] = [_events(run.ledger)]
    if run.facts is not None:
        blocks.append(Terms(tuple(_declared(run.facts))))
        if run.facts.settings:
            rows = tuple((item.name, item.value, item.why) for item in run.facts.settings)
            blocks.append(Table("Settings, as declared in run.json", ("Setting", "Value", "Why"), rows))
    asked = run.facts is not None and run.facts.task == QUERIES
    return Section("training", "How it was released" if asked else "How it was trained", tuple(blocks))


def _events(ledger: Ledger) -> Table:
    merged = list(ledger.merged().items())
    rows = [row for event, steps in merged[:_SHOWN] for row in _rows(event, f"{steps:,}")]
    if len(merged) > _SHOWN:
        left = merged[_SHOWN:]
        rows.append(
            (f"{sum(steps for _, steps in left):,}", f"{len(left):,} more kinds of steps: tacit ledger show RUN")
        )
    return Table(
        f"What the ledger recorded, {ledger.steps:,} steps in all", _COLUMNS, tuple(rows), numeric=(0, 2, 3, 4)
    )


def _rows(event: SamplingEvent, steps: str) -> Iterator[tuple[str, ...]]:
    """One, and of a search one more for each release of a trial."""
    if isinstance(event, Tuned):
        number = ", ".join(f"{name} {getattr(event.trials, name):.4g}" for name in event.trials.__slots__)
        yield steps, f"the best of a secret number of trials ({event.trials.law.replace('_', ' ')}, {number})"
        for one, each in event.trial:
            yield from _rows(one, f"each trial: {each:,}")
    elif isinstance(event, PosteriorSample):
        yield steps, f"posterior sample, log-likelihood range {event.log_likelihood_range:g}"
    else:
        yield (
            steps,
            _sampling(event),
            ", ".join(f"{query.clip_norm:.4g}" for query in event.queries),
            ", ".join(f"{query.noise_stddev:.4g}" for query in event.queries),
            f"{event.noise_multiplier:.5g}",
        )


def _sampling(event: SamplingEvent) -> str:
    kind = event.kind.replace("_", " ")
    if isinstance(event, FixedSizeSample):
        return f"{kind}: {event.size:,} of {event.population:,}"
    chance = getattr(event, "probability", None)
    return kind if chance is None else f"{kind}, each with chance {chance:.4g}"


def _declared(facts: DeclaredFacts) -> list[tuple[str, str]]:
    rows = [
        ("Task", facts.task),
        ("Predicts", facts.target),
        ("Classes", join_names(facts.classes)),
        ("From", join_names(facts.features)),
        ("Method", facts.method),
        ("Model", facts.model),
        ("Privacy asked for", "" if facts.epsilon is None else f"epsilon {facts.epsilon:g}"),
        ("Effective temperature", _temperature(facts.effective_temperature)),
    ]
    return [(name, value) for name, value in rows if value]


def _temperature(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.4g}, measured on the chain's moves (1 is that of the posterior of the clipped losses)"
