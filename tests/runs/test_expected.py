"""What ``tacit train --plan`` expects, against what a private classifier reaches, and that it reads no record."""

import json

import numpy as np
import pytest

from tacit.runs import Problem
from tacit.runs.quality.expected import expected_accuracy
from tacit.tables import Category, Flag, Number, Schema, schema_text

COLUMNS = (*(Number(f"x{i}", 0, 1) for i in range(8)), Category("job", ("a", "b", "c")), Flag("ill"))


def test_more_records_or_epsilon_come_nearer_to_the_best():
    few, many = (Problem(Schema(COLUMNS, records=n), "ill", 1.0, 1e-5) for n in (300, 6000))
    [at_few] = expected_accuracy(few, (0.3,), 0.85)
    low, high = expected_accuracy(many, (0.3, 3.0), 0.85)
    assert at_few.accuracy < low.accuracy - 0.03
    assert low.accuracy <= high.accuracy + 0.005
    assert 0.83 < high.accuracy < 0.8501


def test_several_classes_have_a_plan_too():
    schema = Schema((*COLUMNS[:8], Category("kind", ("a", "b", "c"))), records=4000)
    [found] = expected_accuracy(Problem(schema, "kind", 3.0, 1e-5), (3.0,), 0.7, tables=1)
    assert 0.6 < found.accuracy < 0.7001


def test_the_plan_reads_no_record_and_writes_nothing(tacit, tmp_path):
    names = [column.name for column in COLUMNS]
    (tmp_path / "s.toml").write_text(schema_text(Schema(COLUMNS, records=500, target="ill")))
    said = []
    for value in (1, 999):
        (tmp_path / "t.csv").write_text(",".join(names) + "\n" + ",".join([str(value)] * len(names)) + "\n")
        code, out, err = tacit("train", tmp_path / "t.csv", "--schema", tmp_path / "s.toml", "--epsilon", 1, "--plan",
                               "--json")  # fmt: skip
        assert code == 0, err
        said.append(json.loads(out))
    assert said[0] == said[1]
    assert [row["epsilon"] for row in said[0]["expected"]] == [0.25, 0.5, 1, 2, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.toml", "t.csv"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--best", 0.4), "--best must be above 0.50"),
        (("--best", 1), "best must"),
        (("--best", np.nan), "best must"),
        (("--target", "x0"), "tacit regress --plan"),
        (("--target", "none"), "declares no column 'none'"),
    ],
)
def test_a_bad_plan_is_one_line(tacit, tmp_path, more, says):
    (tmp_path / "s.toml").write_text(schema_text(Schema(COLUMNS, records=500, target="ill")))
    (tmp_path / "t.csv").write_text(",".join(column.name for column in COLUMNS) + "\n" + ",".join("1" * 10) + "\n")
    code, _, err = tacit("train", tmp_path / "t.csv", "--schema", tmp_path / "s.toml", "--epsilon", 1, "--plan", *more)
    assert (code, err.count("\n"), says in err) == (2, 1, True), err
