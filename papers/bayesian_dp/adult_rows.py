"""Rows of table 1 for Adult. At epsilon 0.5 the rule clips at 1, the best for Bayesian accounting; 0.5 is beside it."""

from bayesian_dp.table_rows import REPEATS, measure_table
from logistic import Table

from tacit.data import load_adult
from tacit.reproduction import Work


def adult_rows(work: Work) -> None:
    table = Table("adult", load_adult(), work.folder)
    if work.lacks("Adult: baseline accuracy"):
        work.measure("Adult: baseline accuracy", table.open_accuracy())
    if work.quick:
        return
    for epsilon in (0.5, 0.2):
        for method in ("variational inference", "SGLD"):
            measure_table(work, [table] * REPEATS, epsilon, method)
    measure_table(work, [table] * REPEATS, 0.5, "SGLD", clip_norm=0.5)
