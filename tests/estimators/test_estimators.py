"""scikit-learn's own checks, and what privacy asks beyond them."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

import tacit
from tacit.errors import BudgetError, InputError, RefusedError
from tacit.tables import recipes

# Checks that an estimator is excused from, with the reason; there are none.
EXCEPTIONS: dict[str, str] = {}

RNG = np.random.default_rng(0)
X = RNG.uniform(-1, 1, (1500, 3))
Y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, "ill", "well")
Z = 5 + 2 * X[:, 0] - X[:, 1] + 0.3 * RNG.normal(size=1500)
DECLARED = {"bounds": (-1, 1), "n_records": 1500}


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
    assert "declared in the constructor" in pld.assumptions[0]
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
    bare = tacit.PrivateClassifier().fit(X, Y)
    sentence = " ".join(bare.guarantees_[0].assumptions)
    assert "epsilon does not cover" in sentence
    declared = tacit.PrivateClassifier(classes=["well", "ill"], **DECLARED).fit(X, Y)
    assert "does not cover" not in " ".join(declared.guarantees_[0].assumptions)


def test_a_search_is_refused_with_the_reason(few_steps):
    for refused in (
        lambda: GridSearchCV(tacit.PrivateClassifier(), {"epsilon": [1, 2]}).fit(X, Y),
        lambda: GridSearchCV(make_pipeline(tacit.PrivateClassifier()), {}).fit(X, Y),
        lambda: cross_val_score(tacit.PrivateRegressor(), X, Z),
    ):
        with pytest.raises(RefusedError, match="private folds"):
            refused()
    assert clone(tacit.PrivateClassifier(2.0)).epsilon == 2.0


def test_a_second_fit_under_the_same_ledger_is_charged_and_refused_beyond_the_budget(tmp_path, few_steps):
    model = tacit.PrivateClassifier(1.0, ledger=tmp_path / "ledger.jsonl", classes=["ill", "well"], **DECLARED)
    model.fit(X, Y)
    assert tacit.read_ledger(tmp_path / "ledger.jsonl").steps == 60
    with pytest.raises(BudgetError):
        model.fit(X, Y)


def test_it_works_in_a_pipeline_and_survives_a_pickle(few_steps):
    root = make_pipeline(FunctionTransformer(np.sqrt), tacit.PrivateClassifier(bounds=(0, 1.5), n_records=1500))
    model = pickle.loads(pickle.dumps(root.fit(X + 1, Y)))
    assert (model.predict(X + 1) == root.predict(X + 1)).all()
    assert model.predict_proba(X + 1).sum(1) == pytest.approx(1)


def test_a_seeded_fit_can_be_repeated_and_is_marked(few_steps):
    models = [tacit.PrivateClassifier(random_state=3, **DECLARED).fit(X, Y) for _ in range(2)]
    assert (models[0].predict_proba(X) == models[1].predict_proba(X)).all()
    assert models[0].ledger_.header.randomness == "seeded"
    assert tacit.PrivateClassifier(**DECLARED).fit(X, Y).ledger_.header.randomness == "secure"


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
        tacit.PrivateClassifier(**({"epsilon": 1.0} | arguments)).fit(X, Y)
