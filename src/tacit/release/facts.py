"""run.json against what can be proved: its fields have their types, and agree with the ledger and the posterior.

Sums alone say that a bundle arrived as it was packed. Whoever packs it anew can make fresh ones, so what run.json tells
of a run is held against the ledger, which cannot be changed without its head, and against the posterior beside it.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from tacit.errors import InputError, RefusedError
from tacit.ledger import Ledger, PoissonSample, Tuned
from tacit.runs.facts import FORMAT, parse_facts
from tacit.storage.json_files import Fields

_ROUNDING_ALLOWED = 1e-4  # relative: what is charged has an allowance for rounding


def check_facts(ledger: Ledger, facts: dict[str, Any], files: Mapping[str, bytes]) -> None:
    """Refuse facts that are damaged, or that tell of another run than the ledger and the posterior do."""
    fields = Fields("run.json", facts)
    try:
        if facts:  # a run from one's own program has none
            fields.check_format(FORMAT)
            _refuse_gaps(facts)
        parse_facts(fields)
        spread = fields.part("spread")
        if spread is not None:
            _check_spread(spread.numbers("stddevs"), spread.numbers("weights"))
    except InputError as error:
        raise RefusedError(str(error)) from error
    header = ledger.header
    known: dict[str, object] = {"dataset": header.dataset, "n_records": header.dataset_size, "unit": header.unit}
    budget = {_total(facts): header.epsilon, "delta": header.delta}
    known |= {name: value for name, value in budget.items() if value is not None}  # it need not be declared
    for name, value in known.items():
        if facts.get(name) not in (None, value):
            raise RefusedError(f"run.json says {name} {facts[name]!r}, the ledger {value!r}")
    _check_settings(ledger, facts.get("settings") or [])
    _check_outputs(facts, files)


def _refuse_gaps(facts: Mapping[str, Any]) -> None:
    """An epsilon means nothing without its delta and whom it protects."""
    for name in ("unit", _total(facts), "delta"):
        if facts.get(name) is None:
            raise RefusedError(f"run.json does not say its {name}; without it its privacy cannot be stated")


def _total(facts: Mapping[str, Any]) -> str:
    """The name of what the ledger may cost as a whole; of a shared one a run's own epsilon is a part."""
    return "epsilon" if facts.get("shared_ledger") is None else "shared_epsilon"


def _check_spread(stddevs: tuple[float, ...], weights: tuple[float, ...]) -> None:
    if not stddevs or len(stddevs) != len(weights) or not all(value > 0 for value in stddevs):
        raise RefusedError("run.json: spread needs one positive stddev for each weight")
    if not all(value >= 0 for value in weights) or not math.isclose(math.fsum(weights), 1, rel_tol=_ROUNDING_ALLOWED):
        raise RefusedError("run.json: the weights of spread must add up to 1")


def _check_settings(ledger: Ledger, settings: Iterable[Mapping[str, Any]]) -> None:
    events = [event for event in ledger.merged() if isinstance(event, PoissonSample)]
    events += [one for event in ledger.merged() if isinstance(event, Tuned) for one, _ in event.trial]
    charged = {
        "sampling probability": [event.probability for event in events],
        "noise multiplier": [event.noise_multiplier for event in events],
        "clip norm": [query.clip_norm for event in events for query in event.queries],
    }
    if any(isinstance(event, Tuned) for event in ledger.merged()):
        del charged["clip norm"]  # trials differ in it, and are charged in units of it
    for setting in settings:
        name, value = setting.get("name"), setting.get("value")
        if name not in charged or not events:
            continue
        if not isinstance(value, int | float) or not any(
            math.isclose(value, one, rel_tol=_ROUNDING_ALLOWED) for one in charged[name]
        ):
            raise RefusedError(f"run.json says {name} {value!r}, which the ledger was never charged for")


def _check_outputs(facts: Mapping[str, Any], files: Mapping[str, bytes]) -> None:
    """Our own models end in as many outputs as there are classes; two classes, or a number, need one."""
    if facts.get("model") not in ("linear", "mlp"):
        return
    classes = len(facts.get("classes") or ())
    outputs = 1 if classes <= 2 else classes
    shapes = [shape for name, data in files.items() if name.endswith(".safetensors") for shape in _weights(data)]
    if not any(len(shape) > 1 and shape[-2] == outputs for shape in shapes):
        raise RefusedError(f"run.json tells of {classes} classes, which is not what the posterior predicts")


def _weights(data: bytes) -> list[list[int]]:
    """The shapes of a posterior's weights; that its header can be read was checked before."""
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    entries = [entry for name, entry in header.items() if name.endswith("weight") and isinstance(entry, dict)]
    return [entry["shape"] for entry in entries if isinstance(entry.get("shape"), list)]
