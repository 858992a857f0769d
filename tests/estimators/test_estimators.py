"""scikit-learn's own checks, and what privacy asks beyond them."""

import csv
import pickle
import re
import warnings
from itertools import count

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.feature_selection import SequentialFeatureSelector
from sklearn.linear_model import RANSACRegressor
from sklearn.model_selection import GridSearchCV, RandomizedSearchCV, cross_val_score
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier
from sklearn.utils.estimator_checks import check_estimator

import tacit
from tacit.commands.app import run as run_command
from tacit.errors import BudgetError, InputError, RefusedError
from tacit.estimators import private
from tacit.ledger import RegisteredLedger, registered_runs
from tacit.tables import recipes

# Checks that an estimator is excused from, with the reason.
EXCEPTIONS = {
    "check_sample_weight_equivalence_on_dense_data": "a record twice is two units that are sampled and clipped apart; "
    "one of weight 2 is one unit, which may do no more than any other"
}

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (1500, 3))
Y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, "ill", "well")
Z = 5 + 2 * X[:, 0] - X[:, 1] + 0.3 * RNG.normal(size=1500)
DECLARED = {"bounds": (-1, 1), "n_records": 1500}


@pytest.fixture(autouse=True)
def _a_new_process(monkeypatch):
    monkeypatch.setattr(private, "_warned_of", set())
    monkeypatch.setattr(private, "_fits_without_a_ledger", count(1))


@pytest.fixture
def few_steps(monkeypatch):
    """How an estimator behaves does not depend on how long it trains."""
    monkeypatch.setattr(recipes, "STEPS", {"classification": 60, "regression": 60, "vi": 60})


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [tacit.PrivateClassifier(50.0), tacit.PrivateRegressor(50.0)], ids=type)
def test_scikit_learns_checks(estimator, monkeypatch):
    monkeypatch.setattr(recipes, "STEPS", {"classification": 300, "regression": 100, "vi": 100})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the checks that this environment has to skip
        done = check_estimator(estimator, expected_failed_checks=EXCEPTIONS, on_skip=None)
    assert len([check for check in done if check["status"] == "passed"]) > 40


def test_a_classifier_learns_within_its_budget():
    model = tacit.PrivateClassifier(1.0, classes=["ill", "well"], **DECLARED).fit(X, Y)
    assert model.score(X, Y) > 0.9
    assert model.classes_.tolist() == ["ill", "well"]
    pld = next(result for result in model.guarantees_ if result.accountant == "pld")
    assert pld.epsilon <= 1
    assert "taken as public (as the caller stated in the constructor)" in pld.assumptions[0]
    entropy, about_weights = model.uncertainty(X)
    assert (about_weights <= entropy + 1e-6).all()
    unsure = np.argsort(entropy)[-300:]
    assert (model.predict(X)[unsure] != Y[unsure]).mean() > (model.predict(X) != Y).mean()


def test_a_regressor_says_how_far_off_it_is():
    model = tacit.PrivateRegressor(1.0, target_bounds=(0, 10), **DECLARED).fit(X, Z)
    mean, std = model.predict(X, return_std=True)
    assert model.score(X, Z) > 0.9
    assert np.mean(abs(Z - mean) <= 1.96 * std) == pytest.approx(0.95, abs=0.05)
    low, high = model.predict_interval(X)
    assert np.mean((low <= Z) & (high >= Z)) == pytest.approx(0.95, abs=0.05)
    assert next(result for result in model.guarantees_ if result.accountant == "pld").epsilon <= 1


def test_what_was_not_declared_is_said_to_be_taken_from_data(few_steps):
    with pytest.warns(tacit.UndeclaredWarning, match="declare classes, bounds, n_records in the constructor") as shown:
        bare = tacit.PrivateClassifier().fit(X, Y)
    assert [warning.filename for warning in shown] == [__file__]
    sentence = " ".join(bare.guarantees_[0].assumptions)
    assert "epsilon does not cover that" in sentence
    declared = tacit.PrivateClassifier(classes=["well", "ill"], **DECLARED).fit(X, Y)
    assert "does not cover that" not in " ".join(declared.guarantees_[0].assumptions)
    with pytest.warns(tacit.UndeclaredWarning, match="^target bounds: .* declare target_bounds in"):
        tacit.PrivateRegressor(**DECLARED).fit(X, Z)


def test_undeclared_bounds_are_told_once_or_refused_every_time(few_steps):
    model = tacit.PrivateClassifier(n_records=1500, classes=["ill", "well"])
    for _ in range(2):  # warnings are errors in these tests
        with pytest.raises(tacit.UndeclaredWarning):
            model.fit(X, Y)
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        for _ in range(3):
            model.fit(X, Y)
    assert len(shown) == 1


NAMED = {"ledger": "never made.jsonl", "budget_epsilon": 100.0, "classes": ["ill", "well"]} | DECLARED


@pytest.mark.parametrize("arguments", [DECLARED, NAMED], ids=["no ledger", "a ledger"])
@pytest.mark.parametrize(
    "wrapper",
    [
        lambda model: GridSearchCV(model, {"epsilon": [1, 2]}).fit(X, Y),
        lambda model: GridSearchCV(make_pipeline(model), {}).fit(X, Y),
        lambda model: cross_val_score(model, X, Y),
        lambda model: CalibratedClassifierCV(model).fit(X, Y),
        lambda model: CalibratedClassifierCV(model, ensemble=False).fit(X, Y),
        lambda model: BaggingClassifier(model).fit(X, Y),
        lambda model: BaggingClassifier(make_pipeline(StandardScaler(), model)).fit(X, Y),
        lambda model: StackingClassifier([("one", model)]).fit(X, Y),
        lambda model: SequentialFeatureSelector(model).fit(X, Y),
        lambda model: SelfTrainingClassifier(model).fit(X, np.where(Y == "ill", 1, -1)),
    ],
)
def test_what_learns_from_private_records_past_the_ledger_is_refused(tmp_path, monkeypatch, wrapper, arguments):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RefusedError, match="no ledger is charged for"):
        wrapper(tacit.PrivateClassifier(**arguments))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("search", [GridSearchCV, RandomizedSearchCV])
def test_a_search_of_scikit_learn_points_to_one_that_is_charged(search):
    with pytest.raises(RefusedError, match=r"tacit\.tune"):
        search(tacit.PrivateClassifier(**DECLARED), {"epsilon": [1, 2]}).fit(X, Y)


def test_a_regressor_inside_a_wrapper_is_refused_too():
    with pytest.raises(RefusedError, match=r"sklearn.linear_model._ransac learns"):
        RANSACRegressor(tacit.PrivateRegressor(**DECLARED)).fit(X, Z)
    with pytest.raises(RefusedError, match="fits several times"):
        MultiOutputRegressor(tacit.PrivateRegressor(**DECLARED)).fit(X, np.column_stack([Z, -Z]))


SEVERAL = {
    "one against the rest": (lambda model: OneVsRestClassifier(model), 3),
    "one against one": (lambda model: OneVsOneClassifier(model), 3),
    "a vote": (lambda model: VotingClassifier([("one", model), ("two", clone(model))]), 2),
    "a pipeline inside": (lambda model: OneVsRestClassifier(make_pipeline(FunctionTransformer(), model)), 3),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_several_fits_charge_one_ledger_or_none(tmp_path, few_steps, name):
    wrapper, fits = SEVERAL[name]
    labels = np.digitize(X[:, 0], [-0.3, 0.3])
    classes = [0, 1, 2] if name == "a vote" else [0, 1]
    declared = {"bounds": (-1, 1), "n_records": 1500, "classes": classes, "epsilon": 1.0}
    with pytest.raises(RefusedError, match="name one ledger"):
        wrapper(tacit.PrivateClassifier(**declared)).fit(X, labels)
    path = tmp_path / "ledger.jsonl"
    shared = tacit.PrivateClassifier(**declared, ledger=path, budget_epsilon=float(fits))
    model = wrapper(shared).fit(X, labels)
    assert model.score(X, labels) > 0.6
    ledger = tacit.read_ledger(path)
    assert (ledger.steps, ledger.runs) == (60 * fits, fits)
    (said,) = [one for one in tacit.guarantees(ledger, 1e-5) if isinstance(one, tacit.Guarantee)]
    assert said.epsilon == pytest.approx(fits, rel=1e-6)


def test_what_the_rest_of_a_shared_budget_cannot_pay_is_refused_before_it_is_charged(tmp_path, few_steps):
    path = tmp_path / "ledger.jsonl"
    shared = {"ledger": path, "classes": ["ill", "well"], "epsilon": 1.0, "budget_epsilon": 1.5} | DECLARED
    tacit.PrivateClassifier(**shared).fit(X, Y)
    with pytest.raises(BudgetError):
        tacit.PrivateClassifier(**shared | {"epsilon": 1.5}).fit(X, Y)
    assert tacit.read_ledger(path).steps == 60
    with pytest.raises(InputError, match="name it with ledger"):
        tacit.PrivateClassifier(budget_epsilon=1.0, classes=["ill", "well"], **DECLARED).fit(X, Y)


def test_fits_without_a_ledger_say_how_many_there_were(few_steps):
    model = tacit.PrivateClassifier(classes=["ill", "well"], **DECLARED)
    said = [" ".join(model.fit(X, Y).guarantees_[0].assumptions) for _ in range(3)]
    assert [re.findall(r"this is fit (\d+) without a ledger", one) for one in said] == [[], ["2"], ["3"]]


def test_every_guarantee_names_what_was_learned_before_the_fit(few_steps):
    classifier = tacit.PrivateClassifier(classes=["ill", "well"], **DECLARED)
    regressor = tacit.PrivateRegressor(target_bounds=(0, 10), **DECLARED)
    make_pipeline(StandardScaler(), classifier).fit(X, Y)
    for model in (classifier, regressor.fit(X, Z)):
        assert "a scaler, an encoder, a selector" in " ".join(model.guarantees_[0].assumptions)


def test_a_copy_keeps_its_arguments():
    assert clone(tacit.PrivateClassifier(2.0)).epsilon == 2.0
    place = tacit.ledger.RegisteredLedger("ledger.jsonl", "registry.jsonl")
    assert clone(tacit.PrivateClassifier(ledger=place)).ledger == place


def test_a_second_fit_under_the_same_ledger_is_charged_and_refused_beyond_the_budget(tmp_path, few_steps):
    model = tacit.PrivateClassifier(1.0, ledger=tmp_path / "ledger.jsonl", classes=["ill", "well"], **DECLARED)
    model.fit(X, Y)
    assert tacit.read_ledger(tmp_path / "ledger.jsonl").steps == 60
    with pytest.raises(BudgetError):
        model.fit(X, Y)


def test_it_works_in_a_pipeline_and_survives_a_pickle(few_steps):
    private = tacit.PrivateClassifier(bounds=(0, 1.5), n_records=1500, classes=["ill", "well"])
    root = make_pipeline(FunctionTransformer(np.sqrt), private)
    model = pickle.loads(pickle.dumps(root.fit(X + 1, Y)))
    assert (model.predict(X + 1) == root.predict(X + 1)).all()
    assert model.predict_proba(X + 1).sum(1) == pytest.approx(1)


def test_a_seeded_fit_can_be_repeated_and_is_marked(few_steps):
    declared = {"classes": ["ill", "well"]} | DECLARED
    models = [tacit.PrivateClassifier(random_state=3, **declared).fit(X, Y) for _ in range(2)]
    assert (models[0].predict_proba(X) == models[1].predict_proba(X)).all()
    assert models[0].ledger_.header.randomness == "seeded"
    assert tacit.PrivateClassifier(**declared).fit(X, Y).ledger_.header.randomness == "secure"


def test_missing_values_and_undeclared_classes_are_no_reason_to_fail(few_steps):
    holed = X.copy()
    holed[::7, 1] = np.nan
    labels = np.where(np.arange(len(Y)) % 50 == 0, "unknown", Y)
    model = tacit.PrivateClassifier(10.0, classes=["ill", "well"], **DECLARED).fit(holed, labels)
    assert set(model.predict(holed)) == {"ill", "well"}


@pytest.mark.parametrize(
    "arguments", [{"epsilon": 0}, {"delta": 0.5}, {"bounds": (1, 0)}, {"bounds": 3}, {"n_records": 0}, {"method": "x"}]
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(InputError):
        tacit.PrivateClassifier(**({"epsilon": 1.0, "classes": ["ill", "well"]} | DECLARED | arguments)).fit(X, Y)


@pytest.mark.parametrize("own_ledger", [True, False])
def test_a_saved_fit_is_a_run_that_can_be_reported_predicted_with_and_released(tmp_path, own_ledger):
    budget = {} if own_ledger else {"ledger": tmp_path / "shared.jsonl", "budget_epsilon": 6.0}
    model = tacit.PrivateClassifier(3.0, **DECLARED, classes=["ill", "well"], **budget).fit(X, Y)
    run, table, said, bundle = (tmp_path / name for name in ("run", "new.csv", "said.csv", "bundle"))
    model.save(run)
    np.savetxt(table, X, delimiter=",", header="x0,x1,x2", comments="")
    for command in (["account", run], ["report", run], ["predict", run, table, "--out", said],
                    ["release", run, "--out", bundle], ["release", "--check", bundle]):  # fmt: skip
        assert run_command([str(word) for word in command]) == 0
    with said.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["target"] for row in rows] == model.predict(X).tolist()
    np.testing.assert_allclose([float(row["probability ill"]) for row in rows], model.predict_proba(X)[:, 0], atol=1e-5)
    with pytest.raises(InputError, match="finished run"):
        model.save(run)


def test_a_fit_under_a_registered_ledger_is_entered(tmp_path):
    ledger = RegisteredLedger(tmp_path / "ledger.jsonl", tmp_path / "patients.registry")
    tacit.PrivateClassifier(3.0, **DECLARED, classes=["ill", "well"], ledger=ledger).fit(X, Y)
    assert [run.state for run in registered_runs(ledger.registry)] == ["closed"]


def test_a_class_that_a_table_would_call_missing_is_a_class(tmp_path):
    model = tacit.PrivateClassifier(3.0, **DECLARED, classes=["", "none"]).fit(X, np.where(Y == "ill", "", "none"))
    assert (model.predict(X) == np.where(Y == "ill", "", "none")).mean() > 0.8


def test_logarithms_of_probabilities_are_those_of_the_probabilities():
    model = tacit.PrivateClassifier(**DECLARED | {"classes": ["ill", "well"]}).fit(X, Y)
    assert np.allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))


def test_a_linear_regression_is_linear_in_the_covariates(monkeypatch):
    """With records scaled to norm 1 the mean was .07 off, at any epsilon."""
    monkeypatch.setitem(recipes.STEPS, "regression", 150)
    rng = np.random.default_rng(1)
    inputs = rng.uniform(-1, 1, (20_000, 2))
    truth = inputs[:, 0] + 0.5 * inputs[:, 1]
    model = tacit.PrivateRegressor(1.0, bounds=(-1, 1), target_bounds=(-2, 2), n_records=20_000, random_state=0)
    said = model.fit(inputs, truth + 0.1 * rng.normal(size=20_000)).predict(inputs[:1000])
    assert np.sqrt(np.mean((said - truth[:1000]) ** 2)) < 0.01


def test_records_of_norm_1_may_be_asked_for():
    model = tacit.PrivateClassifier(1.0, scaling="norm", random_state=0, classes=["ill", "well"], **DECLARED)
    assert np.linalg.norm(model.fit(X, Y)._inputs(X[:9]), axis=1) == pytest.approx(1, abs=1e-6)
    with pytest.raises(InputError, match="scaling must be"):
        tacit.PrivateClassifier(1.0, scaling="none", classes=["ill", "well"], **DECLARED).fit(X, Y)


def test_predictions_stay_within_the_declared_bounds(monkeypatch):
    """Counts that are mostly 0: a normal interval would reach below."""
    monkeypatch.setitem(recipes.STEPS, "regression", 100)
    counts = RNG.poisson(np.exp(X[:, 0] - 1))
    model = tacit.PrivateRegressor(1.0, target_bounds=(0, 20), random_state=0, **DECLARED).fit(X, counts)
    low, high = model.predict_interval(X)
    assert low.min() >= 0
    assert (low == 0).any()
    assert high.max() <= 20
    assert model.predict(X).min() >= 0
