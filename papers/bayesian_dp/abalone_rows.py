"""Rows of table 1 for Abalone: whether a shell has ten rings or more; every run on another split of the shells.

A weight grows with the cube of a length, so cube roots are taken, each record on its own. Cube roots were chosen among
four such forms on the splits of seeds 0 to 4; splits here are others.
"""

import statistics

import torch
from bayesian_dp.table_rows import REPEATS, measure_table
from logistic import Table
from torch import Tensor

from tacit.data import TableData, load_abalone
from tacit.reproduction import Work

RINGS, TRAIN, FIRST = 10, 3_133, 100
WEIGHTS = slice(-4, None)


def abalone_rows(work: Work) -> None:
    if not work.wants("Abalone"):
        return
    seeds = range(FIRST + REPEATS * work.seed, FIRST + REPEATS * (work.seed + 1))
    tables = [Table("abalone", split(seed), work.folder, 10 if work.quick else None) for seed in seeds]
    work.measure("Abalone: baseline accuracy", statistics.fmean(table.open_accuracy() for table in tables))
    for epsilon in (0.5,) if work.quick else (7.6, 0.5):
        for method in ("variational inference", "SGLD"):
            measure_table(work, tables, epsilon, method)


def split(seed: int) -> TableData:
    found = load_abalone()
    inputs = rooted(torch.cat([found.train_inputs, found.test_inputs]))
    labels = (torch.cat([found.train_labels, found.test_labels]) >= RINGS).long()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    train, test = order[:TRAIN], order[TRAIN:]
    return TableData(inputs[train], labels[train], inputs[test], labels[test])


def rooted(inputs: Tensor) -> Tensor:
    """Rows have norm 1 and a constant first entry; dividing by it gives the values in [-1, 1] back."""
    raw = inputs / inputs[:, :1]
    roots = 2 * ((raw[:, WEIGHTS] + 1) / 2).clamp(min=0) ** (1 / 3) - 1
    rows = torch.cat([raw[:, : WEIGHTS.start], roots], dim=1)
    return rows / rows.norm(dim=1, keepdim=True)
