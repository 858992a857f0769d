"""All that was reproduced, as one Markdown table per item, from the results that scripts left behind."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tacit.errors import InputError
from tacit.reproduction.expectation import Expectation, Item, Verdict
from tacit.reproduction.work import EARLIER, Result

_HEAD = "| row | paper | ours | difference | we expect | verdict |\n|---|---|---|---|---|---|"
_NAMED_ROWS = 3  # missing rows that are named


def document(items: Mapping[str, Item], folder: Path) -> str:
    """What each item gave, or that it was not run; the newest results of an item below ``folder`` count."""
    found = _results(folder)
    if not found:
        raise InputError(f"no results.json of a reproduction below {folder}")
    return "\n\n".join(part for item in items.values() for part in _item(item, found.get(item.key, [])))


def _results(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Results by item, in the order in which they were written; later rows take the place of earlier ones."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.rglob("results.json"), key=lambda path: path.stat().st_mtime):
        try:
            content = json.loads(path.read_text())
            known = (content["item"], content["quick"], content["results"], content["environment"]["date"])
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path} is no result of a reproduction: {error}") from error
        if not known[1]:
            found.setdefault(known[0], []).append(content)
    return found


def _item(item: Item, results: list[dict[str, Any]]) -> Iterator[str]:
    yield f"### {item.key}: {item.title}"
    found = {row["row"]: float(row["ours"]) for one in results for row in one["results"]}
    values = {name: found[name] for name in [*item.rows, *found] if name in found}  # in the order of the expectations
    if not values:
        yield f"Not run in full ({item.minutes:g} minutes)."
        return
    dates = sorted({one["environment"]["date"] for one in results})
    seeds = sorted({one["seed"] for one in results})
    yield f"Measured {', '.join(dates)}, seed {', '.join(map(str, seeds))}."
    rows = [_judged(name, value, item.rows.get(name, Expectation())) for name, value in values.items()]
    missing = [name for name in item.rows if name not in values]
    yield "\n".join([_HEAD, *(f"| {' | '.join(row.cells)} |" for row in rows)])
    if missing:
        yield f"Not measured: {_shortened(missing)}."
    sentences = [*reasons(rows), *_notes(results)]
    if sentences:
        yield "\n".join(f"- {sentence}" for sentence in sentences)


def reasons(results: Iterable[Result]) -> list[str]:
    """Why rows are not the paper's, each reason once."""
    rows: dict[str, list[str]] = {}
    for result in results:
        if result.expectation.why and result.verdict is not Verdict.REPRODUCED:
            rows.setdefault(result.expectation.why, []).append(result.row)
    return [f"{_together(names)}: {why}" for why, names in rows.items()]


def _judged(name: str, value: float, expected: Expectation) -> Result:
    return Result(name, value, expected, expected.judge(value))


def _shortened(names: list[str]) -> str:
    """All of a few names, else how many there are and the first of them."""
    if len(names) <= _NAMED_ROWS:
        return "; ".join(names)
    return f"{len(names)} rows, the first of them {'; '.join(names[:_NAMED_ROWS])}"


def _notes(results: list[dict[str, Any]]) -> list[str]:
    """Each note once, also where several runs have the same; those on the files of a try say nothing here."""
    runs: dict[str, dict[str, None]] = {}
    for note in (note for one in results for note in one["notes"] if EARLIER not in note):
        name, _, text = note.rpartition(": ")
        runs.setdefault(text, {})[name] = None
    return [f"{_together([*names])}: {text}" if any(names) else text for text, names in runs.items()]


def _together(names: list[str]) -> str:
    return "; ".join(names) if len(names) <= _NAMED_ROWS else f"{len(names)} rows"
