"""Private rounds on the real Flower, simulated by its own engine. Run by `python3 dev.py flower`."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import tacit
from tacit.accountants import PLDAccountant
from tacit.commands.app import run
from tacit.errors import BudgetError, InputError
from tacit.ledger import Charge, Ledger, read_ledger
from tacit.mechanisms import SLACK, build_mechanism
from tacit.randomness import Randomness

flwr = pytest.importorskip("flwr", reason="needs the extra flower")

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from tacit.integrations.flower import PrivateFedAvg, clipping_mod  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries
CLIENTS, ROUNDS, DELTA = 20, 5, 1e-3


@pytest.fixture(autouse=True)
def in_a_run(monkeypatch):
    """Flower makes messages inside a run only, and its server app is one."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


@pytest.fixture
def plan(tmp_path):
    return tacit.PrivacyPlan(
        tacit.PoissonSampling(0.5, expected_size=10), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=0.7),
        tmp_path / "ledger.jsonl", unit=tacit.Users(),
    )  # fmt: skip


def cost(plan, rounds=ROUNDS):
    """What the plan alone says."""
    mechanism = build_mechanism(plan.clipping, plan.noise, {"weight": torch.Size([1])}, slack=SLACK)
    ledger = Ledger(plan.header(Randomness()), (Charge(plan.sampling.event(mechanism.queries), rounds),))
    return PLDAccountant().guarantee(ledger, delta=DELTA).epsilon


def test_twenty_clients_and_five_rounds_cost_what_the_plan_says(plan, capsys):
    """The real simulation: some clients fail, one answers nonsense, one shouts."""
    pytest.importorskip("ray", reason="needs flwr[simulation]")
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    client, server = ClientApp(mods=[clipping_mod(1.0)]), ServerApp()
    found = {}

    @client.train()
    def train(message, context):
        weight = message.content["arrays"]["weight"].numpy()
        number = int(context.node_config["partition-id"])
        if number == 3:
            raise RuntimeError("this client is down")
        new = weight + (1e9 if number == 4 else float("nan") if number == 5 else 0.2 * (3.0 - weight))
        arrays = ArrayRecord(torch_state_dict={"weight": torch.tensor(new)})
        return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"loss": 1.0})}), reply_to=message)

    @server.main()
    def main(grid, context):
        start = ArrayRecord(torch_state_dict={"weight": torch.zeros(4)})
        strategy = PrivateFedAvg(plan)
        result = strategy.start(grid=grid, initial_arrays=start, num_rounds=ROUNDS)
        found.update(weight=result.arrays.to_torch_state_dict()["weight"], metrics=result.train_metrics_clientapp)
        found.update(epsilon=strategy.epsilon(DELTA))

    run_simulation(server, client, num_supernodes=CLIENTS, backend_config={"client_resources": {"num_cpus": 1}})
    capsys.readouterr()
    assert found["epsilon"] == cost(plan)
    assert run(["account", str(plan.ledger), "--delta", str(DELTA), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (pld,) = [one for one in told["guarantees"] if one["accountant"] == "pld"]
    assert pld["epsilon"] == found["epsilon"]
    assert any("the server is trusted" in one for one in pld["assumptions"])
    assert found["metrics"] == {}
    assert torch.isfinite(found["weight"]).all()
    assert read_ledger(plan.ledger).steps == ROUNDS


def grid(count):
    return SimpleNamespace(get_node_ids=lambda: range(count))


def answers(messages, value):
    """What clients reply, as the strategy sees it."""
    made = []
    for message in messages:
        arrays = ArrayRecord(torch_state_dict={"weight": value(message.metadata.dst_node_id)})
        content, metadata = RecordDict({"arrays": arrays}), SimpleNamespace(src_node_id=message.metadata.dst_node_id)
        made.append(SimpleNamespace(metadata=metadata, content=content, has_error=lambda: False))
    return made


def a_round(plan, value, count=CLIENTS, seed=1, more=lambda replies: replies):
    strategy = PrivateFedAvg(plan, randomness=Randomness.seeded(seed))
    start = ArrayRecord(torch_state_dict={"weight": torch.zeros(3)})
    messages = strategy.configure_train(1, start, ConfigRecord(), grid(count))
    arrays, metrics = strategy.aggregate_train(1, more(answers(messages, value)))
    strategy._file.close()
    plan.ledger.unlink()
    (plan.ledger.parent / "ledger.jsonl.head").unlink()
    assert metrics is None
    return arrays.to_torch_state_dict()["weight"].double() * plan.sampling.denominator


@pytest.mark.parametrize("shout", [0.5, 3.0, 1e30, float("inf"), float("nan")])
def test_one_client_more_moves_the_sum_by_no_more_than_its_clip(plan, shout):
    """The same chance with and without the last client, whatever it says; it is drawn for certain."""
    everybody = replace(plan, sampling=tacit.PoissonSampling(1.0, expected_size=CLIENTS))

    def value(node):
        return torch.full((3,), shout) if node == CLIENTS else torch.full((3,), 0.1)

    moved = a_round(everybody, value, CLIENTS + 1) - a_round(everybody, value, CLIENTS)
    assert float(moved.norm()) <= 1.0 + 1e-5  # the model is rounded to float32


def test_an_answer_counts_once_and_only_if_it_was_asked_for(plan):
    def twice_and_strangers(replies):
        stranger = answers([SimpleNamespace(metadata=SimpleNamespace(dst_node_id=999))], lambda _: torch.ones(3) * 9)
        return [*replies, *replies, *stranger]

    alike = a_round(plan, lambda _: torch.full((3,), 0.1))
    assert torch.equal(alike, a_round(plan, lambda _: torch.full((3,), 0.1), more=twice_and_strangers))


def test_a_budget_stops_before_anybody_is_asked(plan):
    enough = replace(plan, budget=tacit.Budget(cost(plan, 2), DELTA))
    strategy = PrivateFedAvg(enough)
    arrays = ArrayRecord(torch_state_dict={"weight": torch.zeros(3)})
    for number in (1, 2):
        strategy.configure_train(number, arrays, ConfigRecord(), grid(CLIENTS))
    with pytest.raises(BudgetError, match="would exceed the budget"):
        strategy.configure_train(3, arrays, ConfigRecord(), grid(CLIENTS))
    assert strategy.ledger.steps == 2


def test_what_protects_no_client_is_refused(plan):
    with pytest.raises(InputError, match="whole clients"):
        PrivateFedAvg(replace(plan, unit=tacit.Records()))
    with pytest.raises(InputError, match="summed in float64"):
        PrivateFedAvg(replace(plan, numerics="strict"))
    with pytest.raises(InputError, match="rate must be"):
        PrivateFedAvg(plan, rate=0.0)


class Silent:
    """A grid of clients that do not answer."""

    def get_node_ids(self):
        return range(CLIENTS)

    def send_and_receive(self, messages, timeout):
        assert len(list(messages)) <= CLIENTS
        return []


def test_the_page_runs_as_it_is_printed(tmp_path, monkeypatch):
    from flwr.clientapp import ClientApp

    monkeypatch.chdir(tmp_path)
    arrays = ArrayRecord(torch_state_dict={"weight": torch.zeros(3)})
    text = (Path(__file__).parents[2] / "docs" / "integrations.md").read_text().split("## Flower")[1]
    [code] = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    exec(code, {"tacit": tacit, "ClientApp": ClientApp, "grid": Silent(), "initial_arrays": arrays})
    assert read_ledger("ledger.jsonl").steps == 50


def test_a_strategy_runs_once_and_another_goes_on_with_its_ledger(plan):
    arrays = ArrayRecord(torch_state_dict={"weight": torch.zeros(3)})
    strategy = PrivateFedAvg(plan)
    strategy.start(Silent(), arrays, num_rounds=2)
    with pytest.raises(InputError, match="make a new one"):
        strategy.start(Silent(), arrays, num_rounds=1)
    again = PrivateFedAvg(plan)
    again.start(Silent(), arrays, num_rounds=1)
    assert again.ledger.steps == 3


def test_the_mod_clips_before_an_update_leaves():
    sent = RecordDict({"arrays": ArrayRecord(torch_state_dict={"weight": torch.ones(4)})})
    message = Message(sent, dst_node_id=1, message_type=MessageType.TRAIN)

    def answer(message, context):
        arrays = ArrayRecord(torch_state_dict={"weight": torch.full((4,), 11.0)})
        return SimpleNamespace(content=RecordDict({"arrays": arrays}), has_error=lambda: False)

    reply = clipping_mod(0.5)(message, None, answer)
    change = reply.content["arrays"].to_torch_state_dict()["weight"] - 1
    assert float(change.norm()) == pytest.approx(0.5)
