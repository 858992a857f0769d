"""A search for settings: charged once before its first trial, and nothing that it leaves tells how many there were."""

import json
from collections import Counter

import numpy as np
import pytest

import tacit as library
from tacit.accountants import best_bound, guarantees
from tacit.errors import InputError
from tacit.ledger import NegativeBinomialTrials, PoissonTrials, Tuned, read_ledger
from tacit.randomness import Randomness
from tacit.runs import Problem, RunFacts, RunFolder, train_table
from tacit.runs.search import trials as tuning
from tacit.runs.search.plan import generating, search_plan
from tacit.tables import Category, Encoded, Number, Schema, Search, Table, encode, recipes
from tacit.tables.settings import trial_score_noise
from tests.runs.people import EchoingPredictor, people, write_files

SCHEMA = Schema((Number("x", -3, 3), Category("ill", ("no", "yes"))), records=600, users=150, target="ill")
FEW = dict.fromkeys(recipes.STEPS, 60) | {"vi": 90}
SEARCH = Search({"rate": (0.5, 1.0)}, trials=3)


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    monkeypatch.setattr(recipes, "STEPS", FEW)


@pytest.fixture
def files(tmp_path):
    write_files(tmp_path, people())
    return ["tune", tmp_path / "t.csv", "--schema", tmp_path / "s.toml", "--epsilon", 2]


def searched(folder, draws=(0, 1), randomness=None, schema=SCHEMA, **facts):
    """A search of so many trials of these candidates."""
    facts = RunFacts(Problem(schema, schema.target, 2.0, 1e-5, search=SEARCH, **facts))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "draw_candidates", lambda *_: tuple(draws))
        return train_table(facts, encode(people(), schema, schema.target), RunFolder(folder), randomness=randomness)


@pytest.mark.parametrize("unit", ["record", "who"])
def test_a_search_stays_within_its_budget_and_is_one_event(tmp_path, unit):
    found = searched(tmp_path / "run", schema=SCHEMA.with_facts(unit=unit))
    ledger = read_ledger(tmp_path / "run")
    [(event, count)] = ledger.merged().items()
    assert isinstance(event, Tuned)
    assert count == 1
    best = best_bound(guarantees(ledger, 1e-5))
    assert 1.9999 < best.epsilon <= 2.0
    assert any("only the best trial is known" in sentence for sentence in best.assumptions)
    assert 0.3 < found.facts.trial_score < 1.3
    again = RunFolder(tmp_path / "run").read_facts()
    assert again.problem == found.facts.problem
    assert again.problem.candidate in SEARCH.candidates


def outside(folder):
    """What a finished run shows to the world, with what may follow the data left out."""
    facts = json.loads((folder / "run.json").read_text())
    chosen = ("trial_score", "candidate", "settings", "effective_temperature")  # they follow which trial was best
    shown = {name: value for name, value in facts.items() if name not in chosen}
    return {
        "files": {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.name != "run.json"},
        "times": len({path.stat().st_mtime_ns for path in folder.iterdir()}),
        "ledger": (folder / "ledger.jsonl").read_bytes(),
        "run": json.dumps(shown, sort_keys=True),
        "settings": [item["name"] for item in facts["settings"]],
    }


def reveals(one, other):
    """Which parts of two runs with different numbers of trials differ."""
    first, second = outside(one), outside(other)
    return [name for name in first if first[name] != second[name]]


@pytest.fixture(scope="module")
def one_trial(tmp_path_factory):
    """A search that drew one trial."""
    folder = tmp_path_factory.mktemp("search") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recipes, "STEPS", FEW)
        searched(folder, (0,))
    return folder


def test_nothing_that_is_left_tells_how_many_trials_there_were(tmp_path, one_trial):
    searched(tmp_path / "six", (0, 1, 0, 0, 1, 1))
    assert reveals(one_trial, tmp_path / "six") == []
    assert outside(tmp_path / "six")["times"] == 1


def leaking(kind, patch):
    """Ways in which a search might show its number of trials."""
    from tacit.ledger import LedgerFile

    real_after, forget = tuning._after_trial, RunFolder.forget_search
    if kind == "a file for each trial":

        def after(problem, data, folder, randomness, now):
            (folder.path / f"trial-{now.done}.log").write_text("done")
            return real_after(problem, data, folder, randomness, now)

        patch.setattr(tuning, "_after_trial", after)
    elif kind == "a charge for each trial":

        def charged(problem, data, folder, randomness, now):
            if now.done:
                with LedgerFile(folder.ledger, read_ledger(folder.path).header) as file:
                    file.reserve(read_ledger(folder.path).charges)
            return real_after(problem, data, folder, randomness, now)

        patch.setattr(tuning, "_after_trial", charged)
    elif kind == "the private file is left":
        patch.setattr(RunFolder, "forget_search", lambda self, *kept: forget(self, *kept) if kept else None)
    elif kind == "the times of files":
        patch.setattr(RunFolder, "_equalise_times", lambda self: None)
    elif kind == "the steps of all trials":
        from tacit.runs.facts import RunFacts as Facts

        to_json, count = Facts.to_json, Counter()

        def counting(*given):
            count["trials"] += 1
            return real_after(*given)

        patch.setattr(tuning, "_after_trial", counting)
        patch.setattr(Facts, "to_json", lambda self: to_json(self) | {"steps": 20 * count["trials"]})


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("a file for each trial", "files"),
        ("a charge for each trial", "ledger"),
        ("the private file is left", "files"),
        ("the times of files", "times"),
        ("the steps of all trials", "run"),
    ],
)
def test_a_mutant_that_reveals_the_number_of_trials_is_caught(tmp_path, one_trial, kind, part):
    with pytest.MonkeyPatch.context() as patch:
        leaking(kind, patch)
        searched(tmp_path / "two", (0, 1))
    assert part in reveals(one_trial, tmp_path / "two")


LAWS = [PoissonTrials(3.0), *(NegativeBinomialTrials(eta, 0.1) for eta in (-0.5, 0.0, 1.0))]


@pytest.mark.parametrize("number", LAWS, ids=str)
def test_the_number_of_trials_has_its_distribution(number):
    units = (np.arange(20_000) + 0.5) / 20_000
    drawn = np.array([tuning.drawn_number(number, float(unit)) for unit in units])
    assert drawn.min() == 1
    for x in (0.2, 0.5, 0.9):
        assert np.mean(x**drawn) == pytest.approx(generating(number, x), abs=2e-4)


def test_candidates_are_drawn_evenly_and_from_chance_alone():
    chance = Randomness.seeded(3)
    drawn = Counter(one for _ in range(400) for one in tuning.draw_candidates(PoissonTrials(5.0), 4, chance))
    assert sum(drawn.values()) == pytest.approx(2000, rel=0.1)
    assert all(count == pytest.approx(500, rel=0.2) for count in drawn.values())


def test_a_search_that_was_stopped_goes_on_with_its_draws(tmp_path, monkeypatch):
    run, trials = tmp_path / "run", []
    real = tuning.learn

    def stopping(problem, *given, **options):
        trials.append(problem.candidate.rate)
        if len(trials) == 2:
            raise KeyboardInterrupt
        return real(problem, *given, **options)

    monkeypatch.setattr(tuning, "learn", stopping)
    with pytest.raises(KeyboardInterrupt):
        searched(run, (0, 1, 0))
    before = (run / "ledger.jsonl").read_bytes()
    assert (run / "tuning.private").stat().st_mode & 0o077 == 0
    assert (run / "tuning-0.private").stat().st_mode & 0o077 == 0
    facts = RunFolder(run).read_facts()
    data = encode(people(), SCHEMA, "ill")
    monkeypatch.setattr(tuning, "draw_candidates", lambda *_: pytest.fail("drawn again"))
    train_table(facts, data, RunFolder(run), resume=True)
    assert trials == [0.5, 1.0, 1.0, 0.5]
    assert (run / "ledger.jsonl").read_bytes() == before
    assert not list(run.glob("tuning*"))


@pytest.mark.parametrize("when", ["before the charge is noted", "before the run is saved"])
def test_a_kill_charges_once_and_changes_nothing_that_was_chosen(tmp_path, monkeypatch, when):
    from tacit.runs import whole_run

    run, scores = tmp_path / "run", []
    real_charge = tuning._charge

    def killed(*given):
        (real_charge(*given) if when == "before the charge is noted" else scores.append(given[1].facts.trial_score))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        if when == "before the charge is noted":
            patch.setattr(tuning, "_charge", killed)
        else:
            patch.setattr(whole_run, "_save", killed)
        with pytest.raises(KeyboardInterrupt):
            searched(run, (0, 1))
    found = train_table(RunFolder(run).read_facts(), encode(people(), SCHEMA, "ill"), RunFolder(run), resume=True)
    assert found.fitted.ledger.steps == 1
    assert scores in ([], [found.facts.trial_score])


def test_a_search_whose_draws_are_gone_is_not_drawn_again(tmp_path, monkeypatch):
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr(tuning, "learn", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            searched(run)
    (run / "tuning.private").unlink()
    with pytest.raises(InputError, match="how many trials were drawn"):
        train_table(RunFolder(run).read_facts(), encode(people(), SCHEMA, "ill"), RunFolder(run), resume=True)


@pytest.mark.parametrize("by", ["brier", "accuracy", "numbers"])
def test_one_unit_moves_a_score_by_at_most_1(by):
    chance, rows = np.random.default_rng(0), np.arange(40)
    number = by == "numbers"
    columns = (Number("x", -3, 3), Number("ill", 0, 10) if number else SCHEMA.columns[1])
    schema = Schema(columns, records=40, users=10, target="ill")
    predictor = EchoingPredictor(Problem(schema, "ill", 1.0, 1e-5, search=Search(by="brier" if number else by)))
    inputs = chance.random((40, 1)).astype(np.float32)
    inputs[3] = np.nan
    targets = chance.uniform(-1, 1, 40) if number else chance.integers(0, 2, 40)
    whole = Encoded(inputs, targets, None, rows)
    less = Encoded(inputs[1:], targets[1:], None, rows[1:])
    scores = [tuning.trial_score(predictor, one, Randomness.seeded(1)) for one in (whole, less)]
    assert abs(scores[0] - scores[1]) <= 1
    who = np.array([f"p{i // 4}" for i in rows], dtype=object)
    scores = [tuning.trial_score(predictor, Encoded(inputs[kept], targets[kept], who[kept], rows[kept]),
                                 Randomness.seeded(1)) for kept in (rows >= 0, rows >= 4)]  # fmt: skip
    assert abs(scores[0] - scores[1]) <= 1


def test_a_trial_that_costs_more_than_was_charged_is_refused(tmp_path, monkeypatch):
    from dataclasses import replace

    real = tuning.training_plan
    monkeypatch.setattr(tuning, "training_plan", lambda *given: replace(real(*given), steps=61))
    with pytest.raises(library.TacitError, match="charged for 60"):
        searched(tmp_path / "run")


def test_numbers_are_searched_too_with_the_spread_of_residuals(tmp_path):
    schema = Schema((Number("x", -3, 3), Number("y", -10, 10)), records=600, target="y")
    x = np.random.default_rng(0).normal(size=600)
    found = library.tune(Table({"x": x, "y": 2 * x}), schema=schema, epsilon=2.0, out=tmp_path / "run",
                         search=Search({"rate": (0.5, 1.0)}, trials=1.2, law="geometric"))  # fmt: skip
    assert found.facts.spread is not None
    assert best_bound(guarantees(found.fitted.ledger, found.facts.problem.delta)).epsilon <= 2.0
    assert len(found.fitted.ledger.merged()) == 2


def test_a_shared_ledger_pays_for_a_search_and_refuses_the_next(tmp_path):
    budget = {"budget": tmp_path / "all.jsonl", "budget_epsilon": 2.5}
    asked = {"schema": SCHEMA, "epsilon": 2.0, "search": SEARCH}
    library.tune(people(), out=tmp_path / "one", **asked, **budget)
    with pytest.raises(library.TacitError, match="exceed the budget"):
        library.tune(people(), out=tmp_path / "two", **asked, **budget)
    assert not (tmp_path / "two").exists()


def test_the_command_plans_searches_and_says_what_was_chosen(tacit, tmp_path, files):
    code, out, _ = tacit(*files, "--plan", "--json")
    assert code == 0
    said = json.loads(out)
    assert said["noise"] > said["default_noise"]
    assert "the defaults are expected to win" in said["verdict"]
    assert len(said["candidates"]) == 6
    run = tmp_path / "run"
    code, out, _ = tacit(*files, "--out", run, "--try", "rate=.5,1", "--trials", 2, "--hold-out", "30%")
    assert code == 0
    assert "Chosen: rate" in out
    assert "Private score on 30%" in out
    assert " s)" not in out
    for command in (["account", run], ["report", run, "--format", "md"], ["ledger", "show", run]):
        code, out, _ = tacit(*command)
        assert code == 0
    assert "a trial:" in out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--try", "rate"], "--try takes a name and values"),
        (["--try", "rate=1"], "2 to 64 candidates"),
        (["--try", "rate=1,1"], "different values"),
        (["--try", "speed=1,2"], "what is tried must be one of rate"),
        (["--try", "rate=0,1"], "rate to try must be a finite number above 0"),
        (["--try", "method=sgld,magic"], "--try method must be one of"),
        (["--try", "method=sgld,vi"], "another number of steps"),
        (["--trials", "0"], "trials must be a finite number above 0"),
        (["--trials", "1", "--law", "geometric"], "trials must be a finite number above 1"),
        (["--law", "uniform"], "law must be one of"),
        (["--by", "luck"], "by must be one of"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tacit, tmp_path, files, options, says):
    code, _, err = tacit(*files, "--out", tmp_path / "run", *options)
    assert (code, says in err, err.count("\n"), (tmp_path / "run").exists()) == (2, True, 1, False), err


def test_train_does_not_go_on_with_a_search(tacit, tmp_path, files, stopped):
    code, _, err = tacit(*files, "--out", tmp_path / "run")
    assert (code, "tacit tune DATA --resume" in err) == (130, True)
    code, _, err = tacit("train", files[1], "--resume", "--out", tmp_path / "run")
    assert (code, "holds a search" in err) == (2, True)
    assert tacit("tune", files[1], "--resume", "--trials", 9, "--out", tmp_path / "run")[0] == 2
    code, _, _ = tacit("tune", files[1], "--resume", "--out", tmp_path / "run")
    assert code == 0


def test_a_plan_tells_when_scores_are_noise():
    few = search_plan(Problem(SCHEMA, "ill", 2.0, 1e-5, search=SEARCH))
    assert "a matter of chance" in few.verdict
    many = search_plan(Problem(SCHEMA.with_facts(records=600_000), "ill", 2.0, 1e-7, search=SEARCH))
    assert "another model" in many.verdict
    assert 0 < many.best_found < 1
    assert many.trial_epsilon < 2.0


def test_the_score_takes_its_share_of_a_trial():
    noise = trial_score_noise(5.0, 0.05, 300)
    steps, score = 0.05**2 * 300 / 5.0**2, 1 / noise**2
    assert score / (steps + score) == pytest.approx(0.05)
