"""Weights of records and classes: what they do to a model, and that they never let a record do more."""

import json

import numpy as np
import pytest
import torch

import tacit
from tacit.errors import InputError
from tacit.likelihoods import Bernoulli, RecordWeighed, Weighed
from tacit.randomness import Randomness
from tacit.runs import Problem, RunFacts, RunFolder, train_table
from tacit.runs.models import batch_of
from tacit.tables import Category, Number, Schema, Table, encode, read_schema, schema_text

COLUMNS = (Number("x", -3, 3), Number("w", 0, 5), Category("ill", ("no", "yes")))


def declared(**facts):
    return Schema(**{"columns": COLUMNS, "records": 4000, "target": "ill"} | facts)


def people(rows=4000, seed=0):
    """One in ten is ill; the column w says 5 for the ill and 1 for the others."""
    chance = np.random.default_rng(seed)
    x = chance.normal(size=rows)
    ill = chance.random(rows) < 1 / (1 + np.exp(2.9 - 1.5 * x))
    return Table({"x": x, "w": np.where(ill, 5.0, 1.0), "ill": np.where(ill, "yes", "no").astype(object)})


def share_called_ill(tmp_path, schema) -> float:
    """Of the ill, at a threshold of one half."""
    table = people()
    data = encode(table, schema, "ill")
    problem = Problem(schema, "ill", 3.0, 1e-5)
    found = train_table(RunFacts(problem), data, RunFolder(tmp_path), randomness=Randomness.seeded(1))
    said = found.predictor.classes(data.inputs).mean.numpy()[:, 1] > 0.5
    return float(said[data.targets == 1].mean())


def test_weights_of_classes_and_of_records_find_more_of_a_rare_class(tmp_path):
    ignored = declared(columns=(COLUMNS[0], COLUMNS[2]))
    plain = share_called_ill(tmp_path / "plain", ignored)
    by_class = share_called_ill(tmp_path / "class", declared(columns=(COLUMNS[0], COLUMNS[2]), class_weight={"yes": 8}))
    by_record = share_called_ill(tmp_path / "record", declared(sample_weight="w"))
    assert plain < 0.45
    assert by_class > plain + 0.25
    assert by_record > plain + 0.2


def test_a_weight_only_takes_from_what_a_record_may_do():
    """Whatever stands in the column, the loss is between nothing and what it is without weights."""
    table = people(6)
    table.columns["w"][:] = [-3, 0, np.inf, 1e30, 5, 2.5]
    schema = declared(sample_weight="w", class_weight={"yes": 3, "no": 0.5})
    data = encode(table, schema, "ill")
    assert data.weights.min() >= 0
    assert data.weights.max() <= 1
    inputs, both = batch_of(data)
    model = torch.nn.Linear(inputs.shape[1], 1, bias=False)
    with torch.no_grad():
        weighed = Weighed(RecordWeighed(Bernoulli()))(model, (inputs, both))
        plain = Weighed(Bernoulli())(model, (inputs, both[:, 0]))
    assert (weighed <= plain + 1e-7).all()


def test_a_record_without_a_weight_is_left_out_and_public_ones_need_none():
    table = people(5)
    table.columns["w"][1:3] = 0, np.nan
    schema = declared(sample_weight="w")
    assert encode(table, schema, "ill").rows.tolist() == [0, 3, 4]
    public = Table({name: cells for name, cells in people(5).columns.items() if name != "w"})
    assert encode(public, schema, "ill", public=True).weights.tolist() == [1] * 5
    with pytest.raises(InputError, match="'w'"):
        encode(public, schema, "ill")
    with pytest.raises(InputError, match="all weights are zero"):
        encode(Table(public.columns | {"w": np.zeros(5)}), schema, "ill")


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"class_weight": {"maybe": 2}}, "class_weight names 'maybe'; the classes of 'ill' are"),
        ({"class_weight": {"yes": 0}}, "class_weight of 'yes' must be a finite number above 0"),
        ({"class_weight": {"yes": "3"}}, "class_weight of 'yes' must be a finite number above 0"),
        ({"class_weight": 3}, "class_weight must be like"),
        ({"sample_weight": "ill"}, "must be a number column of its own"),
        ({"sample_weight": "v"}, "declares no column 'v'"),
        ({"sample_weight": 5}, "sample_weight must be a str"),
        ({"columns": (*COLUMNS, Number("v", -1, 1)), "sample_weight": "v"}, "must be a number column of its own"),
    ],
)
def test_a_mistake_is_named(facts, says):
    with pytest.raises(InputError, match=says):
        declared(**facts).check("ill")


def test_a_schema_keeps_its_weights(tmp_path):
    schema = declared(sample_weight="w", class_weight={"yes": 3, "no": 1.5})
    (tmp_path / "s.toml").write_text(schema_text(schema))
    assert read_schema(tmp_path / "s.toml") == schema
    assert [column.name for column in schema.features("ill")] == ["x"]


def test_the_command_takes_weights_and_a_run_remembers_them(tacit, tmp_path):
    table = people(800)
    rows = zip(*(table.columns[name].tolist() for name in ("x", "w", "ill")), strict=True)
    (tmp_path / "t.csv").write_text("x,w,ill\n" + "".join(f"{x},{w},{ill}\n" for x, w, ill in rows))
    (tmp_path / "s.toml").write_text(schema_text(declared(records=800)))
    plain = ("train", tmp_path / "t.csv", "--schema", tmp_path / "s.toml", "--epsilon", 1, "--out", tmp_path / "run")
    for wrong in ("yes", "yes=0", "yes=-1", "yes=1,yes=2", "balanced", "yes=nan"):
        code, _, err = tacit(*plain, "--class-weight", wrong)
        assert code == 2
        assert "class-weight" in err
        assert err.count("\n") == 1
    code, _, err = tacit(*plain, "--class-weight", "yes=3", "--sample-weight", "w")
    assert code == 0, err
    facts = json.loads((tmp_path / "run" / "run.json").read_text())["schema"]
    assert (facts["class_weight"], facts["sample_weight"]) == ({"yes": 3.0}, "w")
    (tmp_path / "weighed.toml").write_text(schema_text(declared(records=800, sample_weight="w")))
    code, _, err = tacit("regress", tmp_path / "t.csv", "--schema", tmp_path / "weighed.toml", "--outcome", "ill",
                         "--epsilon", 1, "--out", tmp_path / "r")  # fmt: skip
    assert code == 2
    assert "counts all records alike" in err


def test_estimators_take_weights():
    table = people()
    X, y, w = table.columns["x"][:, None], table.columns["ill"].astype(str), table.columns["w"]
    facts = {"bounds": (-3, 3), "n_records": 4000, "classes": ["no", "yes"], "random_state": 1}
    plain = tacit.PrivateClassifier(3.0, **facts).fit(X, y)
    by_class = tacit.PrivateClassifier(3.0, class_weight={"yes": 8}, **facts).fit(X, y)
    by_record = tacit.PrivateClassifier(3.0, sample_weight_bound=5, **facts).fit(X, y, sample_weight=w)
    ill = y == "yes"
    shares = [float((model.predict(X)[ill] == "yes").mean()) for model in (plain, by_class, by_record)]
    assert shares[1] > shares[0] + 0.25
    assert shares[2] > shares[0] + 0.2
    assert by_record.guarantees_[0].epsilon <= 3
    with pytest.raises(InputError, match="found 'balanced'; how many records"):
        tacit.PrivateClassifier(3.0, class_weight="balanced", **facts).fit(X, y)
    with pytest.raises(InputError, match="class_weight names 'maybe'"):
        tacit.PrivateClassifier(3.0, class_weight={"maybe": 2}, **facts).fit(X, y)
    with pytest.raises(InputError, match="one number for each of 4000 records"):
        tacit.PrivateClassifier(3.0, sample_weight_bound=5, **facts).fit(X, y, sample_weight=w[:-1])
    with pytest.warns(tacit.errors.UndeclaredWarning, match="declare sample_weight_bound"):
        tacit.PrivateClassifier(3.0, **facts).fit(X, y, sample_weight=w)


def test_a_regressor_takes_weights():
    """Two halves with other truths: the one that weighs nothing is not learned."""
    chance = np.random.default_rng(0)
    X = chance.uniform(-1, 1, (3000, 1))
    first = np.arange(3000) < 1500
    y = np.where(first, 1, -1) * X[:, 0] + 0.1 * chance.normal(size=3000)
    facts = {"bounds": (-1, 1), "target_bounds": (-1.5, 1.5), "n_records": 3000, "sample_weight_bound": 1}
    model = tacit.PrivateRegressor(3.0, random_state=1, **facts).fit(X, y, sample_weight=first.astype(float))
    assert np.sqrt(np.mean((model.predict(X) - X[:, 0]) ** 2)) < 0.15
