"""What a schema leaves open is asked for in one charged release, the first of the run's ledger."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.accountants import Budget, BudgetGate, PLDAccountant, RDPAccountant, best_bound, guarantees
from tacit.errors import BudgetError, InputError, RefusedError
from tacit.ledger import (
    Charge,
    GaussianSumQuery,
    Ledger,
    LedgerHeader,
    PoissonSample,
    ThresholdedSample,
    read_ledger,
)
from tacit.queries import QueryRequest, ask
from tacit.queries import questions as room
from tacit.queries.ask import released_answers
from tacit.queries.drafts import OpenTable, ask_draft
from tacit.queries.kinds.bounds import EDGES
from tacit.queries.kinds.levels import level_counts, threshold
from tacit.queries.questions import Questions, found_bins
from tacit.queries.schema_run import begin_with_questions
from tacit.randomness import Randomness
from tacit.runs import Problem, RunFolder, train_table
from tacit.tables import Category, Flag, Ignored, Number, Schema, Table, encode, read_schema, schema_text

OPEN = Schema(
    (Number("age", ask=("bounds", "bins")), Category("job", ask=("levels",)), Category("ill", ask=("levels",))),
    ask_units=True,
    target="ill",
)
TOML = """
records = "ask"
target = "ill"
[[columns]]
name = "age"
kind = "number"
bounds = "ask"
bins = "ask"
[[columns]]
name = "job"
kind = "category"
levels = "ask"
[[columns]]
name = "ill"
kind = "category"
levels = "ask"
"""
SUMS = (GaussianSumQuery(1.0, 20.0), GaussianSumQuery(1.0, 30.0))
DELTA = 1e-6


def people(rows=4000, seed=0):
    chance = np.random.default_rng(seed)
    age = chance.uniform(18, 90, rows).round(1)
    job = chance.choice(["cook", "clerk", "nurse"], rows).astype(object)
    ill = np.where(chance.random(rows) < 1 / (1 + np.exp(4 - age / 12)), "yes", "no").astype(object)
    job[0] = "astronaut"  # a name that only one person has
    return Table({"age": age, "job": job, "ill": ill, "who": np.array([f"p{i // 4}" for i in range(rows)], object)})


def nothing(count):
    return np.zeros(count)


@pytest.fixture
def files(tmp_path):
    table = people()
    rows = zip(*(table.columns[name] for name in ("age", "job", "ill")), strict=True)
    (tmp_path / "t.csv").write_text("age,job,ill\n" + "\n".join(",".join(map(str, row)) for row in rows))
    (tmp_path / "s.toml").write_text(TOML)
    return ["train", tmp_path / "t.csv", "--schema", tmp_path / "s.toml", "--epsilon", 3, "--out", tmp_path / "run"]


def test_a_failure_is_taken_off_delta():
    event = ThresholdedSample(4e-7, SUMS)
    for accountant in (PLDAccountant(), RDPAccountant()):
        found = accountant.guarantee(Ledger.planned([Charge(event, 1)]), delta=1e-6).epsilon
        sure = accountant.guarantee(Ledger.planned([Charge(PoissonSample(1.0, SUMS), 1)]), delta=6e-7).epsilon
        assert found == pytest.approx(sure, rel=1e-9)
        with pytest.raises(RefusedError, match="not below delta"):
            accountant.guarantee(Ledger.planned([Charge(event, 3)]), delta=1e-6)


UNDECLARED = Schema((Category("job"), Category("ill", ("no", "yes"))), records=2000)


@pytest.mark.parametrize("unit", ["record", "who"])
def test_a_query_discovers_the_levels_that_enough_have(tmp_path, unit):
    schema = replace(UNDECLARED, unit=unit, users=500)
    found = ask(people(2000), "count", "levels:job", schema=schema, epsilon=1.0, out=tmp_path / "run", delta=1e-6)
    shown = {one.cell: one for one in found if one.query == "levels:job"}
    assert list(shown) == ["job=clerk", "job=cook", "job=nurse"]
    true = level_counts(people(2000), UNDECLARED.columns[0], None if unit == "record" else people(2000).columns["who"])
    for name, one in shown.items():
        assert abs(one.value - true[name.removeprefix("job=")]) < 5 * one.stddev
        assert one.high - one.low == pytest.approx(2 * 1.959964 * one.stddev, rel=1e-5)
    [charge] = read_ledger(tmp_path / "run").charges
    assert charge.event.failure == pytest.approx(1e-7)
    assert best_bound(found.guarantees).epsilon <= 1


def test_one_person_alone_is_not_shown_and_moves_a_count_by_one():
    table, asked = people(400), QueryRequest(UNDECLARED, ("levels:job",), 1.0, 1e-6)
    whole = released_answers(asked, table, nothing)
    assert "job=astronaut" not in [one.cell for one in whole]
    less = Table({name: cells[1:] for name, cells in table.columns.items()})
    assert [one.value for one in released_answers(asked, less, nothing)] == [one.value for one in whole]
    fewer = released_answers(asked, Table({name: cells[:-1] for name, cells in table.columns.items()}), nothing)
    assert sum(abs(a.value - b.value) for a, b in zip(whole, fewer, strict=True)) == 1


def test_levels_of_a_declared_column_are_counted_not_discovered():
    for text in ("levels:ill", "levels:none", "levels:job:by:ill", "levels:job:3"):
        with pytest.raises(InputError):
            QueryRequest(UNDECLARED, (text,), 1.0)


def test_a_shared_ledger_sets_delta_aside_for_failures_before_its_first_output():
    event, step = ThresholdedSample(1e-7, SUMS), Charge(PoissonSample(1.0, SUMS), 1)
    adaptive = LedgerHeader(schedule="adaptive", epsilon=2.0, delta=1e-6)
    for charges in ((Charge(event, 1),), (Charge(event, 1), step, Charge(event, 1))):
        found = RDPAccountant().guarantee(Ledger(adaptive, charges), delta=1e-6)
        assert found.epsilon == pytest.approx(2.0, rel=1e-9)
    gate = BudgetGate(Budget(2.0, 1e-6))
    gate(Ledger(adaptive, (Charge(event, 1),)), [step])
    for charges, says in (
        ((step, Charge(event, 1)), "must be the first"),
        ((Charge(event, 3),), "asked for too often"),
    ):
        with pytest.raises(RefusedError, match=says):
            RDPAccountant().guarantee(Ledger(adaptive, charges), delta=1e-6)
        with pytest.raises(RefusedError, match=says):
            BudgetGate(Budget(2.0, 1e-6))(Ledger(adaptive, charges[:-1]), charges[-1:])


def test_what_a_schema_leaves_open_is_paid_from_a_shared_budget(tacit, files, tmp_path):
    shared = ("--budget", tmp_path / "all.jsonl", "--json")
    code, out, err = tacit(*files, *shared, "--budget-epsilon", 3)
    assert code == 0, err
    found = json.loads(out)
    assert [one["epsilon"] for one in found["guarantees"] if one.get("accountant") == "rdp"] == [
        pytest.approx(3, rel=1e-6)
    ]
    assert "astronaut" not in (tmp_path / "run" / "run.json").read_text()
    assert read_ledger(tmp_path / "all.jsonl").charges[0].event.kind == "thresholded"
    assert tacit("ledger", "verify", tmp_path / "run")[0] == 0
    before = (tmp_path / "all.jsonl").read_bytes()
    code, _, err = tacit(*files[:-1], tmp_path / "second", *shared)
    assert code != 0
    assert err.count("\n") == 1
    assert (tmp_path / "all.jsonl").read_bytes() == before
    assert not (tmp_path / "second").exists()


def test_two_runs_that_ask_fit_into_one_total(tacit, files, tmp_path):
    shared = ("--budget", tmp_path / "all.jsonl")
    for name, more in (("first", ("--budget-epsilon", 7)), ("second", ())):
        code, _, err = tacit(*files[:-1], tmp_path / name, *shared, *more)
        assert code == 0, err
    assert len(read_ledger(tmp_path / "all.jsonl").charges) >= 4


def test_a_budget_counts_failures():
    event, step = ThresholdedSample(4e-7, SUMS), PoissonSample(0.05, (GaussianSumQuery(1.0, 4.0),))
    whole = Ledger.planned([Charge(event, 1), Charge(step, 300)])
    cost = PLDAccountant().guarantee(whole, delta=1e-6).epsilon
    spent = Ledger(LedgerHeader(), (Charge(event, 1),))
    BudgetGate(Budget(1.0001 * cost, 1e-6))(spent, [Charge(step, 300)])
    for budget in (Budget(0.9999 * cost, 1e-6), Budget(1.0001 * cost, 9.9e-7)):
        with pytest.raises(BudgetError):
            BudgetGate(budget)(spent, [Charge(step, 300)])


def test_one_person_alone_passes_the_threshold_as_rarely_as_charged():
    for stddev in (0.5, 20.0):
        for failure in (1e-3, 1e-9):
            assert ndtr((1 - threshold(stddev, failure)) / stddev) <= failure


def test_a_unit_counts_for_one_level():
    table = people(400)
    for owners in (None, table.columns["who"]):
        whole = level_counts(table, Category("job"), owners)
        assert sum(whole.values()) == (400 if owners is None else 100)
        for gone in (0, 7):
            kept = np.arange(400) != gone if owners is None else owners != owners[gone]
            less = Table({name: cells[kept] for name, cells in table.columns.items()})
            left = level_counts(less, Category("job"), None if owners is None else owners[kept])
            assert sum(((whole - left) + (left - whole)).values()) == 1


def test_one_record_moves_every_sum_by_at_most_one(monkeypatch):
    table, seen = people(300), []
    real = room.exact_sums

    def watched(given, width, weights):
        seen.append(real(given, width, weights))
        return seen[-1]

    monkeypatch.setattr(room, "exact_sums", watched)
    for unit, kept in (("record", np.arange(300) != 5), ("who", np.arange(300) >= 4)):
        schema = replace(OPEN, unit=unit)
        less = Table({name: cells[kept] for name, cells in table.columns.items()})
        seen.clear()
        for one in (table, less):
            Questions(schema, 1.0, DELTA).answered(one, nothing)
        for before, after in zip(seen[:2], seen[2:], strict=True):
            assert np.linalg.norm(before - after) <= 1 + 1e-9


def test_answers_are_near_and_hide_who_is_alone():
    found = Questions(OPEN, 3.0, DELTA).answered(people(), lambda n: Randomness.seeded(1).normals(n).numpy())
    age, job, ill = found.columns
    assert abs(found.records - 4000) < 200
    assert 15 < age.low <= 19
    assert 76 <= age.high < 95
    assert len(age.bins) >= 4
    assert job.levels == ("clerk", "cook", "nurse")
    assert ill.levels == ("no", "yes")
    assert found.questions == ()
    assert found.asked == ("records", "age", "job", "ill")
    assert any("asked of the table" in sentence for sentence in found.assumptions)


def test_what_is_too_rare_to_see_is_ignored():
    few = Questions(OPEN, 1.0, DELTA).answered(people(40), nothing)
    assert all(isinstance(column, Ignored) for column in few.columns)


def begun(folder, table, epsilon=3.0, chance=None):
    chance = chance or Randomness.seeded(0)
    questions = Questions(OPEN, epsilon, DELTA)
    return begin_with_questions(
        questions, table, RunFolder(folder), lambda schema: Problem(schema, "ill", epsilon, DELTA), randomness=chance
    )


def test_asking_and_training_cost_epsilon_together_in_one_ledger(tmp_path):
    chance, table = Randomness.seeded(0), people()
    facts = begun(tmp_path / "run", table, chance=chance)
    assert read_ledger(tmp_path / "run").steps == 1
    data = encode(table, facts.problem.schema, "ill")
    found = train_table(facts, data, RunFolder(tmp_path / "run"), begun=True, randomness=chance)
    kinds = Counter(charge.event.kind for charge in found.fitted.ledger.charges)
    assert kinds == {"thresholded": 1, "poisson": 1}
    assert found.fitted.ledger.steps == 301
    assert 2.999 < best_bound(guarantees(found.fitted.ledger, DELTA)).epsilon <= 3.0
    assert found.fitted.ledger.header.dataset_size is None
    assert RunFolder(tmp_path / "run").read_facts().problem == facts.problem
    said = found.predictor.classes(data.inputs).mean.numpy().argmax(1)
    assert (said == data.targets).mean() > 0.7


def test_what_is_charged_does_not_follow_the_answers(tmp_path):
    """A table ten times as large, with other levels, opens the same ledger and plans the same steps."""
    other = people(30_000, seed=5)
    other.columns["job"][:] = np.where(np.arange(30_000) % 2, "pilot", "cook")
    facts = [begun(tmp_path / name, table) for name, table in (("one", people()), ("two", other))]
    assert facts[0].problem.schema != facts[1].problem.schema
    ledgers = [(tmp_path / name / "ledger.jsonl").read_bytes() for name in ("one", "two")]
    assert ledgers[0] == ledgers[1]
    one, two = (fact.problem.recipe for fact in facts)
    assert (one.probability, one.steps, one.noise_multiplier) == (two.probability, two.steps, two.noise_multiplier)


def test_the_command_asks_trains_and_goes_on_after_a_stop(tacit, tmp_path, files, stopped):
    assert tacit(*files, "--hold-out", "20%")[0] == 130
    code, out, _ = tacit("train", files[1], "--resume", "--out", tmp_path / "run", "--json")
    assert code == 0
    said = json.loads(out)
    assert said["guarantees"][0]["epsilon"] <= 3
    assert said["run"]["schema"]["asked"] == ["records", "age", "job", "ill"]
    assert read_ledger(tmp_path / "run").charges[0].event.kind == "thresholded"
    for command in (["account", tmp_path / "run"], ["report", tmp_path / "run", "--format", "md"]):
        assert tacit(*command)[0] == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (('bounds = "ask"', 'bounds = "guess"'), "a number has no 'bounds'"),
        (('kind = "number"', 'kind = "number"\nlevels = "ask"'), "a number has no 'levels'"),
        (('bounds = "ask"', 'bounds = "ask"\nlow = 0\nhigh = 1'), "cannot be asked for too"),
        (('name = "job"', 'name = "jobs"'), "jobs"),
        (('kind = "category"\nlevels = "ask"\n[[', 'kind = "flag"\nlevels = "ask"\n[['), "a flag has no 'levels'"),
    ],
)
def test_a_bad_question_is_one_line_and_charges_nothing(tacit, tmp_path, files, change, says):
    (tmp_path / "s.toml").write_text(TOML.replace(*change))
    code, _, err = tacit(*files)
    assert (code, says in err, err.count("\n"), (tmp_path / "run").exists()) == (2, True, 1, False), err


def test_other_commands_refuse_an_open_schema(tacit, tmp_path, files):
    code, _, err = tacit("ask", files[1], "mean:age", *files[2:])
    assert (code, "must be declared" in err) == (2, True)
    code, _, err = tacit("tune", *files[1:])
    assert (code, "tacit train" in err) == (2, True)


def test_a_schema_says_what_is_to_be_asked_and_what_was(tmp_path):
    (tmp_path / "s.toml").write_text(TOML)
    schema = read_schema(tmp_path / "s.toml")
    assert schema.columns == OPEN.columns
    assert schema.ask_units
    (tmp_path / "again.toml").write_text(schema_text(schema))
    assert read_schema(tmp_path / "again.toml") == schema
    filled = Questions(schema, 3.0, DELTA).answered(people(), nothing)
    (tmp_path / "filled.toml").write_text(schema_text(filled))
    assert read_schema(tmp_path / "filled.toml") == filled
    with pytest.raises(InputError, match="still to be asked"):
        schema.check("ill")


def test_bins_hold_many_and_are_not_made_of_noise():
    chance = np.random.default_rng(0)
    counts = np.histogram(chance.exponential(1000, 20_000), EDGES)[0] + 50 * chance.normal(size=len(EDGES) - 1)
    bins = found_bins(counts, 50.0, 0.0, 9000.0)
    shares = np.diff([0, *np.searchsorted(np.sort(chance.exponential(1000, 20_000)), bins), 20_000]) / 20_000
    assert len(bins) > 3
    assert shares.min() > 0.005


def test_a_draft_is_asked_for_by_names_alone(tacit, tmp_path, files):
    out, run = tmp_path / "draft.toml", tmp_path / "asked"
    code, _, _ = tacit("schema", files[1], "--ask", "--epsilon", 2, "--run", run, "--out", out, "--target", "ill")
    assert code == 0
    found = read_schema(out)
    assert [column.kind for column in found.columns] == ["number", "category", "flag"]
    assert found.asked == ("records", "age", "job", "ill")
    assert 1.999 < best_bound(guarantees(read_ledger(run), DELTA)).epsilon <= 2.0
    assert tacit("account", run)[0] == 0
    assert tacit("schema", files[1], "--ask", "--out", tmp_path / "no.toml")[0] == 2
    assert not (tmp_path / "no.toml").exists()


def test_one_odd_cell_does_not_flip_a_kind(tmp_path):
    table = people()
    asked = OpenTable(("age", "ill"), 3.0)
    odd = Table({"age": np.array(["forty", *map(str, table.columns["age"][1:])], dtype=object),
                 "ill": np.array(["perhaps", *table.columns["ill"][1:]], dtype=object)})  # fmt: skip
    found = ask_draft(asked, odd, RunFolder(tmp_path / "run"), Randomness.seeded(0))
    assert [type(column) for column in found.columns] == [Number, Flag]
