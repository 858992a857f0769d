"""One charge, one release: a sample belongs to one engine, one process and one release; the charge is what is added."""

import copy
import os
import pickle
from dataclasses import replace

import pytest
import torch
from conftest import classify
from torch import nn

import tacit
from tacit.errors import InputError, LedgerError
from tacit.ledger import Charge, GaussianSumQuery, LedgerFile, LedgerHeader, PoissonSample, read_ledger
from tacit.training.checkpoints import plan_fingerprint


@pytest.fixture
def private(model, tmp_path):
    def build(name="ledger.jsonl", **options):
        arguments = {
            "sampling": tacit.PoissonSampling(probability=1.0, expected_size=40),
            "clipping": tacit.ClipRecords(1.0),
            "noise": tacit.GaussianNoise(multiplier=1e-9),
            "ledger": tmp_path / name,
            **options,
        }
        return tacit.PrivateGradient(model, classify, **arguments)

    return build


COPIES = {
    "itself": lambda sample: sample,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda sample: pickle.loads(pickle.dumps(sample)),
}


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize("copy_first", [True, False])
def test_no_copy_of_a_sample_is_released_again(private, data, make, copy_first):
    engine = private()
    (sample,) = engine.samples(data, steps=1)
    twin = make(sample)
    first, second = (twin, sample) if copy_first else (sample, twin)
    engine.backward(first)
    with pytest.raises(InputError, match="released before"):
        engine.backward(second)


def test_a_sample_of_another_engine_is_refused(private, data):
    one, other = private("one.jsonl"), private("other.jsonl")
    (sample,) = one.samples(data, steps=1)
    with pytest.raises(InputError, match="another PrivateGradient"):
        other.backward(sample)
    one.backward(sample)


@pytest.mark.parametrize("raw", [(torch.zeros(4, 5), torch.zeros(4).long()), torch.zeros(4, 5), {"x": 1}, None])
def test_a_raw_batch_is_refused_in_a_line(private, raw):
    with pytest.raises(InputError, match=rf"what private.samples\(...\) yields, found {type(raw).__name__}"):
        private().backward(raw)


def test_what_is_done_to_the_data_of_a_sample_does_not_reach_the_release(private, model, data):
    found = []
    for meddle in (False, True):
        engine = private(f"{meddle}.jsonl")
        (sample,) = engine.samples(data, steps=1)
        if meddle:
            sample.data[0].sub_(sample.data[0].mean(0)).mul_(100)
            sample.units[:] = 0
            with pytest.raises(AttributeError):
                sample.data = None
            assert not hasattr(sample, "mechanism")
        model.zero_grad()
        engine.backward(sample)
        found.append(model[0].weight.grad.clone())
    torch.testing.assert_close(*found)


def in_a_fork(action):
    """What an action says in a forked process: the error's text, or nothing."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            action()
            said = "nothing was refused"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writer, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with os.fdopen(reader) as text:
        return text.read()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_after_a_fork_only_the_parent_goes_on(private, data, tmp_path):
    engine = private()
    samples = engine.samples(data, steps=3)
    sample = next(samples)
    before = (tmp_path / "ledger.jsonl").read_bytes()
    for action in (
        lambda: engine.backward(sample),
        lambda: next(samples),
        lambda: next(engine.samples(data, steps=3)),
        lambda: engine.save_checkpoint(tmp_path / "checkpoint", {}, step=1) or engine._engine.checkpoint(1, {}),
    ):
        assert "another one (a fork); make a new one here" in in_a_fork(action)
    assert in_a_fork(samples.close) == "nothing was refused"  # it settles nothing
    assert not (tmp_path / "checkpoint").exists()
    assert (tmp_path / "ledger.jsonl").read_bytes() == before
    engine.backward(sample)
    assert len(list(samples)) == 2
    engine.close()
    assert read_ledger(tmp_path).steps == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_process_does_not_write_to_a_ledger(tmp_path):
    charge = Charge(PoissonSample(0.1, (GaussianSumQuery(1.0, 1.0),)), 5)
    with LedgerFile(tmp_path / "ledger.jsonl", LedgerHeader()) as ledger:
        assert in_a_fork(lambda: ledger.reserve([charge])).startswith(LedgerError.__name__)
        ledger.reserve([charge])
    assert read_ledger(tmp_path).steps == 5


class Fickle:
    """A step size that is small when it is asked for the first time, and a hundred times as large later."""

    def __init__(self):
        self.asked = []

    def at(self, step):
        self.asked.append(step)
        return 1e-4 if self.asked.count(step) == 1 else 1e-2


@pytest.mark.parametrize("budget", [None, tacit.Budget(1e6, 1e-5)])
def test_the_noise_that_is_added_is_the_noise_that_was_charged(tmp_path, data, budget, monkeypatch):
    added = []
    original = tacit.Randomness.add_noise

    def noting(self, sums, stddevs, denominator, outs):
        added.append(stddevs[0])
        original(self, sums, stddevs, denominator, outs)

    monkeypatch.setattr(tacit.Randomness, "add_noise", noting)
    method = tacit.SGLD(nn.Linear(5, 3), classify, step_size=Fickle(), dataset_size=40)
    sampling = tacit.PoissonSampling(0.5, 20)
    plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(1.0), None, 30, tmp_path / "ledger.jsonl", budget, block=7)
    run = tacit.train(method, data, plan)
    charged = [c.event.queries[0].noise_stddev for c in run.ledger.charges for _ in range(c.steps)]
    assert added == charged
    assert len(charged) == 30


@pytest.mark.parametrize("schedule", ["fixed", "adaptive"])
def test_a_budget_holds_for_what_is_charged_not_for_what_was_planned(tmp_path, data, schedule):
    """The engine asks a method once, so plan and charge agree; a gate that is told another plan must hold as well."""
    from tacit.accountants import BudgetGate

    def charge(noise, steps):
        return Charge(PoissonSample(1.0, (GaussianSumQuery(1.0, noise),)), steps)

    budget = tacit.Budget(2.0, 1e-5)
    gate = BudgetGate(budget, plan=[charge(100.0, 30)])
    path = tmp_path / "ledger.jsonl"
    with LedgerFile(path, LedgerHeader(epsilon=2.0, delta=1e-5, schedule=schedule)) as ledger:

        def spend():
            for _ in range(30):
                gate(ledger.ledger, [charge(10.0, 1)])
                ledger.reserve([charge(10.0, 1)])

        with pytest.raises(tacit.errors.BudgetError):
            spend()
        assert ledger.ledger.steps > 0
        answers = tacit.guarantees(ledger.ledger, 1e-5, only=["rdp", "pld"])
        assert min(answer.epsilon for answer in answers if isinstance(answer, tacit.Guarantee)) <= 2.0


@pytest.mark.parametrize("chains", [1, 3])
@pytest.mark.parametrize("budget", [None, tacit.Budget(50.0, 1e-5)])
def test_langevin_noise_in_passes_that_are_not_finished(tmp_path, data, chains, budget):
    class Listed:
        def at(self, step):
            return [1e-5, 1e-5, 2e-5, 1e-5, 1e-5, 1e-5, 1e-5][step]

    method = tacit.SGLD(nn.Linear(5, 3), classify, step_size=Listed(), dataset_size=40)
    sampling = tacit.BallsInBinsSampling(bins=10, expected_size=4)
    plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(1.0), None, 7, tmp_path / "ledger.jsonl", budget)
    run = tacit.train(method, data, plan, chains=chains)
    assert run.ledger.steps == plan.charged_steps(chains) == (10 if chains == 1 else 30)
    assert run.ledger.planned_steps == 7 * chains
    smallest = 4 * (2 / 2e-5) ** 0.5 / 40
    (rdp,) = tacit.guarantees(run.ledger, 1e-5, only=["rdp"])
    assert rdp.is_bound
    assert min(charge.event.queries[0].noise_stddev for charge in run.ledger.charges) == pytest.approx(smallest)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda model: model[0].weight.requires_grad_(False), "0.weight is not trained any more"),
        (lambda model: model[2].requires_grad_(False), "2.bias is not trained any more"),
        (lambda model: model.append(nn.Linear(3, 3)), "3.bias is new"),
        (lambda model: model.double(), "0.bias has another shape or type"),
    ],
)
def test_other_trained_parameters_are_refused_before_the_next_charge(private, model, data, change, said):
    engine = private(block=2)
    samples = engine.samples(data, steps=6)
    engine.backward(next(samples))
    last = next(samples)
    change(model)
    with pytest.raises(InputError, match=said) as error:
        engine.backward(last)
    assert "make a new PrivateGradient" in str(error.value)
    with pytest.raises(InputError, match=said):
        next(samples)
    assert engine.ledger.steps == 2


def test_unfreezing_before_the_run_is_refused_before_a_ledger_exists(private, model, data, tmp_path):
    model[0].requires_grad_(False)
    engine = private()
    model[0].requires_grad_(True)
    with pytest.raises(InputError, match=r"0\.bias is new"):
        next(engine.samples(data, steps=1))
    assert not (tmp_path / "ledger.jsonl").exists()


def test_a_layer_of_the_same_shape_may_take_the_place_of_another(private, model, data):
    engine = private()
    samples = engine.samples(data, steps=2)
    engine.backward(next(samples))
    model[0] = nn.Linear(5, 4)
    engine.backward(next(samples))
    assert model[0].weight.grad is not None


def test_trusted_losses_are_an_assumption_of_every_guarantee(private, data, tmp_path):
    engine = private(isolation="trusted", noise=tacit.GaussianNoise(multiplier=2.0), assumptions=("one",))
    list(engine.samples(data, steps=1))
    assert engine.ledger.header.assumptions[0] == "one"
    for answer in tacit.guarantees(engine.ledger, 1e-5):
        if isinstance(answer, tacit.Guarantee):
            assert any('isolation="trusted"' in sentence for sentence in answer.assumptions)
    engine.close()
    with pytest.raises(InputError, match="assumptions"):  # the same ledger cannot mean both
        next(private(noise=tacit.GaussianNoise(multiplier=2.0), assumptions=("one",)).samples(data, steps=1))
    with pytest.raises(InputError, match="isolation"):
        private("other.jsonl", isolation="none")
    plan = tacit.TrainingPlan(tacit.PoissonSampling(0.5, 20), tacit.ClipRecords(1.0), None, 3, tmp_path / "x")
    assert plan_fingerprint(plan) != plan_fingerprint(replace(plan, isolation="trusted"))


def microbatched(private, data, ids, name, **options):
    engine = private(
        name, unit=tacit.Microbatches(2, protect="record"), clipping=tacit.ClipRecords(1.0, rule="normalise"), **options
    )
    engine._losses.model.zero_grad()
    for sample in engine.samples(data, steps=1, record_ids=ids):
        engine.backward(sample)
    return torch.cat([p.grad.flatten().double() for p in engine._losses.model.parameters()]) * 40


@pytest.mark.parametrize("dropped", [0, 7, 39])
def test_one_record_less_moves_its_own_microbatch_only(private, data, dropped):
    whole = microbatched(private, data, range(40), "whole.jsonl")
    rest = [row for row in range(40) if row != dropped]
    without = microbatched(private, tuple(part[rest] for part in data), rest, "without.jsonl")
    assert float((whole - without).norm()) <= 2.001


def test_row_numbers_are_no_ids_where_a_neighbour_has_fewer_rows(private, data, tmp_path):
    for sampling in (tacit.PoissonSampling(0.5, 20), tacit.BallsInBinsSampling(4, 10)):
        with pytest.raises(InputError, match="record_ids"):
            microbatched(private, data, None, "refused.jsonl", sampling=sampling)
    assert not (tmp_path / "refused.jsonl").exists()
    microbatched(private, data, None, "fixed.jsonl", sampling=tacit.FixedSizeSampling(40, 40))  # replace one


@pytest.mark.parametrize("ids", [["a"] * 40, [0.5] * 40, range(39), None])
def test_record_ids_are_whole_numbers_one_a_row(private, data, ids):
    with pytest.raises(InputError, match="record_ids"):
        microbatched(private, data, ids, "refused.jsonl")


def test_ids_of_another_unit_are_refused(private, data):
    with pytest.raises(InputError, match="user_ids"):
        next(private(unit=tacit.Microbatches(2)).samples(data, steps=1, user_ids=range(40)))
    with pytest.raises(InputError, match="record_ids"):
        next(private("b").samples(data, steps=1, record_ids=range(40)))
