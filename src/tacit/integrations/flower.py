"""Flower's federated rounds under central differential privacy: whole clients are drawn, clipped, and hidden by noise.

The server draws clients in secret, charges the round before it asks any of them, clips each one's update, adds noise to
their sum, and divides by the declared number. A client that fails, answers nonsense or stays away contributes zero, and
nothing tells that it did. No metric of a client is passed on: it would be made of private records.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tacit.accountants import BudgetGate, get_accountant
from tacit.errors import InputError
from tacit.ledger import Charge, Ledger, LedgerFile
from tacit.mechanisms import SLACK, GaussianSumMechanism, build_mechanism
from tacit.randomness import Randomness
from tacit.sampling import Users
from tacit.training import PrivacyPlan
from tacit.types import Vectors

try:
    from flwr.app import ArrayRecord, Context, Message, MessageType, RecordDict
    from flwr.serverapp.strategy import Strategy
except ImportError as error:
    raise ImportError("private rounds need Flower: pip install 'tacit[flower]'") from error

_ARRAYS, _CONFIG = "arrays", "config"
ASSUMPTIONS = (
    "the server is trusted: it sees every client's update, and who was drawn",
    "nobody but the server and the client itself learns whether a client was drawn in a round",
)
Answer = Callable[[Message, Context], Message]


class PrivateFedAvg(Strategy):
    """Federated averaging whose rounds are Gaussian sum queries on a random sample of clients.

    new model = old model + rate * (sum of clipped updates + noise) / expected number of clients

    Args:
        plan: with ``unit=tacit.Users()``: a user is a client with all that it holds. ``clipping`` bounds its update.
        rate: the server's learning rate.
        randomness: secure by default.

    Example::

        plan = tacit.PrivacyPlan(tacit.PoissonSampling(0.1, expected_size=100), tacit.ClipRecords(0.5),
                                 tacit.GaussianNoise(multiplier=1.0), "ledger.jsonl", unit=tacit.Users())
        result = PrivateFedAvg(plan).start(grid, initial_arrays, num_rounds=50)
    """

    def __init__(self, plan: PrivacyPlan, *, rate: float = 1.0, randomness: Randomness | None = None) -> None:
        if not isinstance(plan, PrivacyPlan) or not isinstance(plan.unit, Users):
            raise InputError("plan must be a PrivacyPlan with unit=Users(): whole clients are protected")
        if plan.numerics != "float64":
            raise InputError(f"updates are summed in float64 here; leave out numerics={plan.numerics!r}")
        if not 0 < rate < math.inf:
            raise InputError(f"rate must be a positive number, found {rate!r}")
        if plan.sampling.steps_per_pass != 1:
            raise InputError("clients come and go between rounds: draw them by PoissonSampling or FixedSizeSampling")
        self.plan, self.rate = replace(plan, assumptions=(*plan.assumptions, *ASSUMPTIONS)), rate
        self._randomness = randomness or Randomness()
        self._gate = None if plan.budget is None else BudgetGate(plan.budget)
        self._file: LedgerFile | None = None
        self._mechanism: GaussianSumMechanism | None = None
        self._asked: set[int] = set()
        self._model: dict[str, Tensor] = {}

    @property
    def ledger(self) -> Ledger:
        if self._file is None:
            raise InputError("there is no ledger before the first round")
        return self._file.ledger

    def epsilon(self, delta: float, accountant: str = "pld") -> float:
        """Of all rounds so far."""
        return get_accountant(accountant).guarantee(self.ledger, delta=delta).epsilon

    def start(self, *arguments: Any, **more: Any) -> Any:
        if self._file is not None:
            raise InputError("this strategy has run; make a new one, which may go on with the same ledger")
        try:
            return super().start(*arguments, **more)
        finally:
            if self._file is not None:
                self._file.close()

    # A round

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        self._model = {name: torch.from_numpy(array.numpy().copy()) for name, array in arrays.items()}
        self._charge()
        nodes = sorted(grid.get_node_ids())
        self.plan.sampling.check_population(len(nodes))
        drawn = next(iter(self.plan.sampling.draws(len(nodes), self._randomness)))
        self._asked = {nodes[place] for place in drawn}
        config["server-round"] = server_round
        content = RecordDict({_ARRAYS: arrays, _CONFIG: config})
        return [Message(content=content, message_type=MessageType.TRAIN, dst_node_id=node) for node in self._asked]

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, None]:
        assert self._mechanism is not None  # a round is charged before it is aggregated
        found = {reply.metadata.src_node_id: reply for reply in reversed(list(replies))}
        updates = [self._update(reply) for node, reply in sorted(found.items()) if node in self._asked]
        self._asked = set()  # a second call has nobody left to add
        total = clipped_total(self._mechanism, [one for one in updates if one is not None])
        released = self._mechanism.release(total, self.plan.sampling.denominator, self._randomness)
        for name, change in released.items():
            self._model[name] = (self._model[name].double() + self.rate * change).to(self._model[name].dtype)
        return ArrayRecord(torch_state_dict=self._model), None

    def configure_evaluate(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        return []  # what clients would answer is made of their records

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Any]) -> None:
        return None

    def summary(self) -> None:
        """Nothing but the plan, which the ledger states."""

    def _charge(self) -> None:
        if self._file is None:
            shapes = {name: value.shape for name, value in self._model.items() if value.is_floating_point()}
            plan = self.plan
            self._mechanism = build_mechanism(plan.clipping, plan.noise, shapes, slack=SLACK)
            self._file = LedgerFile(plan.ledger, plan.header(self._randomness), plan.versions())
        assert self._mechanism is not None
        charge = Charge(self.plan.sampling.event(self._mechanism.queries), 1)
        if self._gate is not None:
            self._gate(self._file.ledger, [charge])
        self._file.reserve([charge])

    def _update(self, reply: Any) -> Vectors | None:
        """What a client has changed; None if its answer is none."""
        if reply.has_error() or len(reply.content.array_records) != 1:
            return None
        (record,) = reply.content.array_records.values()
        return difference(record, self._model)


def difference(record: Mapping[str, Any], model: Mapping[str, Tensor]) -> Vectors | None:
    """A client's arrays minus the model's, in float64; None if they are not arrays of these names and shapes."""
    try:
        found = {name: torch.from_numpy(record[name].numpy()).double() for name in model}
    except (KeyError, TypeError, ValueError):
        return None
    if any(value.shape != model[name].shape for name, value in found.items()):
        return None
    return {name: value - model[name] for name, value in found.items() if model[name].is_floating_point()}


def clipped_total(mechanism: GaussianSumMechanism, updates: list[Vectors]) -> Vectors:
    """The sum of the clipped updates, in float64; one that is not finite has no share."""
    total = mechanism.zeros(torch.device("cpu"))
    for update in updates:
        squares = torch.stack([update[name].square().sum() for name in mechanism.shapes])[None]
        factors = mechanism.factors(squares)[0]
        for column, name in enumerate(mechanism.shapes):
            if factors[column] > 0:
                total[name] += factors[column] * update[name]
        for name, count in mechanism.counts(squares).items():
            total[name] += count
    return total


def clipping_mod(norm: float) -> Callable[[Message, Context, Answer], Message]:
    """A mod of the client app that clips its update before it leaves; the server clips again whatever it gets.

    Example::

        app = ClientApp(mods=[clipping_mod(0.5)])
    """

    def clip(message: Message, context: Context, answer: Answer) -> Message:
        sent = next(iter(message.content.array_records.values()), None)
        reply = answer(message, context)
        if sent is None or reply.has_error() or len(reply.content.array_records) != 1:
            return reply
        ((key, record),) = reply.content.array_records.items()
        model = {name: torch.from_numpy(array.numpy().copy()) for name, array in sent.items()}
        update = difference(record, model)
        if update is not None:
            length = math.sqrt(sum(float(value.square().sum()) for value in update.values()))
            factor = min(1.0, norm / length) if 0 < length < math.inf else float(length == 0)
            clipped = {name: model[name] + factor * value.nan_to_num() for name, value in update.items()}
            whole = {name: clipped.get(name, value).to(value.dtype) for name, value in model.items()}
            reply.content[key] = ArrayRecord(torch_state_dict=whole)
        return reply

    return clip
