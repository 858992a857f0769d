"""A small table of people, some of them ill, and its schema."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import torch

from tacit.runs import Problem
from tacit.tables import Table

TOML = """
records = 600
target = "ill"
[[columns]]
name = "x"
kind = "number"
low = -3
high = 3
[[columns]]
name = "ill"
kind = "category"
levels = ["no", "yes"]
"""


def people(rows=600, seed=0):
    chance = np.random.default_rng(seed)
    x = chance.normal(size=rows)
    ill = chance.random(rows) < 1 / (1 + np.exp(1 - 2 * x))
    who = np.array([f"p{i // 4}" for i in range(rows)], dtype=object)
    return Table({"x": x, "ill": np.where(ill, "yes", "no").astype(object), "who": who})


def write_files(folder, table):
    """The table without its owners as t.csv, and its schema as s.toml."""
    lines = [f"{x:.3f},{ill}" for x, ill in zip(table.columns["x"], table.columns["ill"], strict=True)]
    (folder / "t.csv").write_text("x,ill\n" + "\n".join(lines))
    (folder / "s.toml").write_text(TOML)


@dataclass
class EchoingPredictor:
    """Predicts what the first input says: its own value as a probability, or a thousand times it as a number."""

    problem: Problem

    @staticmethod
    def classes(inputs):
        p = torch.from_numpy(inputs[:, :1].astype(np.float64))
        return SimpleNamespace(mean=torch.cat([1 - p, p], 1))

    @staticmethod
    def numbers(inputs):
        return SimpleNamespace(mean=torch.from_numpy(1e3 * inputs[:, 0].astype(np.float64)))
