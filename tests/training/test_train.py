import pytest
import torch
from conftest import classify

import tacit
from tacit.errors import InputError


@pytest.fixture
def plan(tmp_path):
    sampling = tacit.PoissonSampling(probability=0.5, expected_size=20)
    return tacit.TrainingPlan(
        sampling, tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0), 12, tmp_path / "ledger.jsonl"
    )


def test_the_last_iterates_are_kept_at_their_distance(model, data, plan):
    method = tacit.SGD(model, classify, 0.1)
    seen = []
    run = tacit.train(method, data, plan, keep_last=3, keep_every=4, on_step=seen.append)
    assert seen == list(range(12))
    assert len(run.posterior) == 3
    torch.testing.assert_close(run.posterior.vectors["0.weight"][-1], run.state.params["0.weight"])


def test_a_single_iterate_is_a_point(model, data, plan):
    assert isinstance(tacit.train(tacit.SGD(model, classify, 0.1), data, plan).posterior, tacit.posteriors.Point)


def test_the_cost_does_not_depend_on_how_many_draws_are_kept(model, data, plan, tmp_path):
    from dataclasses import replace

    method = tacit.SGD(model, classify, 0.1)
    one = tacit.train(method, data, plan)
    many = tacit.train(method, data, replace(plan, ledger=tmp_path / "other.jsonl"), keep_last=12)
    assert one.ledger.merged() == many.ledger.merged()


def test_two_runs_with_the_same_seed_are_equal_and_marked(model, data, plan, tmp_path):
    from dataclasses import replace

    method = tacit.SGD(model, classify, 0.1)
    runs = [
        tacit.train(method, data, replace(plan, ledger=tmp_path / name), randomness=tacit.Randomness.seeded(1))
        for name in ("a", "b")
    ]
    assert torch.equal(runs[0].posterior.vectors["0.weight"], runs[1].posterior.vectors["0.weight"])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.parametrize("keep", [{"keep_last": 0}, {"keep_last": 13}, {"keep_last": 4, "keep_every": 4}])
def test_more_iterates_than_steps_are_refused(model, data, plan, keep):
    with pytest.raises(InputError, match="keep"):
        tacit.train(tacit.SGD(model, classify, 0.1), data, plan, **keep)


@pytest.mark.parametrize("field", ["steps", "physical_batch", "block"])
@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3"])
def test_a_bad_plan_is_refused_by_field(field, bad, tmp_path):
    sampling = tacit.PoissonSampling(probability=0.5, expected_size=20)
    values = {"steps": 3, field: bad}
    with pytest.raises(InputError, match=field):
        tacit.TrainingPlan(sampling, tacit.ClipRecords(1.0), None, ledger=tmp_path / "l", **values)
