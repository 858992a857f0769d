"""How the model was trained: what the ledger recorded, and what was declared beside it with the reasons."""

from tacit.ledger import FixedSizeSample, Ledger, PosteriorSample, SamplingEvent
from tacit.reports.content import Block, Section, Table, Terms
from tacit.reports.text import listed
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
    rows = [_event(event, steps) for event, steps in merged[:_SHOWN]]
    if len(merged) > _SHOWN:
        left = merged[_SHOWN:]
        rows.append(
            (f"{sum(steps for _, steps in left):,}", f"{len(left):,} more kinds of steps: tacit ledger show RUN")
        )
    return Table(
        f"What the ledger recorded, {ledger.steps:,} steps in all", _COLUMNS, tuple(rows), numeric=(0, 2, 3, 4)
    )


def _event(event: SamplingEvent, steps: int) -> tuple[str, ...]:
    if isinstance(event, PosteriorSample):
        return f"{steps:,}", f"posterior sample, log-likelihood range {event.log_likelihood_range:g}"
    return (
        f"{steps:,}",
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
        ("Classes", listed(facts.classes)),
        ("From", listed(facts.features)),
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
