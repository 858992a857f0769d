"""Rows of table 1 for Abalone: whether a shell has ten rings or more."""

from bayesian_dp.table_rows import measure_table
from logistic import Table

from tacit.data import TableData, load_abalone
from tacit.reproduction import Work

RINGS = 10


def abalone_rows(work: Work) -> None:
    if not work.wants("Abalone"):
        return
    found = load_abalone()
    labels = [(rings >= RINGS).long() for rings in (found.train_labels, found.test_labels)]
    data = TableData(found.train_inputs, labels[0], found.test_inputs, labels[1])
    table = Table("abalone", data, work.folder, 10 if work.quick else None)
    work.measure("Abalone: baseline accuracy", table.open_accuracy())
    for epsilon in (0.5,) if work.quick else (7.6, 0.5):
        for method in ("variational inference", "SGLD"):
            measure_table(work, table, epsilon, method)
