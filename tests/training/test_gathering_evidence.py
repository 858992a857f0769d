"""Gathering evidence changes nothing that is released; an individual filter keeps every record within its budget."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import classify

import tacit
from tacit.accountants.bayesian import privacy_costs
from tacit.errors import InputError
from tacit.evidence import evidence_path, load_evidence
from tacit.training import EvidencePlan, IndividualFilter
from tacit.training.individual_filter import FilteredRun


@pytest.fixture
def plan(tmp_path):
    sampling = tacit.PoissonSampling(probability=0.5, expected_size=20)
    return tacit.TrainingPlan(
        sampling, tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=2.0), 12, tmp_path / "ledger.jsonl"
    )


def run(model, data, plan, **options):
    method = tacit.SGD(model, classify, 0.1)
    return tacit.train(method, data, plan, randomness=tacit.Randomness.seeded(3), **options)


def test_what_is_released_is_the_same_with_and_without_evidence(model, data, plan, tmp_path):
    plain = run(model, data, plan)
    other = replace(plan, ledger=tmp_path / "with" / "ledger.jsonl")
    watched = run(model, data, other, evidence=EvidencePlan(probes=data, probe_every=5, members=True))
    for name, value in plain.posterior.vectors.items():
        torch.testing.assert_close(value, watched.posterior.vectors[name], rtol=0, atol=0)
    assert (tmp_path / "ledger.jsonl").read_bytes() == (tmp_path / "with" / "ledger.jsonl").read_bytes()


def test_probes_are_evaluated_on_schedule_and_cover_every_step(model, data, plan):
    run(model, data, plan, evidence=EvidencePlan(probes=data, probe_every=5))
    found = load_evidence(evidence_path(plan.ledger, "probes"))
    assert found.shares.shape[0] == 4  # steps 0, 5, 10 and the last, 11
    assert found.steps == 12
    assert 0 < found.shares.max() <= 1


def test_probes_cost_a_tenth_by_default(model, data, plan):
    many = tuple(torch.cat([part] * 3) for part in data)
    run(model, data, replace(plan, steps=200), evidence=EvidencePlan(probes=many))
    found = load_evidence(evidence_path(plan.ledger, "probes"))
    assert len(found.shares) * len(many[0]) <= 0.1 * 200 * plan.sampling.denominator


def test_members_shares_are_the_norms_of_the_step(model, data, plan):
    """With everybody in every sample, nothing is filled in: each share is the clipped norm over the clip."""
    whole = replace(plan, sampling=tacit.PoissonSampling(probability=1.0, expected_size=len(data[0])), steps=3)
    run(model, data, whole, evidence=EvidencePlan(probes=data, probe_every=1, members=True))
    probes = load_evidence(evidence_path(plan.ledger, "probes"))
    members = load_evidence(evidence_path(plan.ledger, "members"))
    np.testing.assert_array_equal(probes.shares, members.shares)


def test_members_who_were_never_sampled_count_at_the_worst_case(model, data, plan):
    rare = replace(plan, sampling=tacit.PoissonSampling(probability=0.02, expected_size=0.8), steps=2)
    run(model, data, rare, evidence=EvidencePlan(members=True))
    members = load_evidence(evidence_path(plan.ledger, "members"))
    assert (members.shares == 1).any()


def test_a_second_run_adds_to_the_evidence(model, data, plan):
    for _ in range(2):
        run(model, data, plan, evidence=EvidencePlan(probes=data, probe_every=4))
    found = load_evidence(evidence_path(plan.ledger, "probes"))
    assert found.steps == 24
    ledger = tacit.read_ledger(plan.ledger)
    assert (
        tacit.accountants.bayesian.IndividualAccountant(0.5).guarantee(ledger, delta=1e-3, evidence=found).epsilon > 0
    )


def test_other_probes_under_the_same_ledger_are_refused_before_a_charge(model, data, plan):
    run(model, data, plan, evidence=EvidencePlan(probes=data))
    fewer = tuple(part[:5] for part in data)
    with pytest.raises(InputError, match="now 5 are given"):
        run(model, data, plan, evidence=EvidencePlan(probes=fewer))
    assert tacit.read_ledger(plan.ledger).steps == 12


@pytest.mark.parametrize("wrong", [{}, {"members": True, "probe_every": 0}])
def test_an_evidence_plan_that_means_nothing_is_refused(wrong):
    with pytest.raises(InputError):
        EvidencePlan(**wrong)


def test_shares_need_poisson_sampling(model, data, plan):
    fixed = replace(plan, sampling=tacit.FixedSizeSampling(size=20, population=len(data[0])))
    with pytest.raises(InputError, match="Poisson"):
        run(model, data, fixed, evidence=EvidencePlan(members=True))


def test_no_record_spends_more_than_the_filter_allows(model, data, plan, monkeypatch):
    runs = []
    made = FilteredRun.__init__

    def remember(self, *arguments):
        made(self, *arguments)
        runs.append(self)

    monkeypatch.setattr(FilteredRun, "__init__", remember)
    wanted = IndividualFilter(epsilon=2.0, delta=1e-3)
    long = replace(plan, steps=120, noise=tacit.GaussianNoise(multiplier=2.0))
    trained = run(model, data, long, individual_filter=wanted)
    moment = wanted.chosen(0.5, 2.0)
    spent = runs[0].spent
    worst = 120 * privacy_costs(0.5, [0.5], [moment])[0, 0]
    assert worst > wanted.allowed(moment)  # or the filter had nothing to do
    assert (spent <= wanted.allowed(moment)).all()
    assert spent.max() > 0.5 * wanted.allowed(moment)
    stated = tacit.guarantees(trained.ledger, 1e-3, only=["rdp"])[0]
    assert stated.epsilon == pytest.approx(2.0)
    assert stated.is_bound


def test_a_filter_does_not_go_on_with_sums_that_are_lost(model, data, plan):
    wanted = IndividualFilter(epsilon=2.0, delta=1e-3)
    run(model, data, plan, individual_filter=wanted)
    with pytest.raises(InputError, match="sums are not kept"):
        run(model, data, plan, individual_filter=wanted)


def test_a_filter_refuses_losses_with_chance_before_anything_is_released(data, plan):
    model = torch.nn.Sequential(torch.nn.Linear(5, 16), torch.nn.Dropout(0.5), torch.nn.Linear(16, 3))
    with pytest.raises(InputError, match="without chance"):
        run(model, data, plan, individual_filter=IndividualFilter(epsilon=2.0, delta=1e-3))
