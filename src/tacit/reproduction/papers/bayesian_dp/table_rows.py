"""Rows of table 1 for a table of records: logistic regression by variational inference, as in the paper, and by SGLD.

Accuracy is the mean over fresh runs; the privacy columns belong to the first of them, whose probes are the test rows.
"""

import statistics
from dataclasses import replace
from pathlib import Path

from bayesian_dp.accounting import measure_privacy
from logistic import Table

import tacit
from tacit.reproduction import Work
from tacit.tables import Recipe

REPEATS = 10


def measure_table(work: Work, tables: list[Table], epsilon: float, method: str, clip_norm: float | None = None) -> None:
    """One run on each table. ``clip_norm`` takes the place of the rule's; the rate follows the rule for it."""
    clip = "" if clip_norm is None else f", clip {clip_norm:g}"
    name = f"{tables[0].name.capitalize()}, {method}, epsilon {epsilon:g}{clip}"
    if not work.lacks(f"{name}: accuracy"):
        return
    settings = tables[0].settings(epsilon, "sgld" if method == "SGLD" else "vi")
    if clip_norm is not None:
        settings = _with_clip(settings, clip_norm)
    chosen = list(enumerate(tables[: 1 if work.quick else None]))
    found = [_run(work, table, settings, method, name, first=number == 0) for number, table in chosen]
    used = f"clip {settings.clip_norm:g}, rate {settings.learning_rate:.3g}, {settings.steps} steps"
    spread = f"{len(found)} runs, standard deviation {statistics.stdev(found):.2f}" if len(found) > 1 else "one run"
    work.note(f"{name}: {used}; {spread}")
    work.measure(f"{name}: accuracy", statistics.fmean(found))


def _with_clip(settings: Recipe, clip_norm: float) -> Recipe:
    """The recipe at another clip: signal to noise grows as it shrinks, and the rate with it, up to its cap."""
    snr, steps = settings.snr * settings.clip_norm / clip_norm, settings.steps
    cap = 32.0 if clip_norm >= 1 else 64.0
    return replace(settings, clip_norm=clip_norm, snr=snr, learning_rate=min(25 * snr, cap * 300) / steps)


def _run(work: Work, table: Table, settings: Recipe, method: str, name: str, *, first: bool) -> float:
    model, places = table.model(), []

    def folder(_: str) -> Path:
        places.append(work.folder(name.replace(",", "").replace(" ", "-")))
        return places[-1]

    build = table.sgld if method == "SGLD" else table.variational
    few = 200 if work.quick else None
    probes = (table.data.test_inputs[:few], table.data.test_labels[:few])
    evidence = tacit.EvidencePlan(probes=probes, probe_every=1 if method == "SGLD" else 20) if first else None
    run = replace(table, folder=folder).train(build(settings, model), settings, name, evidence=evidence)
    if evidence is not None:
        measure_privacy(work, name, run.ledger, places[-1])
    return table.accuracy(model, run.posterior)
